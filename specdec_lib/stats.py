"""Intervals for measured shares.

Follows Wilson 1927.
Left out: any test of a hypothesis.
"""

import math

Z95 = 1.959963984540054


def share_interval(successes: int, n: int) -> tuple[float, float] | None:
    """95 % Wilson interval of a share; None for no trials."""
    if n == 0:
        return None
    p, z2 = successes / n, Z95**2
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)
