"""How much of a perfect text each rule keeps: right answers in other words, written by the world's own generator.

Follows Bachmann et al. 2025 (arXiv 2501.19309), known to us from summaries [S]: of GPT-4o's text the standard rule
keeps about 2 tokens, the judge 20 to 27; of Wikipedia's 3.1 and 12.3. Our texts are right by construction.
Left out: texts with errors (errors.py), and any speed: nobody has such a draft.
"""

import random

import torch

from specdec_lib import plots
from specdec_lib.claims import claim
from specdec_lib.decode import Session
from specdec_lib.drafters import DraftContext, Feedback
from specdec_lib.evaluate import MAX_NEW_TOKENS, Answer
from specdec_lib.experiments.base import Lab, between, head_mark, label_of, percent, row_of, table
from specdec_lib.methods import Method, build_method
from specdec_lib.plots import COLOURS
from specdec_lib.pocket.checker import Walker, mark
from specdec_lib.pocket.tokenizer import prompt_ids, world_ids, world_tokens
from specdec_lib.pocket.world import Problem, answer_parts
from specdec_lib.stats import ratio_interval
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import REJECTED
from specdec_lib.zoo import Pair

WHAT = "acceptance of perfect text: right answers in the other wording, standard rule against judge"
PROBLEMS = 100
RULES = ("greedy", "judge")
SHARES = (0.0, 0.5, 1.0)  # of the wording that the target does not prefer
LENGTHS = (25, MAX_NEW_TOKENS)  # draft lengths: the paper's, and the whole text
PAPER = {
    "greedy": ("judge-gpt4o-standard", "judge-human-standard"),
    "judge": ("judge-gpt4o-judge", "judge-human-judge"),
}


class PerfectWriter:
    """A drafter that goes on with any right beginning: with the rest of the right answer in its own wordings.

    After a rejection, what it proposes follows the target's token: a wording that the target has begun is ended, and
    every later slot is in the writer's own wording. Where the text is not the beginning of a right answer, it proposes
    nothing until the end.

    share: how often it takes wording B in a slot, by rng. length: the draft length.
    """

    name = "perfect"

    def __init__(self, problem: Problem, tokenizer, length: int, share: float, rng: random.Random):
        self.parts, self.tokenizer, self.length = answer_parts(problem), tokenizer, length
        self.chosen = [part.options[part.kind == "slot" and rng.random() < share] for part in self.parts]

    def start(self, prompt: list[int]) -> None:
        self.begins = len(prompt)

    def rest(self, written: list[str]) -> list[str]:
        """What follows these tokens of the world; nothing where they begin no right answer."""
        walker = Walker(self.parts)
        for token in written:
            if walker.i == len(self.parts) or not walker.step(token):
                return []
        begun = list(walker.left[0]) if walker.begun else []
        return begun + [token for option in self.chosen[walker.i + walker.begun :] for token in option]

    def propose(self, context: DraftContext) -> DraftTree:
        rest = self.rest(world_tokens(self.tokenizer, context.committed[self.begins :]))
        rest = world_ids(self.tokenizer, rest[: min(self.length, context.room)])
        ids = [context.committed[-1], *rest]
        return DraftTree.chain(torch.tensor(ids, device=context.device))

    def observe(self, feedback: Feedback) -> None:
        pass


def run(lab: Lab) -> dict:
    """rows: one a rule, share and draft length, with base.row_of's figures and, beside them, `share`, `length`,
    first_kept: mean tokens kept of the first proposal, so before the first rejection, with its 95 % bootstrap interval;
    whole: share of answers of which nothing was rejected.
    """
    rows, tasks = [], lab.problems()
    for length in LENGTHS:
        for share in SHARES:
            for rule in RULES:
                method = build_method(rule, lab.pair)
                method.knobs.pop("gamma")
                key = f"{method.label} {head_mark(method.verifier)} share={share:g} length={length}"
                rows.append(lab.rows.get(key, lambda m=method, k=key, s=share, n=length: _row(lab, m, tasks, s, n, k)))
    return {"rows": rows}


