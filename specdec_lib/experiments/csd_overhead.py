"""What CSD's own work costs: gate, look-up and memory update, timed apart, and their share of a round.

Our own form of a figure that the paper (arXiv 2604.13634, known from digests) is said to give: .01 to .02 % [S].
Left out: what a round costs (bench.py), and time on a GPU, whose work overlaps the host's.
"""

import statistics
import time
from collections.abc import Callable

import torch

from specdec_lib import plots
from specdec_lib.csd.file import memory_of
from specdec_lib.decode import Session
from specdec_lib.drafters import ModelDrafter
from specdec_lib.drafters.base import Feedback
from specdec_lib.experiments.base import GAMMA, Lab, table
from specdec_lib.experiments.memories import halves, rule_on
from specdec_lib.plots import COLOURS
from specdec_lib.sampling import RandomChance
from specdec_lib.verifiers import GreedyMatch, Scores

WHAT = "seconds of csd's gate, look-up and memory update, and their share of a round"
PROBLEMS = 4  # texts whose rounds are timed
ANY_PAIR = True
REPEATS = 25  # of each part on each round
PAPER_SHARE = 2e-4  # what .02 % of a round is
PLAIN, CSD_VERIFY, GATE, LOOKUP, LEARN = (
    "verdict, greedy speculation", "verdict, csd", "gate alone", "look-ups alone", "memory update",
)  # fmt: skip


class Recorder(GreedyMatch):
    """Greedy match; what `learn` is told of each round is kept."""

    def __init__(self):
        self.rounds: list[Feedback] = []

    def learn(self, feedback: Feedback) -> None:
        kept = Feedback(feedback.tree, feedback.scores, feedback.verdict, feedback.kept, list(feedback.committed))
        self.rounds.append(kept)


def run(lab: Lab) -> dict:
    """rows: part, seconds (median over rounds of the median over REPEATS), share (of the median round's seconds).

    Beside them: round_s; rounds; overhead_s, what csd's verdict takes more than greedy speculation's (median of the
    differences) and its memory update, overhead_share of a round. Times are this machine's, and never resumed.
    """
    pair = lab.pair
    learn, use, longest = halves(lab)
    recorder = Recorder()
    session = Session(pair.target, ModelDrafter(pair.draft, GAMMA), recorder, stops=pair.stops)
    traces = [session.start(prompt).run(longest) for prompt in lab.watch("rounds", [*learn, *use][: lab.n])]
    seconds = [r.seconds for trace in traces for r in trace.rounds if r.depth == GAMMA]
    if not seconds:
        raise ValueError(f"no round of {lab.n} texts drafted {GAMMA} tokens; ask for more with --n")
    rounds = [feedback for feedback in recorder.rounds if feedback.tree.depth == GAMMA]
    rule = rule_on(pair, memory_of(pair, or_empty=True).snapshot()).verifier
    times = [parts_of(rule, feedback) for feedback in lab.watch("parts", rounds)]
    round_s = statistics.median(seconds)
    rows = [
        {"part": part, "seconds": (spent := statistics.median(t[part] for t in times)), "share": spent / round_s}
        for part in (PLAIN, CSD_VERIFY, GATE, LOOKUP, LEARN)
    ]
    more = statistics.median(t[CSD_VERIFY] - t[PLAIN] + t[LEARN] for t in times)
    return {
        "rows": rows, "round_s": round_s, "rounds": len(rounds), "overhead_s": more, "overhead_share": more / round_s,
        "pairs": len(rule.memory.pairs),
    }  # fmt: skip


def parts_of(rule, feedback: Feedback) -> dict[str, float]:
    """Median seconds of each part on one recorded round; the two verdicts take turns."""
    tree, old, verdict = feedback.tree, feedback.scores, feedback.verdict
    chance = RandomChance(torch.Generator())  # a greedy verdict draws nothing

    def fresh() -> Scores:
        return Scores(old.logits, old.adjuster, old.prefix, old.hidden)

    plain, csd = GreedyMatch(), rule
    known, reached = fresh(), list(verdict.outcomes)
    known.best  # noqa: B018  (made once: the verdict has it, too)
    told = verdict.tokens, tree.parents, verdict.outcomes, verdict.best, feedback.committed, len(feedback.kept) + 1
    memory = rule.memory.snapshot()

    def look_up() -> None:
        for node in reached:
            rule.trusts(verdict.tokens[node], verdict.best[tree.parents[node]])

    parts: dict[str, Callable] = {
        PLAIN: lambda: plain.verify(tree, fresh(), chance), CSD_VERIFY: lambda: csd.verify(tree, fresh(), chance),
        GATE: lambda: rule.gate(tree, known), LOOKUP: look_up, LEARN: lambda: memory.teach(*told),
    }  # fmt: skip
    found: dict[str, list[float]] = {part: [] for part in parts}
    for _ in range(REPEATS):
        for part, work in parts.items():
            began = time.perf_counter()
            work()
            found[part].append(time.perf_counter() - began)
    return {part: statistics.median(seconds) for part, seconds in found.items()}


def text(result: dict) -> str:
    lines = [(row["part"], f"{1e6 * row['seconds']:.1f}", f"{100 * row['share']:.3f}") for row in result["rows"]]
    return "\n".join(
        [
            f"{result['rounds']} rounds of {GAMMA} drafts, {1000 * result['round_s']:.2f} ms each (median); "
            f"memory of {result['pairs']} pairs",
            table(("part", "microseconds", "% of a round"), lines),
            f"csd takes {1e6 * result['overhead_s']:.1f} microseconds a round more, "
            f"{100 * result['overhead_share']:.3f} % of it ({100 * PAPER_SHARE:.2f} % would be "
            f"{1e6 * PAPER_SHARE * result['round_s']:.1f} microseconds)",
        ]
    )


def figure(result: dict):
    """A bar a part, and what .02 % of a round is."""
    title = (
        f"csd's verdict and memory add {100 * result['overhead_share']:.2f} % to a round\n"
        f"({1e6 * result['overhead_s']:.0f} microseconds to {1000 * result['round_s']:.1f} ms)"
    )
    fig, ax = plots.figure(title, "microseconds a round", "", (9, 4.2))
    names = [row["part"] for row in result["rows"]]
    colours = [COLOURS["greedy"], *[COLOURS["csd"]] * (len(names) - 1)]
    bars = ax.barh(names, [1e6 * row["seconds"] for row in result["rows"]], color=colours)
    ax.bar_label(bars, fmt="%.1f", padding=3)
    ax.axvline(1e6 * PAPER_SHARE * result["round_s"], color=COLOURS["paper"], ls="--", label=".02 % of this round")
    ax.invert_yaxis()
    ax.legend(fontsize=9, loc="lower right")
    return fig
