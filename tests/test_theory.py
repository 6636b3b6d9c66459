"""Formulas against worked figures, brute force, and simulated acceptances.
Follows Leviathan et al. 2023 (arXiv 2211.17192), sections 3.1 to 3.5.
Left out: what is measured (test_trace.py) and the papers' figures as data (test_claims.py).
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_lib.theory import (
    best_gamma,
    expected_emitted,
    expected_emitted_by_position,
    operations_factor,
    speedup,
)

# alpha: {c: (best gamma, speed-up)}
BEST = {
    0.6: {0.01: (7, 2.30), 0.05: (4, 1.92), 0.1: (3, 1.67), 0.2: (2, 1.40)},
    0.7: {0.01: (9, 2.97), 0.05: (6, 2.35), 0.1: (4, 1.98), 0.2: (3, 1.58)},
    0.8: {0.01: (14, 4.23), 0.05: (8, 3.09), 0.1: (6, 2.47), 0.2: (4, 1.87)},
    0.9: {0.01: (24, 7.49), 0.05: (13, 4.67), 0.1: (10, 3.43), 0.2: (7, 2.37)},
}
rates = st.floats(0, 1)


@pytest.mark.parametrize("alpha, c", [(alpha, c) for alpha in BEST for c in BEST[alpha]])
def test_the_best_draft_length_and_its_speed_up(alpha, c):
    gamma, factor = BEST[alpha][c]
    assert best_gamma(alpha, c) == gamma
    assert speedup(alpha, gamma, c) == pytest.approx(factor, abs=0.005)


def test_all_or_nothing_rounds_emit_three_where_the_formula_says_less():
    """Rounds that accept all or nothing with equal chance, gamma 4: truly 3.0 emitted, 1.94 by the formula."""
    assert expected_emitted_by_position([0.5, 1, 1, 1]) == 3.0
    assert expected_emitted(0.5, 4) == pytest.approx(1.94, abs=0.005)


def test_a_figure_often_misquoted():
    """alpha .8, gamma 5: 3.69 emitted; 3.36 is what gamma 4 gives."""
    assert expected_emitted(0.8, 5) == pytest.approx(3.69, abs=0.005)
    assert expected_emitted(0.8, 4) == pytest.approx(3.36, abs=0.005)


@given(alpha=rates, gamma=st.integers(0, 12))
def test_independent_acceptances_make_both_forms_one(alpha, gamma):
    assert expected_emitted(alpha, gamma) == pytest.approx(expected_emitted_by_position([alpha] * gamma))
    assert 1 <= expected_emitted(alpha, gamma) <= gamma + 1


@given(acceptance=st.lists(rates, max_size=6))
def test_emitted_by_position_is_the_mean_over_every_outcome(acceptance):
    total, reached = 0.0, 1.0
    for length, rate in enumerate(acceptance, start=1):
        total += length * reached * (1 - rate)
        reached *= rate
    assert expected_emitted_by_position(acceptance) == pytest.approx(total + (len(acceptance) + 1) * reached)


def test_simulated_rounds_have_the_expected_mean():
    rng = random.Random(0)

    def emitted():
        n = 0
        while n < 5 and rng.random() < 0.7:
            n += 1
        return n + 1

    mean = sum(emitted() for _ in range(40_000)) / 40_000
    assert mean == pytest.approx(expected_emitted(0.7, 5), abs=0.04)


@given(alpha=st.floats(0, 0.99), c=st.floats(0.01, 1))
def test_a_draft_pays_if_and_only_if_alpha_is_above_c(alpha, c):
    if abs(alpha - c) > 1e-9:
        assert (best_gamma(alpha, c) > 0) is (alpha > c)


@given(alpha=st.floats(0, 1), gamma=st.integers(0, 10), c=st.floats(0, 1))
def test_limits_of_speed_and_operations(alpha, gamma, c):
    assert speedup(alpha, 0, c) == 1.0
    assert speedup(alpha, gamma, 0) == expected_emitted(alpha, gamma)
    assert operations_factor(alpha, gamma, 0) >= 1 - 1e-12, "verification alone never saves operations"


def test_operations_by_hand():
    """alpha 1/2, gamma 1, a draft of half the target's operations: (.5 + 2) / 1.5."""
    assert operations_factor(0.5, 1, 0.5) == pytest.approx(2.5 / 1.5)
    assert operations_factor(1, 3, 0) == 1.0
