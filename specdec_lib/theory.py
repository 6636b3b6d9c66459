"""What the formulas predict: emitted tokens, speed-up, operations, the best draft length, where it breaks even.

Follows Leviathan et al. 2023 (arXiv 2211.17192), sections 3.1 to 3.5; with measured times of a pass, our own.
Left out: batches and memory (roofline.py), and measuring alpha, c and T(k) (trace.py, evaluate.py, machine.py).

alpha: acceptance rate. gamma: draft length. c: seconds of a draft step over seconds of a plain target step.
acceptance: for positions 1, 2, ... of a chain, the rate accepted among those tested there; [alpha] * gamma if every
token is accepted independently with the same chance. times: {k: seconds of one target pass over k tokens}, T(k).
"""

from collections.abc import Mapping, Sequence

import numpy as np

LARGEST = 64  # the longest draft considered


# ---- tokens ----------------------------------------------------------------------------------------------------


def expected_emitted(alpha: float, gamma: int) -> float:
    """E[emitted] = (1 - alpha^(gamma + 1)) / (1 - alpha); right only if acceptances are independent (equation 1)."""
    _check(alpha=alpha, gamma=gamma)
    return float(gamma + 1) if alpha == 1 else (1 - alpha ** (gamma + 1)) / (1 - alpha)


def expected_emitted_by_position(acceptance: Sequence[float]) -> float:
    """1 + sum over i of P(the first i all accepted). Needs no independence."""
    return 1.0 + float(np.cumprod(_rates(acceptance)).sum())


def alpha_over_tested(acceptance: Sequence[float]) -> float:
    """accepted / tested of such rounds: what a count over tested tokens calls alpha. ValueError if nothing is tested.

    Put into the formula it gives too much where later positions are accepted more often than earlier ones (rounds
    that go well or badly as a whole), too little where they are accepted less often.
    """
    rates = _rates(acceptance)
    if not len(rates):
        raise ValueError("no position was tested; give the acceptance of at least one")
    reached = np.cumprod([1.0, *rates])  # reached[i]: chance that the first i are all accepted
    return float(reached[1:].sum() / reached[:-1].sum())


def alpha_for(emitted: float, gamma: int) -> float | None:
    """The alpha at which E[emitted] is `emitted`; None if none is (it lies in [1, gamma + 1])."""
    _check(gamma=gamma)
    if not 1 <= emitted <= gamma + 1:
        return None
    if emitted == 1:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(60):  # E[emitted] grows with alpha; as a sum it is exact near 1, where 1 - alpha is not
        middle = (low + high) / 2
        enough = sum(middle**i for i in range(gamma + 1)) >= emitted
        low, high = (low, middle) if enough else (middle, high)
    return high


# ---- speed, from alpha and c -----------------------------------------------------------------------------------


def speedup(alpha: float, gamma: int, c: float) -> float:
    """Speed-up over plain decoding (theorem 3.8), if a target pass over gamma + 1 tokens costs what one token costs."""
    _check(c=c)
    return expected_emitted(alpha, gamma) / (gamma * c + 1)


def best_gamma(alpha: float, c: float, largest: int = LARGEST) -> int:
    """The draft length up to `largest` with the highest predicted speed-up; 0 when no draft pays (alpha <= c)."""
    return max(range(largest + 1), key=lambda gamma: (speedup(alpha, gamma, c), -gamma))


def break_even_alpha(gamma: int, c: float) -> float | None:
    """The alpha above which drafting gamma tokens pays; None if it never does (c > 1). ValueError for gamma 0.

    It is c itself for gamma 1 and more for longer drafts: some draft length pays if and only if alpha > c.
    """
    _check(gamma=gamma, c=c)
    if gamma == 0:
        raise ValueError("gamma 0 drafts nothing and neither gains nor loses; give 1 or more")
    return alpha_for(1 + gamma * c, gamma)


def operations_factor(alpha: float, gamma: int, c_hat: float) -> float:
    """Operations over plain decoding's (theorem 3.11); c_hat: the draft's operations a token over the target's."""
    _check(c=c_hat)
    return (gamma * c_hat + gamma + 1) / expected_emitted(alpha, gamma)


# ---- speed, from measured times --------------------------------------------------------------------------------


def pass_time(times: Mapping[int, float], k: int) -> float:
    """T(k) in the unit of `times`, by linear interpolation. ValueError outside what was measured."""
    sizes = sorted(times)
    if not sizes or not sizes[0] <= k <= sizes[-1]:
        measured = f"{sizes[0]} to {sizes[-1]}" if sizes else "nothing"
        raise ValueError(f"the time of a pass over {k} tokens is not known: measured were {measured}")
    return float(np.interp(k, sizes, [times[size] for size in sizes]))


def round_time(gamma: int, times: Mapping[int, float], draft_s: float) -> float:
    """gamma D + T(gamma + 1): gamma draft steps and the pass that scores them, in the unit of `times`."""
    return gamma * draft_s + pass_time(times, gamma + 1)


def speedup_from_times(acceptance: Sequence[float], times: Mapping[int, float], draft_s: float) -> float:
    """E[emitted] T(1) / (gamma D + T(gamma + 1)), gamma being the number of positions in `acceptance`.

    draft_s: D, a draft step in the unit of `times`. ValueError if `times` does not reach gamma + 1.
    """
    gamma = len(acceptance)
    return expected_emitted_by_position(acceptance) * pass_time(times, 1) / round_time(gamma, times, draft_s)


def best_gamma_from_times(acceptance: Sequence[float], times: Mapping[int, float], draft_s: float) -> int:
    """The draft length with the highest speedup_from_times, among those that `acceptance` and `times` cover."""
    longest = min(len(acceptance), max(times, default=0) - 1)
    return max(
        range(longest + 1),
        key=lambda gamma: (speedup_from_times(acceptance[:gamma], times, draft_s), -gamma),
        default=0,
    )


def break_even_alpha_from_times(gamma: int, times: Mapping[int, float], draft_s: float) -> float | None:
    """The alpha at which drafting gamma tokens neither gains nor loses, if acceptances are independent.

    0 if the draft always pays, None if it never does.
    """
    needed = round_time(gamma, times, draft_s) / pass_time(times, 1)
    return alpha_for(max(1.0, needed), gamma)


def _rates(acceptance: Sequence[float]) -> np.ndarray:
    rates = np.asarray(acceptance, dtype=float)
    for rate in rates:
        _check(alpha=rate)
    return rates


def _check(alpha: float = 0.0, gamma: int = 0, c: float = 0.0) -> None:
    if not 0 <= alpha <= 1:
        raise ValueError(f"an acceptance rate lies in [0, 1]; got {alpha!r}")
    if isinstance(gamma, bool) or int(gamma) != gamma or gamma < 0:
        raise ValueError(f"the draft length gamma must be a whole number, 0 or more; got {gamma!r}")
    if not c >= 0:
        raise ValueError(f"the cost of a draft step must be 0 or more; got {c!r}")
