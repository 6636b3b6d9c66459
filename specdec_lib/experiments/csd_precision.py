"""How often a rescue is right: by the checker at the token, and by the answers with this one rescue made or refused.

Our own; the paper (arXiv 2604.13634, from digests) judges a few by eye.
Left out: rescues of several tokens at once, and answers that another rescue would have spoilt later.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from specdec_lib import plots
from specdec_lib.batch import decode_batch
from specdec_lib.evaluate import MAX_NEW_TOKENS, Answer, is_right_next
from specdec_lib.experiments.base import Lab, answers_by, between, label_of, percent, table
from specdec_lib.methods import build_method
from specdec_lib.plots import COLOURS
from specdec_lib.pocket.checker import mark
from specdec_lib.pocket.tokenizer import world_tokens
from specdec_lib.pocket.world import Problem
from specdec_lib.stats import share_interval
from specdec_lib.verifiers.base import RESCUED
from specdec_lib.zoo import Pair

WHAT = "how often a rescue is right: by the checker, and by the answers with it made and refused"
PROBLEMS = 100
RULES = ("csd", "csd-rate", "csd-memory", "csd-gate")
REPLAYED = 60  # rescues of a rule whose answers are written out both ways


@dataclass(frozen=True)
class Rescue:
    """A rescued token: the problem, the answer's ids before it, itself, and what the target wanted."""

    problem: Problem
    before: tuple[int, ...]
    token: int
    wanted: int


def rescues(answers: Sequence[Answer]) -> list[Rescue]:
    """All rescues that were emitted."""
    found = []
    for answer in answers:
        ids: list[int] = []
        for r in answer.trace.rounds:
            for i, node in enumerate(r.path):
                if r.outcomes[node] == RESCUED:
                    before = (*ids, *r.emitted[:i])
                    found.append(Rescue(answer.problem, before, r.tokens[node], r.best[r.parents[node]]))
            ids += r.emitted
    return found


def run(lab: Lab) -> dict:
    """rows: one a rule. rescues: how many. judged: those behind a right beginning; right: of them, those whose token
    the checker calls right, right_share with its 95 % Wilson interval.

    replayed: a sample of all rescues, each answer gone on with by the target alone, once with the rescue (made_right:
    share of right final numbers) and once with the target's own token (refused_right). harmed: right only if refused;
    helped: right only if made; precision: 1 - harmed / replayed, with its interval.
    """
    tasks, rows = lab.problems(), []
    for rule in RULES:
        method = build_method(rule, lab.pair)

        def measured(method=method) -> dict:
            found = rescues(answers_by(lab.pair, method, lab.watch(method.label, tasks)))
            sample = found if len(found) <= REPLAYED else random.Random(f"{lab.seed}").sample(found, REPLAYED)
            return {"method": method.name, "settings": method.knobs, **judged(lab.pair, found), **replayed(lab, sample)}

        rows.append(lab.rows.get(method.label, measured))
    return {"rows": rows}


def judged(pair: Pair, found: Sequence[Rescue]) -> dict:
    """rescues, judged, right, right_share and its interval; see run."""
    verdicts = (is_right_next(pair, rescue.problem, rescue.before, rescue.token) for rescue in found)
    labels = [right for right in verdicts if right is not None]
    right = sum(labels)
    return {
        "rescues": len(found), "judged": len(labels), "right": right,
        "right_share": right / len(labels) if labels else None,
        "right_interval": share_interval(right, len(labels)),
    }  # fmt: skip


def replayed(lab: Lab, sample: Sequence[Rescue]) -> dict:
    """The sample's answers with the rescue made and with it refused; see run."""
    made, refused = (
        _finals(lab, what, [(rescue, token) for rescue, token in zip(sample, tokens, strict=True)])
        for what, tokens in (
            ("made", [rescue.token for rescue in sample]), ("refused", [rescue.wanted for rescue in sample]),
        )
    )  # fmt: skip
    n, harmed = len(sample), sum(b and not a for a, b in zip(made, refused, strict=True))
    return {
        "replayed": n, "harmed": harmed, "helped": sum(a and not b for a, b in zip(made, refused, strict=True)),
        "made_right": sum(made) / n if n else None, "refused_right": sum(refused) / n if n else None,
        "precision": 1 - harmed / n if n else None, "precision_interval": share_interval(n - harmed, n),
    }  # fmt: skip


def _finals(lab: Lab, what: str, begun: Sequence[tuple[Rescue, int]]) -> list[bool]:
    """Is the final number right, if the target alone goes on behind each rescue's beginning and this token?"""
    pair, found = lab.pair, []
    prompts = [[*pair.prompt(rescue.problem.question), *rescue.before, token] for rescue, token in begun]
    traces = decode_batch(pair.target, lab.watch(what, prompts), MAX_NEW_TOKENS, stops=pair.stops)
    for (rescue, token), trace in zip(begun, traces, strict=True):
        rest = [] if token in pair.stops.eos_token_ids else trace.ids
        words = world_tokens(pair.tokenizer, [*rescue.before, token, *rest])
        found.append(mark(rescue.problem, words).final_right)
    return found


def text(result: dict) -> str:
    heads = (
        "rule", "rescues", "judged", "right %", "95 % interval", "replayed", "made, right %", "refused, right %",
        "harmed", "helped", "precision %", "95 % interval",
    )  # fmt: skip
    lines = [
        (
            label_of(row), row["rescues"], row["judged"], percent(row["right_share"]),
            between(row["right_interval"], 100, 1), row["replayed"], percent(row["made_right"]),
            percent(row["refused_right"]), row["harmed"], row["helped"], percent(row["precision"]),
            between(row["precision_interval"], 100, 1),
        )
        for row in result["rows"]
    ]  # fmt: skip
    return table(heads, lines)


def figure(result: dict):
    """Two bars a rule: rescued tokens that the checker calls right, and rescues that did the answer no harm."""
    rows = [row for row in result["rows"] if row["judged"] and row["replayed"]]
    title = "\n".join(
        f"{row['method']}: {percent(row['right_share'])} % of rescued tokens right, "
        f"{percent(row['precision'])} % of rescues without harm"
        for row in rows[:2]
    )
    fig, ax = plots.figure(title, "", "share, %", (9, 4.8))
    for x, row in enumerate(rows):
        for shift, share, interval, label, hatch in (
            (-0.2, "right_share", "right_interval", "token right, by the checker", ""),
            (0.2, "precision", "precision_interval", "final number not spoilt", "//"),
        ):
            value, (low, high) = 100 * row[share], (100 * bound for bound in row[interval])
            ax.bar(x + shift, value, width=0.38, color=COLOURS[row["method"]], hatch=hatch, label=None if x else label)
            ax.errorbar(x + shift, value, [[max(value - low, 0)], [max(high - value, 0)]], color="#444444", capsize=4)
    ax.set_xticks(range(len(rows)), [f"{row['method']}\n({row['judged']}, {row['replayed']})" for row in rows])
    ax.set(ylim=(0, 125), yticks=range(0, 101, 20))
    ax.legend(fontsize=9, loc="upper right", ncols=2, title="bars: 95 % Wilson intervals", title_fontsize=9)
    return fig