def _row(lab: Lab, method: Method, tasks: list[Problem], share: float, length: int, label: str) -> dict:
    found = [
        answered(lab.pair, method, problem, share, length, random.Random(f"perfect-{lab.seed}-{number}"))
        for number, problem in enumerate(lab.watch(label, tasks))
    ]
    first = [len(answer.trace.rounds[0].path) for answer in found]
    whole = [all(r.proposed and REJECTED not in r.outcomes.values() for r in answer.trace.rounds) for answer in found]
    return {
        "method": method.name, "settings": method.knobs, "share": share, "length": length, **row_of(found),
        "first_kept": sum(first) / len(first), "first_kept_interval": ratio_interval(first, [1] * len(first)),
        "whole": sum(whole) / len(whole),
    }  # fmt: skip


def answered(
    pair: Pair, method: Method, problem: Problem, share: float, length: int, rng: random.Random
) -> Answer:  # fmt: skip
    """The rule's answer with a perfect writer as the draft."""
    drafter = PerfectWriter(problem, pair.tokenizer, length, share, rng)
    session = Session(pair.target, drafter, method.verifier, stops=pair.stops)
    trace = session.start(prompt_ids(pair.tokenizer, problem.question)).run(MAX_NEW_TOKENS)
    return Answer(problem, trace, mark(problem, world_tokens(pair.tokenizer, trace.ids)))


def text(result: dict) -> str:
    heads = (
        "rule", "other wording %", "length", "kept before the 1st rejection", "95 % interval", "kept a round",
        "95 % interval", "kept whole %", "right %",
    )  # fmt: skip
    return table(
        heads,
        [
            (
                label_of(row), percent(row["share"]), row["length"], row["first_kept"],
                between(row["first_kept_interval"], digits=1), row["kept"], between(row["kept_interval"], digits=1),
                percent(row["whole"]), percent(row["accuracy"]),
            )
            for row in result["rows"]
        ],
    )  # fmt: skip


def figure(result: dict):
    """Tokens kept of a whole perfect text before the first rejection, by rule and by how often it uses other words."""
    rows = [row for row in result["rows"] if row["length"] == max(LENGTHS)]
    most = {rule: next(r for r in rows if r["method"] == rule and r["share"] == max(SHARES)) for rule in RULES}
    title = (
        f"Of a right answer in other words, the standard rule keeps {most['greedy']['first_kept']:.1f} tokens before "
        f"its first rejection,\nthe judge {most['judge']['first_kept']:.1f}"
    )
    fig, ax = plots.figure(title, "share of the wording that the target does not prefer", "tokens kept", (9, 4.6))
    names = {"greedy": "standard", "judge": f"judge, delta {most['judge']['settings']['delta']:g}"}
    for rule in RULES:
        mine = [row for row in rows if row["method"] == rule]
        x, y = [row["share"] for row in mine], [row["first_kept"] for row in mine]
        off = [[abs(row["first_kept_interval"][side] - row["first_kept"]) for row in mine] for side in (0, 1)]
        ax.errorbar(x, y, off, color=COLOURS[rule], marker="o", lw=2, capsize=4, label=names[rule])
        for at, (id, marker) in enumerate(zip(PAPER[rule], "Ds", strict=True)):
            paper = claim(id)
            what = ("GPT-4o's text", "Wikipedia's")[at]
            label = f"paper, {what} [{paper.grade}], {names[rule].split(',')[0]}: {paper.value:g}"
            ax.plot(
                1.08 + 0.04 * at,
                paper.value,
                marker,
                color=COLOURS["paper"],
                mfc=COLOURS[rule],
                ms=9,
                label=label,
                ls="",
            )
    ax.set(xlim=(-0.05, 1.2), ylim=(0, None), xticks=SHARES)
    ax.legend(fontsize=8, title="bars: 95 % bootstrap over problems", title_fontsize=8)
    return fig
