"""The trade-off: what each lossy rule keeps and what its answers are worth, as its knob moves.

Our own picture; Judge Decoding (arXiv 2501.19309) compares a few of these rules at one point each. At temperature 0
cascade(a) and lossy(1 - a) are lenience(1 - a) (asserted in the tests): they are drawn once.
Left out: temperatures above 0, and the choice of a knob (specdec knobs, specdec judge).
"""

from specdec_lib import plots
from specdec_lib.drafters import NoDrafter
from specdec_lib.experiments.base import GAMMA, Lab, rules_table
from specdec_lib.knobs import LADDERS
from specdec_lib.methods import Method, build_method, method_label
from specdec_lib.plots import COLOURS
from specdec_lib.verifiers import LosslessRejection

WHAT = "kept against accuracy for every lossy rule as its knob moves"
PROBLEMS = 500
WHOLE = ("judge", "topk", "lenience")  # come first, with every knob: a run that is stopped has what matters most
ORDER = (*WHOLE, "typical", "autojudge", "fly", "fly-code", "kl", "reflective")
POINTS = 4  # knobs of each other rule
SLOW = {"reflective": 2}  # decoded text by text, since it branches: so many of its strictest knobs
SHOWN = {"lenience": "lenience (= cascade, lossy)", "csd-gate": "csd-gate (= lossy, lenience)"}
MARKS = dict(zip(ORDER, "osD^vPX<>", strict=True))


def run(lab: Lab) -> dict:
    """rows: the standard rule, the draft alone, then one a rule and knob, base.row_of's figures; gamma 8, greedy.

    left_out: rules that this pair cannot run, with the reason.
    """
    return measured(lab, {name: ladder(name) for name in ORDER})


def measured(lab: Lab, ladders: dict[str, list[dict[str, float]]]) -> dict:
    """What run gives, for these rules and their knobs, from the strictest to the laxest."""
    tasks, left_out = lab.problems(), {}
    rows = [lab.measure("greedy", tasks), draft_alone(lab, tasks)]
    for name, steps in ladders.items():
        try:
            methods = [build_method(method_label(name, {"gamma": GAMMA, **knobs}), lab.pair) for knobs in steps]
        except ValueError as error:
            left_out[name] = str(error)
            continue
        rows += [lab.measure(method, tasks) for method in methods]
    return {"rows": rows, "left_out": left_out}


def ladder(name: str) -> list[dict[str, float]]:
    """The knobs of a rule that are drawn, from the strictest to the laxest: those of specdec knobs, or some of them."""
    knobs = LADDERS[name][: SLOW.get(name)]
    if name in WHOLE or len(knobs) <= POINTS:
        return knobs
    return [knobs[round(i * (len(knobs) - 1) / (POINTS - 1))] for i in range(POINTS)]


def draft_alone(lab: Lab, tasks: list, key: str = "") -> dict:
    """The row of the draft's own greedy answers. key: as in Lab.measure."""
    alone = Method("autoregressive", {}, NoDrafter(), LosslessRejection())
    return lab.measure(alone, tasks, f"draft alone {key}".strip(), target=lab.pair.draft) | {"method": "draft alone"}


def text(result: dict) -> str:
    lines = [f"left out: {name} ({reason})" for name, reason in result["left_out"].items()]
    return "\n".join([rules_table(result["rows"]), *lines])


def figure(result: dict):
    return curves(result, MARKS, "judge")


def curves(result: dict, marks: dict[str, str], bold: str):
    """A line a rule from strict to lax: kept against accuracy, with both 95 % intervals. marks: of the rules, in their
    order; bold: the rule drawn thick.
    """
    standard, draft, *rows = result["rows"]
    fig, ax = plots.figure(_title(result), f"kept tokens a round (of {GAMMA} drafted)", "answers right, %", (10, 6))
    ax.axhspan(*(100 * bound for bound in standard["accuracy_interval"]), color="#999999", alpha=0.2, lw=0)
    ax.axhline(100 * draft["accuracy"], color=COLOURS["draft"], ls=":", label="draft alone")
    for name, mark in marks.items():
        mine = [row for row in rows if row["method"] == name]
        if not mine:
            continue
        off = {
            axis: [[abs(r[f"{figure}_interval"][side] - r[figure]) * scale for r in mine] for side in (0, 1)]
            for axis, figure, scale in (("x", "kept", 1), ("y", "accuracy", 100))
        }
        ax.errorbar(
            [r["kept"] for r in mine], [100 * r["accuracy"] for r in mine], off["y"], off["x"], color=COLOURS[name],
            marker=mark, ms=7, lw=2.5 if name == bold else 1.3, elinewidth=0.8, label=SHOWN.get(name, name),
            zorder=3 if name == bold else 2,
        )  # fmt: skip
    ax.plot(standard["kept"], 100 * standard["accuracy"], "*", color="black", ms=16, label="standard", zorder=4)
    ax.set(xlim=(0, GAMMA + 0.2))
    ax.legend(fontsize=9, ncols=2, loc="lower left", title="bars: 95 %, Wilson and bootstrap", title_fontsize=9)
    return fig


def _title(result: dict) -> str:
    """How many problems, and how far chance alone reaches: the standard rule's and the draft's intervals."""
    standard, draft, *_ = result["rows"]
    low, high = (max(abs(bound - row["accuracy"]) for bound in row["accuracy_interval"]) for row in (standard, draft))
    return (
        f"{standard['n']} problems: accuracies are known to within {100 * low:.1f} points near the standard rule's,\n"
        f"{100 * high:.1f} near the draft's; smaller differences may be chance"
    )
