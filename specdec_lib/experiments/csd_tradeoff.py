"""CSD beside its rivals: what each keeps and what its answers are worth, as its knob moves.

Follows Calibrated Speculative Decoding (Zhou et al. 2026, arXiv 2604.13634) in whom it compares: lossy rules at fixed
thresholds, FLy, reflective verification. The judge needs labels, CSD's memory only unlabelled problems. Read
tradeoff.py first.
Left out: speed, and the choice of a knob.
"""

from specdec_lib.experiments import tradeoff
from specdec_lib.experiments.base import GAMMA, Lab, label_of, percent
from specdec_lib.judge.tune import DELTAS

WHAT = "kept against accuracy for csd, its parts and its rivals as their knobs move"
PROBLEMS = 100
# from the strictest to the laxest; csd's on the pair's own memory
LADDERS: dict[str, list[dict[str, float]]] = {
    "csd": [{"tau": tau} for tau in (0.3, 0.1, 0.01, 0.001)],
    "csd-rate": [{"tau": tau} for tau in (0.3, 0.1, 0.01, 0.001, 0.0)],
    "csd-memory": [{"lambda": count} for count in (20.0, 6.0, 2.0)],
    "csd-gate": [{"tau": tau} for tau in (0.6, 0.3, 0.1, 0.03, 0.01, 0.003)],
    "judge": [{"delta": delta} for delta in sorted(DELTAS, reverse=True)[::2]],
    "fly": [{"threshold": t, "window": w} for t, w in ((0.3, 6), (0.03, 3), (0.0, 1))],
    "fly-code": [{"threshold": t, "window": w} for t, w in ((0.3, 6), (0.03, 3), (0.0, 1))],
    "reflective": [{"weight": w} for w in (0.1, 0.3, 0.5)],
    "ensemble": [{"weight": w} for w in (0.8, 0.5, 0.3, 0.1)],
}
LOWEST = 60  # % right, where the picture ends
MARKS = dict(zip(LADDERS, "oshDv^X<P", strict=True))


def run(lab: Lab) -> dict:
    """rows and left_out, as tradeoff.run."""
    return tradeoff.measured(lab, LADDERS)


text = tradeoff.text


def figure(result: dict):
    """A line a rule, as in tradeoff.py, without what is right less often than LOWEST; a note names that."""
    fig = tradeoff.curves(result, MARKS, "csd")
    (ax,) = fig.axes
    ax.set(ylim=(LOWEST, 101))
    below = [row for row in result["rows"] if 100 * row["accuracy"] < LOWEST]
    said = [f"{label_of(row)}: {percent(row['accuracy'])} %, kept {row['kept']:.2f}" for row in below]
    ax.text(
        GAMMA + 0.1, LOWEST + 0.5, "\n".join(["below:", *said] if said else []), ha="right", va="bottom", fontsize=9
    )
    return fig
