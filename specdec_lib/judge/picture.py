"""What a head's training depends on, and what its scores mean, in one picture: the ablations' AUC, and reliability.

Our own.
Left out: the figures themselves (ablate.py, train.py).
"""

from collections.abc import Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from specdec_lib.colours import COLOURS

NOT_DRAWN = ("writer left out",)  # ten rows which hardly differ


def draw_training(rows: Sequence[dict], figures: dict) -> Figure:
    """rows: ablate.run's; the first is the head as trained. figures: train.quality's of that head."""
    rows = [row for row in rows if row["changed"] not in NOT_DRAWN]
    fig, (left, right) = plt.subplots(1, 2, figsize=(13, 6.5), layout="constrained", width_ratios=(3, 2))
    for shift, (key, name, colour) in enumerate((("auc", "all tokens", "judge"), ("auc_digits", "digits", "draft"))):
        for y, row in enumerate(rows):
            if row[key] is None:
                continue
            off = [[abs(bound - row[key])] for bound in row[f"{key}_interval"]]
            label = name if y == 0 else None
            left.errorbar(
                row[key], y + 0.3 * shift, xerr=off, fmt="os"[shift], color=COLOURS[colour], ms=5, label=label
            )
    left.axvline(rows[0]["auc"], color=COLOURS["judge"], ls=":")
    left.set_yticks(
        range(len(rows)), [": ".join(filter(None, (row["changed"], row["to"]))) for row in rows], fontsize=9
    )
    left.invert_yaxis()
    left.set(
        xlabel="AUC on held-out labels", title=f"As trained: AUC {rows[0]['auc']:.3f}; one thing changed at a time"
    )
    left.legend(fontsize=9, loc="lower left", title="lines: 95 %, bootstrap over answers", title_fontsize=9)
    bins = figures["reliability"]
    right.plot([0, 1], [0, 1], ":", color=COLOURS["autoregressive"], label="a calibrated score")
    right.plot([b["score"] for b in bins], [b["right"] for b in bins], "o-", color=COLOURS["judge"], label="the head")
    for b in bins:
        at = (b["score"], b["right"])
        right.annotate(f"{b['n']:,}", at, (4, -12), textcoords="offset points", fontsize=8)
    error = figures["calibration_error"]
    right.set(
        xlabel="mean score of a bin", ylabel="share of its tokens that is right", ylim=(0, 1.04),
        title=f"The score is no chance of being right:\ncalibration error {error:.2f}",
    )  # fmt: skip
    right.legend(fontsize=9, loc="lower right", title="numbers: tokens in the bin", title_fontsize=9)
    return fig
