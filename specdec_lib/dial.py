"""The speed dial: what alpha, gamma, c, the cost of a pass and a batch make of speculation, as numbers and a picture.

Follows Leviathan et al. 2023 (arXiv 2211.17192), section 3.3, through theory.py, with T(k) in place of T(1).
Left out: controls (widgets.py), and acceptances that depend on each other: every token is accepted with chance alpha.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from matplotlib.figure import Figure

from specdec_lib.colours import COLOURS
from specdec_lib.plots import figure
from specdec_lib.theory import (
    LARGEST,
    best_gamma_from_times,
    break_even_alpha_from_times,
    expected_emitted,
    pass_time,
    speedup,
    speedup_from_times,
)

DRAWN = 24  # the longest draft in the picture, unless gamma or the best one is longer


@dataclass(frozen=True)
class Reading:
    """Where the dial stands and what it says.

    emitted: E[emitted] a round. speedups: over plain decoding in the same batch, for gamma 0, 1, 2, ... as far as the
    passes are known. best_gamma: the draft length of the highest one; 0 if no draft pays. break_even_alpha: above it
    this gamma pays; None if it never does.
    """

    alpha: float
    gamma: int
    c: float
    batch: int
    emitted: float
    speedups: tuple[float, ...]
    best_gamma: int
    break_even_alpha: float | None

    @property
    def speedup(self) -> float:
        return self.speedups[self.gamma]

    @property
    def best_speedup(self) -> float:
        return self.speedups[self.best_gamma]


def read_dial(alpha: float, gamma: int, c: float, times: Mapping[int, float] | None = None, batch: int = 1) -> Reading:
    """times: {k: time of a target pass over k tokens}, any unit, linear between; None: every pass costs the same.

    A batch's plain step is a pass over `batch` tokens, its round a pass over batch * (gamma + 1); a draft step costs
    c plain steps of the same batch. ValueError for a rate outside [0, 1], a batch below 1, or a pass beyond `times`.
    """
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise ValueError(f"a batch is a whole number of texts, 1 or more; got {batch!r}")
    if times is None:
        times = {1: 1.0, batch * (LARGEST + 1): 1.0}
    emitted = expected_emitted(alpha, gamma)
    longest = min(LARGEST, max(times) // batch - 1)
    if not 0 <= gamma <= longest:
        raise ValueError(
            f"a round of gamma {gamma} in a batch of {batch} takes a pass over {batch * (gamma + 1)} tokens; "
            f"passes are known up to {max(times)} tokens: lower gamma or the batch"
        )
    rounds = {k: pass_time(times, batch * k) for k in range(1, longest + 2)}  # k tokens of each text
    draft_step = c * rounds[1]
    acceptance = [alpha] * longest
    return Reading(
        alpha, gamma, c, batch, emitted,
        speedups=tuple(speedup_from_times(acceptance[:g], rounds, draft_step) for g in range(longest + 1)),
        best_gamma=best_gamma_from_times(acceptance, rounds, draft_step),
        break_even_alpha=break_even_alpha_from_times(gamma, rounds, draft_step),
    )  # fmt: skip


def draw_dial(reading: Reading) -> Figure:
    """Speed-up against draft length: the dial's curve with gamma and the best gamma on it, and the simple formula."""
    r = reading
    lengths = range(min(len(r.speedups), max(DRAWN, r.gamma, r.best_gamma) + 1))
    fig, ax = figure(
        f"Speed-up {r.speedup:.2f} at gamma {r.gamma}; at best {r.best_speedup:.2f}, at gamma {r.best_gamma}",
        "draft length gamma",
        "speed-up over plain decoding",
    )
    formula = [speedup(r.alpha, gamma, r.c) for gamma in lengths]
    ax.plot(lengths, formula, "--", color=COLOURS["paper"], zorder=3, label="formula: every pass costs the same")
    ax.plot(lengths, r.speedups[: len(lengths)], color=COLOURS["target"], label="with this T(k) and batch")
    ax.plot(r.best_gamma, r.best_speedup, "D", color=COLOURS["accepted"], markersize=9, label="best gamma")
    ax.plot(r.gamma, r.speedup, "o", color=COLOURS["draft"], markersize=9, label="the dial's gamma")
    ax.axhline(1, color=COLOURS["autoregressive"], linestyle=":", label="plain decoding")
    ax.set(ylim=(0, None))
    ax.legend(fontsize=9)
    return fig


def dial_line(reading: Reading) -> str:
    """The figures under the picture, as one line of text."""
    r = reading
    if r.break_even_alpha is None:
        pays = f"gamma {r.gamma} never pays"
    else:
        pays = f"gamma {r.gamma} pays above alpha {r.break_even_alpha:.2f}"
    best = f"best gamma {r.best_gamma}: {r.best_speedup:.2f}" if r.best_gamma else "no draft length pays"
    return f"{r.emitted:.2f} tokens a round expected; speed-up {r.speedup:.2f}; {best}; {pays}"
