"""Patterns of rejection: how few pairs make most of them, and how much a pair's probability ratio moves with the text.

Follows Calibrated Speculative Decoding (Zhou et al. 2026, arXiv 2604.13634) in kind: that the top 20 % of patterns
make 69 % of rejections. The ratio p(x) / p(t*) is what its gate reads; how far it moves within a pair and
between pairs is our own picture.
Left out: what rescuing does (csd_rescues.py).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import matplotlib.pyplot as plt
import numpy as np

from specdec_lib.batch import decode_batch
from specdec_lib.correction import share_of_top
from specdec_lib.csd.memory import CorrectionMemory
from specdec_lib.drafters import ModelDrafter
from specdec_lib.experiments.base import GAMMA, Lab, percent, table
from specdec_lib.experiments.memories import halves
from specdec_lib.plots import COLOURS
from specdec_lib.pocket.world import ITEMS, SLOTS, tokens_of
from specdec_lib.stats import totals_interval
from specdec_lib.trace import Trace
from specdec_lib.tree import DraftTree, depths
from specdec_lib.verifiers import GreedyMatch, Scores, Verdict
from specdec_lib.verifiers.base import REJECTED, parents_of

WHAT = "how concentrated rejections are, and a pair's probability ratio from text to text"
PROBLEMS = 400
ANY_PAIR = True
TOP = 0.2  # of the patterns, as the paper counts
PAPER = 69  # % of rejections made by them, grade A
FREQUENT = 16  # pairs shown
WORDING, DIGIT, MARK, WORD = "wording", "digit", "punctuation", "word"
KINDS = (WORDING, WORD, DIGIT, MARK)
UNITS = (*ITEMS, "miles", "dollars")
SAME = {frozenset(tokens_of(wording)[0].strip() for wording in both) for both in SLOTS.values() if all(both)}
SAME |= {frozenset((unit, "of")) for unit in UNITS}


class Ratios(GreedyMatch):
    """Greedy match, unchanged; a verdict's `added` holds p(x) / p(t*) of every node, on the raw logits."""

    def verify(self, tree: DraftTree, scores: Scores, chance) -> Verdict:
        verdict = super().verify(tree, scores, chance)
        if len(tree) > 1:
            parents = parents_of(tree)
            tokens = tree.tokens.clamp_max(scores.logits.shape[-1] - 1)
            own, best = (scores.logits[parents, ids].float() for ids in (tokens, scores.best[parents]))
            verdict.added = (own - best).exp().tolist()
        return verdict


def kind_of(drafted: str, wanted: str, pocket: bool) -> str:
    """What kind of token was drafted where another was wanted; in the pocket world two wordings of a slot are one."""
    if pocket and frozenset((drafted.strip(), wanted.strip())) in SAME:
        return WORDING
    if any(letter.isdigit() for letter in drafted):
        return DIGIT
    return WORD if any(letter.isalpha() for letter in drafted) else MARK


def rejections(trace: Trace) -> Iterator[tuple[int, int, float]]:
    """(x, t*, p(x) / p(t*)) of every rejected draft at a position that was emitted."""
    for r in trace.rounds:
        depth = depths(r.parents)
        for node, outcome in r.outcomes.items():
            if outcome == REJECTED and depth[node] <= len(r.emitted):
                yield r.tokens[node], r.best[r.parents[node]], r.added[node]


def run(lab: Lab) -> dict:
    """rows: the most frequent pairs: draft, target (as text), kind, count, rate (csd/memory.py), and of the ratio
    p(x) / p(t*) over its texts low, median, high (10, 50 and 90 % points).

    Beside them: texts, rejections, patterns; top_share, of rejections made by the top 20 % of patterns, with its 95 %
    bootstrap over texts; curve: that share for 0, 5, ... 100 % of the patterns; kinds: share of rejections by kind.
    """
    learn, _, longest = halves(lab)
    drafter = ModelDrafter(lab.pair.draft, GAMMA)
    prompts = lab.watch("rejections", learn)
    traces = decode_batch(lab.pair.target, prompts, longest, drafter, Ratios(), stops=lab.pair.stops)
    memory, ratios, by_text = CorrectionMemory(), defaultdict(list), []
    for trace in traces:
        memory.teach_trace(trace)
        mine = defaultdict(int)
        for x, wanted, ratio in rejections(trace):
            ratios[x, wanted].append(ratio)
            mine[x, wanted] += 1
        by_text.append(mine)
    decode, pocket = lab.pair.tokenizer.decode, lab.pair.name.startswith("pocket")
    kinds = defaultdict(int)
    for (x, wanted), found in ratios.items():
        kinds[kind_of(decode([x]), decode([wanted]), pocket)] += len(found)
    rows = []
    for x, wanted, _, count, rate in memory.most_frequent(FREQUENT):
        low, median, high = np.quantile(ratios[x, wanted], (0.1, 0.5, 0.9))
        said = {"draft": decode([x]), "target": decode([wanted]), "ids": [x, wanted]}
        about = {"kind": kind_of(said["draft"], said["target"], pocket), "count": count, "rate": rate}
        rows.append(said | about | {"low": float(low), "median": float(median), "high": float(high)})
    counts = [len(found) for found in ratios.values()]
    total = sum(counts)
    if not total:
        raise ValueError(f"the draft of {lab.pair.name} was never rejected in {lab.n} texts; ask for more with --n")
    return {
        "rows": rows, "texts": len(traces), "rejections": total, "patterns": len(counts),
        "top_share": share_of_top(counts, TOP), "top_share_interval": top_interval(by_text),
        "curve": [share_of_top(counts, i / 20) for i in range(21)],
        "kinds": {kind: kinds[kind] / total for kind in KINDS if kinds[kind]},
    }  # fmt: skip


