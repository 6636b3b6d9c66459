"""The look of every figure: one style, one colour a method, and savable pictures.

Our own, on seaborn; the palette is Okabe and Ito's, safe for colour-blind readers.
Left out: the figures themselves, which stand in the lessons or beside what they draw.
"""

import matplotlib.pyplot as plt
import seaborn as sns

COLOURS = {
    "target": "#0072B2",  # p
    "draft": "#E69F00",  # q
    "accepted": "#009E73",
    "rescued": "#CC79A7",
    "rejected": "#D55E00",
    "recovered": "#D55E00",
    "bonus": "#56B4E9",
    "autoregressive": "#666666",
    "greedy": "#56B4E9",
    "lossless": "#009E73",
    "lenience": "#CC79A7",
    "paper": "#000000",
}


def use_style() -> None:
    """Set seaborn's style for a lesson: readable in a projector room, PNG pictures."""
    sns.set_theme(style="whitegrid", context="notebook", font_scale=1.05)
    plt.rcParams.update({"figure.dpi": 110, "savefig.dpi": 110, "figure.figsize": (8, 4), "axes.titleweight": "bold"})


def figure(title: str, xlabel: str, ylabel: str, size: tuple[float, float] = (8, 4)):
    """(figure, axes) with the claim as its title and units on the axes."""
    fig, ax = plt.subplots(figsize=size, layout="constrained")
    ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    return fig, ax
