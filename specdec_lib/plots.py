"""The look of every figure: one style, one colour a method, and savable pictures.

Our own, on seaborn; the palette is in colours.py.
Left out: the figures themselves, which stand in the lessons or beside what they draw.
"""

import matplotlib.pyplot as plt
import seaborn as sns

from specdec_lib.colours import COLOURS

__all__ = ["COLOURS", "figure", "use_style"]


def use_style() -> None:
    """Set seaborn's style for a lesson: readable in a projector room, PNG pictures."""
    sns.set_theme(style="whitegrid", context="notebook", font_scale=1.05)
    plt.rcParams.update({"figure.dpi": 110, "savefig.dpi": 110, "figure.figsize": (8, 4), "axes.titleweight": "bold"})


def figure(title: str, xlabel: str, ylabel: str, size: tuple[float, float] = (8, 4)):
    """(figure, axes) with the claim as its title and units on the axes."""
    fig, ax = plt.subplots(figsize=size, layout="constrained")
    ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    return fig, ax
