"""A family of problems held out of the judge's training: does it judge what it has not seen?

Follows Bachmann et al. 2025 (arXiv 2501.19309), known to us from a summary [S]: trained without code, the judge's
HumanEval falls from 86.6 to 80.4, with the draft alone at 71.3. Each of the world's five families in turn.
Left out: other worlds; the families share their words and their sums.
"""

import torch

from specdec_lib import plots
from specdec_lib.claims import claim
from specdec_lib.drafters import ModelDrafter
from specdec_lib.experiments.base import GAMMA, Lab, between, percent, table
from specdec_lib.experiments.tradeoff import draft_alone
from specdec_lib.judge.features import features
from specdec_lib.judge.head import JudgeHead
from specdec_lib.judge.labels import LabelledAnswer, about_labels, read_labels
from specdec_lib.judge.train import Settings, head_from
from specdec_lib.methods import Method, build_method
from specdec_lib.plots import COLOURS
from specdec_lib.pocket.world import FAMILIES, problems
from specdec_lib.verifiers.judge import Judge
from specdec_lib.zoo import data_folder

WHAT = "a family held out of the judge's training: accuracy and kept on it, beside draft, target and the whole judge"
PROBLEMS = 200  # of each family
ARMS = {
    "target": "target (standard rule)", "all": "judge trained on all", "without": "judge without the family",
    "draft": "draft alone",
}  # fmt: skip
SHADES = {
    "target": COLOURS["greedy"],
    "all": COLOURS["judge"],
    "without": COLOURS["rescued"],
    "draft": COLOURS["draft"],
}
PAPER = {"target": "judge-ood-target", "without": "judge-ood-judge", "draft": "judge-ood-draft"}


def run(lab: Lab) -> dict:
    """rows: one a family and arm, base.row_of's figures with `family` and `arm`. Both judges have the pair's delta.

    ValueError where the pair has no label set.
    """
    delta = build_method("judge", lab.pair).knobs["delta"]
    heads = heads_without(lab)
    rows = []
    for family in FAMILIES:
        tasks = lab.problems((family,))
        found = {"target": lab.measure("greedy", tasks, family)}
        for arm, left_out in (("all", ""), ("without", family)):
            rule = Judge(heads[left_out], delta)
            method = Method("judge", {"gamma": GAMMA, "delta": delta}, ModelDrafter(lab.pair.draft, GAMMA), rule)
            found[arm] = lab.measure(method, tasks, f"{family} trained={arm}")
        found["draft"] = draft_alone(lab, tasks, family)
        rows += [{"family": family, "arm": arm, **row} for arm, row in found.items()]
    return {"rows": rows}


def heads_without(lab: Lab) -> dict[str, JudgeHead]:
    """Heads by the family left out of their training; "" has them all. All are trained alike, from one reading."""
    file = label_file(lab.pair.name)
    answers = read_labels(file, lab.pair)
    families = families_of(answers, about_labels(file))
    found = features(lab.pair, answers, progress=lab.progress)
    of_token = [families[i] for i in found.answer.tolist()]
    heads = {}
    for family in ("", *FAMILIES):
        chosen = torch.tensor([name != family for name in of_token])
        heads[family] = head_from(lab.pair, found.rows(chosen), Settings())
    return heads


def label_file(pair: str):
    """The label set shipped for a pair. ValueError where there is none."""
    file = data_folder() / "judge" / f"labels-{pair}.jsonl.gz"
    if not file.is_file():
        raise ValueError(f"no label set for {pair}: {file} is not there; specdec judge data makes one")
    return file


def families_of(answers: list[LabelledAnswer], about: dict) -> list[str]:
    """The family of each answer's question, found by making the set's questions again. ValueError for a foreign one."""
    try:
        made = problems(about["split"], about["questions"], about["seed"])
    except KeyError as error:
        raise ValueError(f"the label set does not say its {error}, so its questions' families are not known") from error
    family = {problem.question: problem.family for problem in made}
    unknown = [answer.prompt for answer in answers if answer.prompt not in family]
    if unknown:
        raise ValueError(f"the label set holds a question that its seed does not make: {unknown[0]!r}")
    return [family[answer.prompt] for answer in answers]


def text(result: dict) -> str:
    heads = ("family, arm", "accuracy %", "95 % interval", "kept", "95 % interval", "any wrong %")
    return table(
        heads,
        [
            (
                f"{row['family']}, {ARMS[row['arm']]}", percent(row["accuracy"]),
                between(row["accuracy_interval"], 100, 1), row["kept"] if row["arm"] != "draft" else None,
                between(row["kept_interval"]) if row["arm"] != "draft" else "-", percent(row["any_wrong"]),
            )
            for row in result["rows"]
        ],
    )  # fmt: skip


def figure(result: dict):
    """A dot a family and arm, the paper's three values as marks at the right."""
    rows = result["rows"]
    mean = {arm: sum(row["accuracy"] for row in rows if row["arm"] == arm) / len(FAMILIES) for arm in ARMS}
    title = (
        f"A judge that never saw the family: {percent(mean['without'])} % right on average, "
        f"trained on all {percent(mean['all'])} %,\ntarget {percent(mean['target'])} %, draft alone "
        f"{percent(mean['draft'])} %"
    )
    fig, ax = plots.figure(title, "family held out", "answers right, %", (11, 4.8))
    for shift, (arm, name) in enumerate(ARMS.items()):
        for x, family in enumerate(FAMILIES):
            row = next(r for r in rows if r["arm"] == arm and r["family"] == family)
            at, y = x + 0.2 * (shift - 1.5), 100 * row["accuracy"]
            off = [[abs(100 * bound - y)] for bound in row["accuracy_interval"]]
            label = name if x == 0 else None
            ax.errorbar(at, y, off, color=SHADES[arm], marker="os^v"[shift], ms=8, capsize=3, ls="", label=label)
        if arm in PAPER:
            paper = claim(PAPER[arm])
            ax.plot(len(FAMILIES), paper.value, "D", color=COLOURS["paper"], mfc=SHADES[arm], ms=10, ls="")
            ax.annotate(f"{paper.value:g}", (len(FAMILIES), paper.value), (8, -4), textcoords="offset points")
    ax.set_xticks(range(len(FAMILIES) + 1), [*FAMILIES, "paper [S],\nHumanEval"])
    ax.set(xlim=(-0.6, len(FAMILIES) + 0.5))
    ax.legend(
        loc="upper left", bbox_to_anchor=(1.01, 1), fontsize=9, title="lines: 95 % Wilson intervals", title_fontsize=9
    )
    return fig
