"""CSD's two knobs on one memory: kept and accuracy over lambda and tau.

Our own; the paper (arXiv 2604.13634, from digests) names lambda 6 and tau .01.
Left out: the memory's length (calibration.py), and picking a knob, which test problems must not do.
"""

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns

from specdec_lib.experiments.base import Lab, percent, table
from specdec_lib.experiments.memories import memory_after, over, rule_on

WHAT = "csd over lambda and tau, one memory: kept and accuracy as heat maps"
PROBLEMS = 100
LENGTH = 400  # calibration problems
LAMBDAS = (0, 2, 6, 20, 60)
TAUS = (0.3, 0.1, 0.01, 0.001, 0.0)


def run(lab: Lab) -> dict:
    """rows: greedy speculation, then one a lambda and tau; base.row_of's figures and memories.over's. texts: LENGTH."""
    tasks = lab.problems()
    plain = lab.measure("greedy", tasks)
    memory, rows = memory_after(lab, LENGTH), [plain]
    for count in LAMBDAS:
        for tau in TAUS:
            method = rule_on(lab.pair, memory, "csd", {"lambda": float(count), "tau": tau})
            rows.append(over(lab.measure(method, tasks, f"after {LENGTH}"), plain))
    return {"rows": rows, "texts": LENGTH}


def grid(result: dict, what: str) -> tuple[list[float], list[float], np.ndarray]:
    """Lambdas, taus and (lambdas, taus) of one figure of the rows."""
    rows = result["rows"][1:]
    counts, taus = (list(dict.fromkeys(row["settings"][knob] for row in rows)) for knob in ("lambda", "tau"))
    return counts, taus, np.array([row[what] for row in rows]).reshape(len(counts), len(taus))


def text(result: dict) -> str:
    plain = result["rows"][0]
    said = [
        f"greedy speculation keeps {plain['kept']:.2f}, {percent(plain['accuracy'])} % right; "
        f"memory of {result['texts']} problems; kept, and accuracy in %"
    ]
    counts, taus, kept = grid(result, "kept")
    _, _, right = grid(result, "accuracy")
    lines = [
        (f"{count:g}", *(f"{k:.2f} {percent(a)}" for k, a in zip(*pair, strict=True)))
        for count, *pair in zip(counts, kept, right, strict=True)
    ]
    return "\n".join([*said, table(("lambda", *(f"tau {tau:g}" for tau in taus)), lines)])


def figure(result: dict):
    """Two heat maps."""
    fig, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    plain = result["rows"][0]
    fig.suptitle(
        f"csd on a memory of {result['texts']} problems; greedy speculation keeps {plain['kept']:.2f}, "
        f"{percent(plain['accuracy'])} % right\n({plain['n']} problems: one is {100 / plain['n']:.1f} points)",
        fontweight="bold",
    )
    for ax, what, scale, name, digits in zip(
        axes, ("kept", "accuracy"), (1, 100), ("kept tokens a round", "answers right, %"), (".2f", ".1f"), strict=True
    ):
        counts, taus, values = grid(result, what)
        names = {"xticklabels": [f"{t:g}" for t in taus], "yticklabels": [f"{c:g}" for c in counts]}
        sns.heatmap(scale * values, ax=ax, annot=True, fmt=digits, cmap="viridis", **names)
        ax.set(title=name, xlabel="tau (0: no gate)", ylabel="lambda: count to exceed")
    return fig
