"""The claim in one table: on the same problems, what the judge keeps and loses beside rules that accept as much.

Follows Bachmann et al. 2025 (arXiv 2501.19309) in kind: the judge keeps about three times the standard rule's tokens
without loss, where top-K acceptance of the same length loses. Every knob was picked on validation problems
(data/pocket/knobs.toml); the differences are paired (stats.paired_interval). Beside them a control that knows the kind
of a token alone (judge/kind.py).
Left out: speed (specdec bench), and the whole curves (tradeoff.py).
"""

from collections.abc import Sequence

from specdec_lib import plots
from specdec_lib.drafters import ModelDrafter
from specdec_lib.experiments.base import GAMMA, Lab, beside, between, label_of, percent, table
from specdec_lib.judge.kind import Words
from specdec_lib.methods import Method
from specdec_lib.plots import COLOURS

WHAT = "the claim in one table: target, standard, judge, and top-K and lenience at the judge's acceptance, paired"
PROBLEMS = 2000
LONG = 25
RULES = ("greedy", "judge", "topk", "lenience", f"judge:gamma={LONG}")
TIMES, LOSS = 2.5, 0.01  # what the judge must keep over the standard rule, and may lose of accuracy
RIVALS = {"topk": 0.08, "lenience": 0.12}  # what the rivals lose at least


def run(lab: Lab) -> dict:
    """rows: one a rule, base.row_of's figures and beside's: accuracy_change over the target's own greedy answers, on
    the same problems, with its 95 % paired interval. claims: what was to be shown, and whether it was.
    """
    tasks = lab.problems()
    rows = [lab.measure(rule, tasks) for rule in RULES]
    words = Method(Words.name, {"gamma": GAMMA}, ModelDrafter(lab.pair.draft, GAMMA), Words(lab.pair))
    rows = [_target(rows[0]), *rows, lab.measure(words, tasks)]
    for row in rows:
        row |= beside(row, rows[0])
    return {"rows": rows, "claims": claims(rows)}


def _target(standard: dict) -> dict:
    """The target's own answers are the standard rule's, token for token: greedy speculation is lossless."""
    alone = {"method": "autoregressive", "settings": {}, "kept": 0.0, "kept_interval": (0.0, 0.0), "mat": 1.0}
    return standard | alone | {"rounds": standard["tokens"]}


def claims(rows: Sequence[dict]) -> list[dict]:
    """claim, figure, needed, and holds, read off the figures; sure: the interval is on the same side, too.

    For what is kept no interval of the ratio is made: sure compares the intervals' near ends.
    """
    _, standard, judge, *rivals = rows[:5]
    long = next(row for row in rows if row["settings"].get("gamma") == LONG and row["method"] == "judge")
    ratio = judge["kept"] / standard["kept"]
    least = judge["kept_interval"][0] / standard["kept_interval"][1]
    found = [claim(f"judge keeps at least {TIMES} times the standard rule's", ratio, ratio >= TIMES, least >= TIMES)]
    change, interval = judge["accuracy_change"], judge["accuracy_change_interval"]
    found.append(
        claim("judge loses at most 1 point", 100 * change, change >= -LOSS - 1e-9, interval[0] >= -LOSS)
    )  # fmt: skip
    for row in rivals:
        most, interval = -RIVALS[row["method"]], row["accuracy_change_interval"]
        found.append(
            claim(
                f"{row['method']} at the judge's acceptance loses at least {-100 * most:.0f} points",
                100 * row["accuracy_change"], row["accuracy_change"] <= most + 1e-9, interval[1] <= most,
            )
        )  # fmt: skip
    longer = long["kept"] / judge["kept"]
    found.append(
        claim(f"judge keeps more with {LONG} drafts (times)", longer, longer > 1,
               long["kept_interval"][0] > judge["kept_interval"][1])
    )  # fmt: skip
    return found


def claim(said: str, figure: float, holds: bool, sure: bool) -> dict:
    """sure: the interval is on the claim's side, too."""
    return {"claim": said, "figure": figure, "holds": bool(holds), "sure": bool(holds and sure)}


def text(result: dict) -> str:
    heads = ("rule", "kept", "95 % interval", "accuracy %", "change, points", "95 % paired interval", "any wrong %")
    lines = [
        (
            label_of(row), row["kept"], between(row["kept_interval"]), percent(row["accuracy"]),
            f"{100 * row['accuracy_change']:+.2f}", between(row["accuracy_change_interval"], 100),
            percent(row["any_wrong"]),
        )
        for row in result["rows"]
    ]  # fmt: skip
    return "\n".join([table(heads, lines), "", *as_lines(result["claims"])])


def as_lines(claims: Sequence[dict]) -> list[str]:
    """The claims as text."""
    return [
        f"{'holds' if c['holds'] else 'FAILS'}{' for sure' if c['sure'] else ''}: {c['claim']} ({c['figure']:.2f})"
        for c in claims
    ]


def figure(result: dict):
    """Points: kept against the change in accuracy over the target, with both intervals."""
    target, standard, judge, *_ = rows = result["rows"]
    title = (
        f"The judge keeps {judge['kept'] / standard['kept']:.1f} times the standard rule's tokens "
        f"at {100 * judge['accuracy_change']:+.2f} points of accuracy,\n"
        + ", ".join(f"{row['method']} {100 * row['accuracy_change']:+.2f}" for row in rows[3:5])
    )
    what = f"accuracy less the target's ({percent(target['accuracy'])} %), points"
    fig, ax = plots.figure(title, "kept tokens a round", what, (10, 5))
    for row in rows[1:]:
        long = row["settings"].get("gamma") == LONG
        off_y = [[100 * abs(bound - row["accuracy_change"])] for bound in row["accuracy_change_interval"]]
        off_x = [[abs(bound - row["kept"])] for bound in row["kept_interval"]]
        name = (
            "standard" if row["method"] == "greedy" else label_of(row).replace(f",gamma={LONG}", "").split(":gamma")[0]
        )
        ax.errorbar(
            row["kept"], 100 * row["accuracy_change"], off_y, off_x, marker="D" if long else "o", ms=9, capsize=4,
            color=COLOURS[row["method"]], label=f"{name}, {LONG if long else GAMMA} drafts", ls="",
        )  # fmt: skip
    ax.axhline(0, color=COLOURS["target"], lw=1)
    ax.set(xlim=(0, None))
    ax.legend(fontsize=9, loc="lower left", title="bars: 95 %, paired and bootstrap", title_fontsize=9)
    return fig
