"""Calibrated in one family of problems, used in another: what a memory is worth elsewhere.

Our own.
Left out: other models; a memory is of one pair and one tokenizer.
"""

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns

from specdec_lib.experiments.base import Lab, percent, table
from specdec_lib.experiments.memories import memory_after, over, rule_on
from specdec_lib.pocket.world import FAMILIES

WHAT = "csd calibrated in one problem family and used in another: kept and accuracy, 5 by 5"
PROBLEMS = 40  # of each family
LENGTH = 100  # calibration problems of a family; of all families in the row "all"
ALL = "all"


def run(lab: Lab) -> dict:
    """rows: greedy speculation in each family (learnt ""), then csd with the memory of each family, and of all, in each
    family: base.row_of's and memories.over's figures, learnt, used. n is the number of problems of each family.
    """
    tasks = {family: lab.problems((family,)) for family in FAMILIES}
    plain = {family: lab.measure("greedy", tasks[family], f"in {family}") for family in FAMILIES}
    rows = [row | {"learnt": "", "used": family} for family, row in plain.items()]
    for learnt in (*FAMILIES, ALL):
        method = rule_on(lab.pair, memory_after(lab, LENGTH, FAMILIES if learnt == ALL else (learnt,)))
        for family in FAMILIES:
            row = lab.measure(method, tasks[family], f"of {learnt} in {family}")
            rows.append(over(row, plain[family]) | {"learnt": learnt, "used": family})
    return {"rows": rows, "texts": LENGTH}


def grid(result: dict, what: str) -> np.ndarray:
    """(learnt, used) of one figure: the families in their order, then the memory of all."""
    found = {(row["learnt"], row["used"]): row.get(what) for row in result["rows"]}
    return np.array([[found[learnt, used] for used in FAMILIES] for learnt in (*FAMILIES, ALL)])


def text(result: dict) -> str:
    plain = {row["used"]: row for row in result["rows"] if not row["learnt"]}
    lines = [("greedy", *(f"{plain[f]['kept']:.2f} {percent(plain[f]['accuracy'])}" for f in FAMILIES))]
    lines += [
        (learnt, *(f"{k:.2f} {percent(a)}" for k, a in zip(kept, right, strict=True)))
        for learnt, kept, right in zip(
            (*FAMILIES, ALL), grid(result, "kept"), grid(result, "accuracy"), strict=True
        )
    ]  # fmt: skip
    head = f"csd's memory of {result['texts']} problems of a family (down), used in another (across): kept, accuracy %"
    return "\n".join([head, table(("learnt in", *FAMILIES), lines)])


def figure(result: dict):
    """Two heat maps: tokens kept over greedy speculation's in the same family, and the change in accuracy."""
    ratios, changes = grid(result, "kept_ratio"), 100 * grid(result, "accuracy_change")
    n = len(FAMILIES)
    own, other = np.diag(ratios[:n]).mean(), ratios[:n][~np.eye(n, dtype=bool)].mean()
    problems = result["rows"][0]["n"]
    fig, axes = plt.subplots(1, 2, figsize=(11.5, 5), layout="constrained")
    fig.suptitle(
        f"csd keeps {own:.2f} times greedy speculation's tokens with a memory of the same family,\n"
        f"{other:.2f} times with another's (means; memories of {result['texts']} problems)",
        fontweight="bold",
    )
    names = {"xticklabels": FAMILIES, "yticklabels": [*FAMILIES, ALL]}
    sns.heatmap(ratios, ax=axes[0], annot=True, fmt=".2f", cmap="viridis", **names)
    sns.heatmap(changes, ax=axes[1], annot=True, fmt="+.1f", cmap="RdBu", vmin=-10, vmax=10, **names)
    change = f"change in accuracy, points\n({problems} problems: one is {100 / problems:.1f})"
    for ax, what in zip(axes, ("kept over greedy speculation's", change), strict=True):
        ax.set(title=what, xlabel="used in", ylabel="calibrated in")
    return fig