def top_interval(by_text: Sequence[dict]) -> list[float] | None:
    """95 % bootstrap over texts of what this run's top patterns make; which those are is not drawn anew."""
    totals = defaultdict(int)
    for mine in by_text:
        for pattern, count in mine.items():
            totals[pattern] += count
    ordered = sorted(totals, key=totals.get, reverse=True)
    top = set(ordered[: max(1, round(TOP * len(ordered)))])
    items = [(sum(c for pattern, c in mine.items() if pattern in top), sum(mine.values())) for mine in by_text]
    return list(totals_interval(np.array(items), lambda a, b: a / np.maximum(b, 1))) if len(items) > 1 else None


def text(result: dict) -> str:
    heads = ("draft said", "target wanted", "kind", "count", "rate", "p(x)/p(t*)", "10 %", "90 %")
    lines = [
        (
            repr(row["draft"]), repr(row["target"]), row["kind"], row["count"], row["rate"], f"{row['median']:.2g}",
            f"{row['low']:.2g}", f"{row['high']:.2g}",
        )
        for row in result["rows"]
    ]  # fmt: skip
    kinds = ", ".join(f"{kind} {percent(share)} %" for kind, share in result["kinds"].items())
    said = (
        f"{result['rejections']} rejections of {result['patterns']} patterns in {result['texts']} texts; "
        f"the top 20 % of patterns make {percent(result['top_share'])} %; {kinds}"
    )
    return "\n".join([said, table(heads, lines)])


def figure(result: dict):
    """The share of rejections by share of patterns, and each frequent pair's ratio from text to text."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained", width_ratios=(1, 1.3))
    within = max(row["high"] / row["low"] for row in result["rows"])
    medians = [row["median"] for row in result["rows"]]
    fig.suptitle(
        f"The top 20 % of {result['patterns']} patterns make {percent(result['top_share'])} % of rejections.\n"
        f"Ratios p(x) / p(t*) differ by a factor of at most {within:.1f} within a pair (10 to 90 %), "
        f"of up to {max(medians) / min(medians):.0f} between pairs",
        fontweight="bold", fontsize=12,
    )  # fmt: skip
    left.plot(range(0, 101, 5), [100 * share for share in result["curve"]], color=COLOURS["csd"], label="measured")
    left.plot([0, 100], [0, 100], color="#999999", ls=":", label="all patterns alike")
    left.plot(100 * TOP, PAPER, "D", color=COLOURS["paper"], label="paper [A]")
    left.set(xlabel="share of patterns, the most frequent first, %", ylabel="share of rejections, %", ylim=(0, 101))
    left.legend(fontsize=9)
    rows = result["rows"]
    for y, row in enumerate(rows):
        colour = COLOURS["rejected" if row["kind"] == DIGIT else "accepted" if row["kind"] == WORDING else "draft"]
        right.plot([row["low"], row["high"]], [y, y], color=colour, lw=2)
        right.plot(row["median"], y, "o", color=colour)
    said = [[word.strip() or repr(word) for word in (row["draft"], row["target"])] for row in rows]
    names = [" → ".join(words) for words in said]
    right.set_yticks(range(len(rows)), [name.replace("$", r"\$") for name in names], fontsize=8)
    right.axvline(0.01, color=COLOURS["csd-gate"], ls="--", label="tau .01")
    right.set(xscale="log", xlabel="p(x) / p(t*): median, 10 to 90 %")
    right.invert_yaxis()
    right.legend(fontsize=9)
    return fig
