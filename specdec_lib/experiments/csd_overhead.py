"""What CSD's own work costs: gate, look-up and memory update, timed apart, and their share of a round.

Our own form of a figure that the paper (arXiv 2604.13634, known from digests) is said to give: .01 to .02 % [S].
Left out: what a round costs (bench.py), and time on a GPU, whose work overlaps the host's.
"""

import statistics
import time
from collections.abc import Callable

import torch

from specdec_lib import plots
from specdec_lib.batch import decode_batch
from specdec_lib.csd.file import owner_of
from specdec_lib.csd.memory import CorrectionMemory
from specdec_lib.decode import Session
from specdec_lib.drafters import ModelDrafter
from specdec_lib.drafters.base import Feedback
from specdec_lib.experiments.base import GAMMA, Lab, table
from specdec_lib.experiments.memories import halves, rule_on, with_unpacked_draft
from specdec_lib.plots import COLOURS
from specdec_lib.sampling import RandomChance
from specdec_lib.verifiers import GreedyMatch, Scores
from specdec_lib.verifiers.base import RESCUED
from specdec_lib.zoo import Pair

WHAT = "seconds of csd's gate, look-up and memory update, and their share of a round"
PROBLEMS = 4  # texts whose rounds are timed, and as many that teach
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

    A memory is taught by n texts; csd with lambda 0 reads it on the rounds of n others. Beside rows: round_s; rounds;
    pairs in the memory; rescuing, rounds in which something is rescued; overhead_s, what csd's verdict takes more than
    greedy speculation's, and its memory update (median of the sums), overhead_share of a round. unpacked_round_s, and
    unpacked_share of it: the same with the draft's 4-bit weights unpacked once, None where there are none. Times are
    this machine's, and never resumed.
    """
    pair = lab.pair
    learn, use, longest = halves(lab)
    light = with_unpacked_draft(pair)
    memory, drafter = CorrectionMemory(owner_of(pair)), ModelDrafter(light.draft, GAMMA)
    for trace in decode_batch(pair.target, lab.watch("learnt", learn), longest, drafter, stops=pair.stops):
        memory.teach_trace(trace)
    rounds, round_s = rounds_with(lab, pair, use, longest)
    light_s = None if light is pair else rounds_with(lab, light, use, longest)[1]
    rule = rule_on(pair, memory.freeze(), changed={"lambda": 0.0}).verifier
    times = [parts_of(rule, feedback) for feedback in lab.watch("parts", rounds)]
    rows = [
        {"part": part, "seconds": (spent := statistics.median(t[part] for t in times)), "share": spent / round_s}
        for part in (PLAIN, CSD_VERIFY, GATE, LOOKUP, LEARN)
    ]
    more = statistics.median(t[CSD_VERIFY] - t[PLAIN] + t[LEARN] for t in times)
    return {
        "rows": rows, "round_s": round_s, "rounds": len(rounds), "pairs": len(memory.pairs),
        "rescuing": sum(rescues(rule, feedback) for feedback in rounds), "overhead_s": more,
        "overhead_share": more / round_s, "unpacked_round_s": light_s,
        "unpacked_share": light_s and more / light_s,
    }  # fmt: skip


def rounds_with(lab: Lab, pair: Pair, prompts: list[list[int]], longest: int) -> tuple[list[Feedback], float]:
    """Greedy speculation's rounds of GAMMA drafts on these prompts, and their median seconds. ValueError for none."""
    recorder = Recorder()
    session = Session(pair.target, ModelDrafter(pair.draft, GAMMA), recorder, stops=pair.stops)
    traces = [session.start(prompt).run(longest) for prompt in lab.watch("rounds", prompts)]
    seconds = [r.seconds for trace in traces for r in trace.rounds if r.depth == GAMMA]
    if not seconds:
        raise ValueError(f"no round of {lab.n} texts drafted {GAMMA} tokens; ask for more with --n")
    return [feedback for feedback in recorder.rounds if feedback.tree.depth == GAMMA], statistics.median(seconds)


def rescues(rule, feedback: Feedback) -> bool:
    """Does the rule rescue anything in this round?"""
    verdict = rule.verify(feedback.tree, fresh(feedback.scores), RandomChance(torch.Generator()))
    return RESCUED in verdict.outcomes.values()


def fresh(scores: Scores) -> Scores:
    """The same logits, of which nothing is computed yet."""
    return Scores(scores.logits, scores.adjuster, scores.prefix, scores.hidden)


def parts_of(rule, feedback: Feedback) -> dict[str, float]:
    """Median seconds of each part on one recorded round; the two verdicts take turns."""
    tree, old, verdict = feedback.tree, feedback.scores, feedback.verdict
    chance = RandomChance(torch.Generator())  # a greedy verdict draws nothing

    plain, csd = GreedyMatch(), rule
    known, reached = fresh(old), list(verdict.outcomes)
    known.best  # noqa: B018  (made once: the verdict has it, too)
    told = verdict.tokens, tree.parents, verdict.outcomes, verdict.best, feedback.committed, len(feedback.kept) + 1
    memory = rule.memory.snapshot()

    def look_up() -> None:
        for node in reached:
            rule.trusts(verdict.tokens[node], verdict.best[tree.parents[node]])

    parts: dict[str, Callable] = {
        PLAIN: lambda: plain.verify(tree, fresh(old), chance), CSD_VERIFY: lambda: csd.verify(tree, fresh(old), chance),
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
            f"memory of {result['pairs']} pairs, lambda 0: something is rescued in {result['rescuing']} of them",
            table(("part", "microseconds", "% of a round"), lines),
            f"csd takes {1e6 * result['overhead_s']:.1f} microseconds a round more (median of the differences of the "
            f"verdicts, and the memory's update), {100 * result['overhead_share']:.3f} % of it "
            f"({100 * PAPER_SHARE:.2f} % would be {1e6 * PAPER_SHARE * result['round_s']:.1f} microseconds)",
            *unpacked_line(result),
        ]
    )


def unpacked_line(result: dict) -> list[str]:
    """A line on the draft with its weights unpacked, if there was one."""
    seconds = result["unpacked_round_s"]
    if seconds is None:
        return []
    return [
        f"with the draft's weights unpacked once, not at every pass: {1000 * seconds:.2f} ms a round, "
        f"{100 * result['unpacked_share']:.3f} % of it"
    ]


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
