"""Draft and target swapped: the big model drafts for the small one, by the standard rule.

Follows Bachmann et al. 2025 (arXiv 2501.19309), known to us from summaries [S]: 6.6 kept with 8B as the draft of 405B,
6.3 with 405B as the draft of 8B. So a far better draft is kept hardly longer, or less: the rule asks for agreement.
Left out: any speed (drafting with the big model cannot pay).
"""

from specdec_lib import plots
from specdec_lib.claims import claim
from specdec_lib.drafters import ModelDrafter
from specdec_lib.experiments.base import GAMMA, Lab, between, percent, table
from specdec_lib.methods import Method
from specdec_lib.plots import COLOURS
from specdec_lib.verifiers import GreedyMatch

WHAT = "draft and target swapped: does a better draft keep more under the standard rule?"
PROBLEMS = 200
WAYS = {"forward": "draft drafts for target", "swapped": "target drafts for draft"}
PAPER = {"forward": "judge-swap-forward", "swapped": "judge-swap-back"}


def run(lab: Lab) -> dict:
    """rows: one a way round, base.row_of's figures with `way` and `drafted_by`; accuracy is that of the model served.

    Greedy, gamma 8, the standard rule; the text is that of the model that verifies.
    """
    models = {"forward": (lab.pair.draft, lab.pair.target), "swapped": (lab.pair.target, lab.pair.draft)}
    tasks, rows = lab.problems(), []
    for way, (draft, target) in models.items():
        method = Method("greedy", {"gamma": GAMMA}, ModelDrafter(draft, GAMMA), GreedyMatch())
        rows.append({"way": way} | lab.measure(method, tasks, way, target=target))
    return {"rows": rows}


def text(result: dict) -> str:
    heads = ("which drafts", "kept", "95 % interval", "accuracy %", "paper (gamma and models differ)")
    return table(
        heads,
        [
            (
                WAYS[row["way"]], row["kept"], between(row["kept_interval"]), percent(row["accuracy"]),
                f"{claim(PAPER[row['way']]).value:g} [{claim(PAPER[row['way']]).grade}]",
            )
            for row in result["rows"]
        ],
    )  # fmt: skip


def figure(result: dict):
    """Kept both ways as bars with intervals, the paper's values as marks."""
    rows = result["rows"]
    kept = [row["kept"] for row in rows]
    title = f"Swapping draft and target: {kept[0]:.2f} kept becomes {kept[1]:.2f}"
    fig, ax = plots.figure(title, "", f"kept tokens a round (of {GAMMA} drafted)")
    for x, row in enumerate(rows):
        low, high = row["kept_interval"]
        ax.bar(x, row["kept"], width=0.5, color=COLOURS["greedy"])
        ax.errorbar(x, row["kept"], [[row["kept"] - low], [high - row["kept"]]], color="black", capsize=5, lw=2)
        ax.annotate(f"{row['kept']:.2f}", (x, high), (0, 4), textcoords="offset points", ha="center")
        label = "paper [S], 8B and 405B" if x == 0 else None
        ax.plot(x, claim(PAPER[row["way"]]).value, "D", color=COLOURS["paper"], markersize=9, label=label)
    ax.set_xticks(
        range(len(rows)), [f"{WAYS[row['way']]}\n(answers {percent(row['accuracy'])} % right)" for row in rows]
    )
    ax.set(ylim=(0, GAMMA), xlim=(-0.6, len(rows) - 0.4))
    ax.plot([], [], color="black", lw=2, label="95 % interval, bootstrap over problems")
    ax.legend(loc="upper right", fontsize=9)
    return fig
