"""Intervals for measured shares and ratios.

Wilson 1927 for a share; the percentile bootstrap for a ratio of totals.
Left out: any test of a hypothesis.
"""

import math
import random
from collections.abc import Sequence

Z95 = 1.959963984540054


def share_interval(successes: int, n: int) -> tuple[float, float] | None:
    """95 % Wilson interval of a share; None for no trials."""
    if n == 0:
        return None
    p, z2 = successes / n, Z95**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def ratio_interval(
    pairs: Sequence[tuple[float, float]], seed: int = 0, draws: int = 2000
) -> tuple[float, float] | None:
    """95 % bootstrap interval of sum of firsts over sum of seconds, resampling the pairs; None for no pairs."""
    if not pairs:
        return None
    rng, ratios = random.Random(seed), []
    for _ in range(draws):
        sample = rng.choices(pairs, k=len(pairs))
        bottom = sum(b for _, b in sample)
        ratios.append(sum(a for a, _ in sample) / bottom if bottom else math.inf)
    ratios.sort()
    return ratios[int(0.025 * draws)], ratios[int(0.975 * draws) - 1]
