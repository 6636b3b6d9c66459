"""Drawn figures that explain an idea, on made-up numbers: rounds beside plain decoding, and what a cache saves.

Our own. Lessons 00 and 01 show them.
Left out: everything measured; such figures stand in the lessons, next to their numbers.
"""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from specdec_lib.colours import COLOURS

NOT_REACHED = "#CCCCCC"
LABELS = {
    "draft": "draft step",
    "accepted": "accepted",
    "recovered": "recovered, after a rejected token (x)",
    "bonus": "bonus",
    NOT_REACHED: "not reached",
}


def rounds_picture() -> Figure:
    """The same ten tokens by plain decoding and in three rounds of four drafted tokens; time runs to the right."""
    fig, ax = plt.subplots(figsize=(10, 3.6), layout="constrained")
    ax.set(xlim=(-0.1, 10), ylim=(-1.4, 3.4), title="One target pass checks a whole draft")
    ax.axis("off")
    ax.text(0, 3.0, "plain decoding: one target pass a token", fontsize=11)
    for i in range(10):
        _box(ax, i, 2.2, 0.95, "target", "target\npass")
        _box(ax, i + 0.31, 1.55, 0.33, "autoregressive")
    ax.text(0, 0.9, "rounds: four draft steps, one target pass, one verdict", fontsize=11)
    nothing = [NOT_REACHED] * 3
    verdicts = [
        ["accepted", "accepted", "accepted", "rejected", "recovered"],
        ["rejected", *nothing, "recovered"],
        ["accepted", "accepted", "accepted", "accepted", "bonus"],
    ]
    for left, verdict in zip((0, 2, 4), verdicts, strict=True):
        for i, kind in enumerate(verdict):
            if i < 4:
                _box(ax, left + 0.2 * i, 0.1, 0.18, "draft")
            _box(ax, left + 0.36 * i, -0.55, 0.33, kind, "x" if kind == "rejected" else "")
        _box(ax, left + 0.82, 0.1, 0.95, "target", "target\npass")
    ax.text(6.1, 0.1, "the same 10 tokens from 3 target passes", fontsize=11, va="center")
    handles = [Patch(color=COLOURS.get(kind, kind), label=label) for kind, label in LABELS.items()]
    ax.legend(handles=handles, loc="lower left", ncols=5, frameon=False, fontsize=10, bbox_to_anchor=(-0.01, -0.04))
    return fig


def cache_picture(prompt: int = 4, new: int = 6) -> Figure:
    """Positions computed in each step, without and with a cache."""
    fig, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    counts = []
    for ax, cached in zip(axes, (False, True), strict=True):
        computed = 0
        for step in range(new):
            length = prompt + step
            for position in range(length):
                fresh = not cached or step == 0 or position == length - 1
                computed += fresh
                face = COLOURS["target"] if fresh else "#DDE6EE"
                ax.add_patch(Rectangle((position + 0.05, step + 0.05), 0.9, 0.9, color=face, linewidth=0))
        counts.append(computed)
        ax.set(xlim=(0, prompt + new - 1), ylim=(new, 0), xlabel="position in the text", aspect="equal")
        ax.set(xticks=[i + 0.5 for i in range(prompt + new - 1)], xticklabels=range(1, prompt + new))
        ax.set(yticks=[i + 0.5 for i in range(new)], yticklabels=range(1, new + 1))
        ax.grid(False)
    axes[0].set(title=f"without a cache: {counts[0]} positions computed", ylabel="new token")
    axes[1].set(title=f"with a cache: {counts[1]} computed, the rest read")
    return fig


def _box(ax: Axes, x: float, y: float, width: float, kind: str, text: str = "") -> None:
    colour = COLOURS.get(kind, kind)
    empty = kind == "rejected"
    ax.add_patch(Rectangle((x, y), width, 0.55, facecolor="white" if empty else colour, edgecolor=colour))
    middle = (x + width / 2, y + 0.26)
    ax.text(*middle, text, ha="center", va="center", fontsize=9, color=colour if empty else "white")
