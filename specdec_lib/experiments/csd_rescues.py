"""What CSD rescues: pairs learnt on some texts and used on others, kinds of tokens, tokens kept, probability given up.

Follows Calibrated Speculative Decoding (Zhou et al. 2026, arXiv 2604.13634) in kind: its kinds of rescued tokens.
Left out: whether a rescue was right (csd_precision.py, where answers can be checked).
"""

from collections import Counter

from specdec_lib import plots
from specdec_lib import trace as figures
from specdec_lib.batch import decode_batch
from specdec_lib.csd.file import owner_of
from specdec_lib.csd.memory import CorrectionMemory
from specdec_lib.drafters import ModelDrafter
from specdec_lib.exactness import Metered, exactness
from specdec_lib.experiments.base import GAMMA, Lab, between, label_of, percent, table
from specdec_lib.experiments.csd_patterns import KINDS, kind_of
from specdec_lib.experiments.memories import halves, rule_on, with_unpacked_draft
from specdec_lib.methods import Method
from specdec_lib.plots import COLOURS
from specdec_lib.stats import ratio_interval
from specdec_lib.trace import Trace
from specdec_lib.verifiers import GreedyMatch
from specdec_lib.verifiers.base import RESCUED

WHAT = "what csd rescues: pairs as text, kinds, kept, and the probability given up"
PROBLEMS = 30
ANY_PAIR = True
RULES = (
    ("csd", {}), ("csd", {"lambda": 2.0}), ("csd", {"lambda": 0.0}), ("csd-rate", {}), ("csd-rate", {"lambda": 2.0}),
    ("csd-rate", {"lambda": 0.0}), ("csd-memory", {"lambda": 0.0}),
)  # fmt: skip
FREQUENT = 12  # pairs shown


def run(lab: Lab) -> dict:
    """rows: greedy speculation, whose texts teach a memory, then rules on that memory, frozen, on other texts.

    kept with its 95 % bootstrap interval over texts; accepted_over_drafted; changed and given_up (exactness.py);
    kinds: rescued tokens by kind; pairs: the most often rescued as [draft, target, times]. Beside rows: learnt, the
    memory's most frequent pairs as [draft, target, count, rate], texts, patterns.
    """
    pair = with_unpacked_draft(lab.pair)  # no time is measured here
    learn, use, longest = halves(lab)
    plain = Method("greedy", {"gamma": GAMMA}, ModelDrafter(pair.draft, GAMMA), GreedyMatch())

    def decoded(method: Method, prompts: list) -> list[Trace]:
        watched, rule = lab.watch(method.label, prompts), Metered(method.verifier)
        return decode_batch(pair.target, watched, longest, method.drafter, rule, stops=pair.stops)

    memory = CorrectionMemory(owner_of(pair))
    for trace in decoded(plain, learn):
        memory.teach_trace(trace)
    memory.freeze()
    methods = [plain, *(rule_on(pair, memory, name, knobs) for name, knobs in RULES)]
    rows = [
        lab.rows.get(method.label, lambda method=method: _row(lab, method, decoded(method, use))) for method in methods
    ]
    say = pair.tokenizer.decode
    learnt = [[say([x]), say([t]), r + n, rate] for x, t, r, n, rate in memory.most_frequent(FREQUENT)]
    return {"rows": rows, "learnt": learnt, "texts": memory.texts, "patterns": len(memory.pairs)}


def _row(lab: Lab, method: Method, traces: list[Trace]) -> dict:
    say, pocket = lab.pair.tokenizer.decode, lab.pair.name.startswith("pocket")
    rescued = Counter(
        (say([r.tokens[node]]), say([r.best[r.parents[node]]]))
        for r in figures.rounds_of(traces)
        for node in r.path
        if r.outcomes[node] == RESCUED
    )
    kinds = Counter()
    for (draft, wanted), times in rescued.items():
        kinds[kind_of(draft, wanted, pocket)] += times
    kept, rounds = [sum(len(r.path) for r in t.rounds) for t in traces], [len(t.rounds) for t in traces]
    given = exactness(traces)
    return {
        "method": method.name, "settings": method.knobs, "n": len(traces), "kept": sum(kept) / sum(rounds),
        "kept_interval": ratio_interval(kept, rounds), "changed": given["changed"], "given_up": given["given_up"],
        "accepted_over_drafted": figures.accepted_over_drafted(traces), "kinds": dict(kinds),
        "pairs": [[*said, times] for said, times in rescued.most_common(FREQUENT)],
    }  # fmt: skip


def text(result: dict) -> str:
    heads = ("rule", "kept", "95 % interval", "accepted/drafted %", "changed %", "given up", "rescued", *KINDS)
    plain = result["rows"][0]
    lines = []
    for row in result["rows"]:
        total = sum(row["kinds"].values())
        kinds = (percent(row["kinds"].get(kind, 0) / total) if total else None for kind in KINDS)
        lines.append(
            (
                label_of(row), row["kept"], between(row["kept_interval"]), percent(row["accepted_over_drafted"]),
                percent(row["changed"]), row["given_up"], total, *kinds,
            )
        )  # fmt: skip
    most = max(result["rows"], key=lambda row: sum(row["kinds"].values()), default=plain)
    said = [f"{draft!r} for {wanted!r} ({times})" for draft, wanted, times in most["pairs"]]
    learnt = [f"{draft!r} for {wanted!r} {count}, rate {rate:.2f}" for draft, wanted, count, rate in result["learnt"]]
    return "\n".join(
        [
            table(heads, lines), f"kinds: % of the rescued; {result['texts']} texts taught {result['patterns']} pairs",
            f"most learnt: {'; '.join(learnt)}", f"most rescued by {label_of(most)}: {'; '.join(said) or 'none'}",
        ]
    )  # fmt: skip


def figure(result: dict):
    """Bars of kept a rule, and the share of tokens changed beside each."""
    rows = result["rows"]
    plain, best = rows[0], max(rows, key=lambda row: row["kept"])
    title = (
        f"{result['texts']} texts teach {result['patterns']} pairs; rescuing them keeps up to {best['kept']:.2f} a "
        f"round\n(greedy speculation {plain['kept']:.2f}) and changes {percent(best['changed'])} % of tokens"
    )
    fig, ax = plots.figure(title, f"kept tokens a round (of {GAMMA} drafted)", "", (9.5, 5))
    for y, row in enumerate(rows):
        off = [[abs(bound - row["kept"])] for bound in row["kept_interval"]]
        ax.barh(y, row["kept"], xerr=off, color=COLOURS[row["method"]], capsize=3)
        ax.annotate(f"{percent(row['changed'])} % changed", (0.02 * best["kept"], y), va="center", fontsize=9)
    ax.set_yticks(range(len(rows)), [label_of(row) for row in rows], fontsize=9)
    ax.invert_yaxis()
    return fig
