"""What the formulas predict: emitted tokens, speed-up, operations, the best draft length.

Follows Leviathan et al. 2023 (arXiv 2211.17192), sections 3.1 to 3.5. alpha: acceptance rate; gamma: draft length;
c: seconds of a draft step over seconds of a target step.
Left out: measuring alpha and c (trace.py, evaluate.py).
"""

from collections.abc import Sequence


def expected_emitted(alpha: float, gamma: int) -> float:
    """E[emitted] = (1 - alpha^(gamma + 1)) / (1 - alpha); right only if acceptances are independent (equation 1)."""
    return float(gamma + 1) if alpha == 1 else (1 - alpha ** (gamma + 1)) / (1 - alpha)


def expected_emitted_by_position(acceptance: Sequence[float]) -> float:
    """1 + sum over i of P(the first i all accepted), from the acceptance at each position given the ones before.

    Needs no independence.
    """
    total = running = 1.0
    for rate in acceptance:
        running *= rate
        total += running
    return total


def speedup(alpha: float, gamma: int, c: float) -> float:
    """Speed-up over plain decoding (theorem 3.8), if a target pass over gamma + 1 tokens costs what one token costs."""
    return expected_emitted(alpha, gamma) / (gamma * c + 1)


def operations_factor(alpha: float, gamma: int, c_hat: float) -> float:
    """Operations over plain decoding's (theorem 3.11); c_hat: the draft's operations a token over the target's."""
    return (gamma * c_hat + gamma + 1) / expected_emitted(alpha, gamma)


def best_gamma(alpha: float, c: float, largest: int = 64) -> int:
    """The draft length with the highest predicted speed-up; 0 when no draft pays (alpha <= c)."""
    return max(range(largest + 1), key=lambda gamma: (speedup(alpha, gamma, c), -gamma))
