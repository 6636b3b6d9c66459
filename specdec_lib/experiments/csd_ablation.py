"""CSD's two parts, each alone, both, and neither: what they keep and what their answers are worth.

Follows Calibrated Speculative Decoding (Zhou et al. 2026, arXiv 2604.13634) in kind: its ablation on MATH500 and
HumanEval. The memory is the pair's own (a short calibration); csd-rate, ours, stands beside with knobs of its own.
Left out: the knobs (csd_sweep.py), and the memory's length (calibration.py).
"""

from collections.abc import Sequence

from specdec_lib import plots
from specdec_lib.experiments.base import GAMMA, Lab, beside, between, label_of, percent, table
from specdec_lib.experiments.memories import over
from specdec_lib.experiments.paired import as_lines, claim
from specdec_lib.methods import method_label, parse_method, tuned_knobs
from specdec_lib.plots import COLOURS

WHAT = "CSD's memory and gate: each alone, both, neither; change in accuracy paired"
PROBLEMS = 500
PARTS = ("neither", "memory", "gate", "both", "rate, own knobs")
TIMES, RATE_TIMES, LOSS = 1.4, 2.5, 0.01  # what csd and csd-rate must keep over greedy speculation, and may lose


def run(lab: Lab) -> dict:
    """rows: base.row_of's figures and parts, and over greedy speculation, whose text is the target's own, kept_ratio
    and accuracy_change with its paired interval. claims: what was to be shown, and whether it was (paired.py).
    """
    tasks = lab.problems()
    rows = [
        lab.measure(rule, tasks) | {"parts": parts} for rule, parts in zip(rules(lab.pair.name), PARTS, strict=True)
    ]
    rows = [over(row, rows[0]) for row in rows]
    return {"rows": rows, "claims": claims(rows)}


def rules(pair: str) -> list[str]:
    """Neither, the memory, the gate, both: with csd's own lambda and tau on this pair; csd-rate with its own."""
    _, knobs = parse_method("csd", tuned=tuned_knobs(pair))
    count, tau = ({name: knobs[name]} for name in ("lambda", "tau"))
    alone = [method_label("csd-memory", count), method_label("csd-gate", tau)]
    return ["greedy", *alone, method_label("csd", count | tau), "csd-rate"]


def claims(rows: Sequence[dict]) -> list[dict]:
    """Read off the rows: kept ratios (sure: by the intervals' near ends), losses, and each part alone.

    A part alone is worse for sure if the paired interval of its accuracy over both parts' lies below zero, or if the
    intervals of what is kept lie apart.
    """
    plain, memory, gate, both, rated = rows
    found = []
    for row, times in ((both, TIMES), (rated, RATE_TIMES)):
        least = row["kept_interval"][0] / plain["kept_interval"][1]
        change, low = row["accuracy_change"], row["accuracy_change_interval"][0]
        name = row["method"]
        found += [
            claim(f"{name} keeps at least {times} times", row["kept_ratio"], row["kept_ratio"] >= times,
                  least >= times),
            claim(f"{name} loses at most 1 point", 100 * change, change >= -LOSS - 1e-9, low >= -LOSS),
        ]  # fmt: skip
    for row in (memory, gate):
        change = beside(row, both)
        less_right, interval = change["accuracy_change"], change["accuracy_change_interval"]
        sure = interval[1] < 0 or row["kept_interval"][1] < both["kept_interval"][0]
        what = f"{row['method']} alone keeps less or is less often right (points of accuracy)"
        found.append(claim(what, 100 * less_right, less_right < 0 or row["kept"] < both["kept"], sure))
    return found


def text(result: dict) -> str:
    heads = (
        "parts", "rule", "kept", "95 % interval", "x neither", "accuracy %", "change, points", "95 % paired", "wrong %",
    )  # fmt: skip
    lines = [
        (
            row["parts"], label_of(row), row["kept"], between(row["kept_interval"]), row["kept_ratio"],
            percent(row["accuracy"]), f"{100 * row['accuracy_change']:+.2f}",
            between(row["accuracy_change_interval"], 100), percent(row["any_wrong"]),
        )
        for row in result["rows"]
    ]  # fmt: skip
    return "\n".join([table(heads, lines), "", *as_lines(result["claims"])])


def figure(result: dict):
    """A point a rule: kept against the change in accuracy, with both intervals."""
    plain, memory, gate, both, _ = rows = result["rows"]
    title = (
        f"Memory and gate keep {both['kept_ratio']:.1f} times greedy speculation's tokens at "
        f"{100 * both['accuracy_change']:+.2f} points;\n"
        f"the memory alone {memory['kept_ratio']:.1f} times at {100 * memory['accuracy_change']:+.2f}, "
        f"the gate alone {gate['kept_ratio']:.1f} times at {100 * gate['accuracy_change']:+.2f}"
    )
    what = f"accuracy less the target's ({percent(plain['accuracy'])} %), points"
    fig, ax = plots.figure(title, f"kept tokens a round (of {GAMMA} drafted)", what, (9, 5))
    for row, mark in zip(rows, "os^DP", strict=True):
        off_y = [[100 * abs(bound - row["accuracy_change"])] for bound in row["accuracy_change_interval"]]
        off_x = [[abs(bound - row["kept"])] for bound in row["kept_interval"]]
        ax.errorbar(
            row["kept"], 100 * row["accuracy_change"], off_y, off_x, marker=mark, ms=9, capsize=4, ls="",
            color=COLOURS[row["method"]], alpha=0.8, label=f"{row['parts']} ({row['method']})",
        )  # fmt: skip
    ax.axhline(0, color=COLOURS["target"], lw=1)
    ax.set(xlim=(0, GAMMA))
    ax.legend(fontsize=9, title="bars: 95 %, paired and bootstrap", title_fontsize=9)
    return fig
