"""Intervals for measured shares and ratios, and for the difference of two paired shares.

Follows Wilson 1927, Efron 1979, and Agresti and Min 2005 for the pairs.
Left out: any test of a hypothesis.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

Z95 = 1.959963984540054


def share_interval(successes: int, n: int) -> tuple[float, float] | None:
    """95 % Wilson interval of a share; None for no trials."""
    if n == 0:
        return None
    p, z2 = successes / n, Z95**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def paired_interval(mine: Sequence[bool], theirs: Sequence[bool]) -> tuple[float, float]:
    """95 % interval of mean(mine) - mean(theirs), two outcomes of each item, by Agresti and Min's adjusted Wald form.

    Half an item is added to each of the four cells (both, mine alone, theirs alone, neither), so that the interval has
    a width even where the two never differ. What both get right or wrong counts through n alone.
    ValueError for lists of different lengths, or empty ones.
    """
    if len(mine) != len(theirs) or not len(mine):
        raise ValueError(f"outcomes come in pairs, one or more; got {len(mine)} and {len(theirs)}")
    gained = 0.5 + sum(bool(a) and not b for a, b in zip(mine, theirs, strict=True))
    lost = 0.5 + sum(bool(b) and not a for a, b in zip(mine, theirs, strict=True))
    n = len(mine) + 2
    change = (gained - lost) / n
    half = Z95 * math.sqrt(gained + lost - (gained - lost) ** 2 / n) / n
    return max(-1.0, change - half), min(1.0, change + half)


def ratio_interval(
    above: Sequence[float], below: Sequence[float], seed: int = 0, resamples: int = 2000
) -> tuple[float, float]:
    """95 % percentile bootstrap of sum(above) / sum(below), whose items are paired and drawn together.

    ValueError for lists of different lengths, or for fewer than two items.
    """
    if len(above) != len(below) or len(above) < 2:
        raise ValueError(f"an interval needs two or more pairs; got {len(above)} and {len(below)} numbers")
    return totals_interval(np.column_stack([above, below]), lambda a, b: a / b, seed, resamples)


def totals_interval(
    items: np.ndarray, figure: Callable[..., np.ndarray], seed: int = 0, resamples: int = 2000
) -> tuple[float, float]:
    """95 % percentile bootstrap of figure(*totals), the totals of items (n, columns) being those of its columns."""
    drawn = np.random.default_rng(seed).integers(len(items), size=(resamples, len(items)))
    low, high = np.quantile(figure(*np.asarray(items, float)[drawn].sum(axis=1).T), (0.025, 0.975))
    return float(low), float(high)
