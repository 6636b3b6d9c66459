"""Formulas against worked figures, brute force, and simulated acceptances.
Follows Leviathan et al. 2023 (arXiv 2211.17192), sections 3.1 to 3.5.
Left out: batches and memory (test_roofline.py), what is measured (test_trace.py), the papers' figures (test_claims.py).
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_lib.theory import (
    alpha_for,
    alpha_over_tested,
    best_gamma,
    best_gamma_from_times,
    break_even_alpha,
    break_even_alpha_from_times,
    expected_emitted,
    expected_emitted_by_position,
    operations_factor,
    pass_time,
    speedup,
    speedup_from_times,
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


def test_all_or_nothing_rounds_emit_three_where_the_formula_says_otherwise():
    """Rounds that accept all or nothing with equal chance, gamma 4: truly 3.0 emitted.

    The formula says 1.94 with the rate of the first position, and 3.36 with accepted over tested.
    """
    assert expected_emitted_by_position([0.5, 1, 1, 1]) == 3.0
    assert expected_emitted(0.5, 4) == pytest.approx(1.94, abs=0.005)
    assert alpha_over_tested([0.5, 1, 1, 1]) == pytest.approx(0.8)  # 2 accepted of 2.5 tested
    assert expected_emitted(0.8, 4) == pytest.approx(3.36, abs=0.005)


@given(acceptance=st.lists(rates, min_size=1, max_size=8).map(sorted), falling=st.booleans())
def test_the_formula_errs_upwards_where_acceptance_rises_with_position(acceptance, falling):
    acceptance = acceptance[::-1] if falling else acceptance
    error = expected_emitted(alpha_over_tested(acceptance), len(acceptance)) - expected_emitted_by_position(acceptance)
    assert error <= 1e-9 if falling else error >= -1e-9


@given(alpha=rates, gamma=st.integers(1, 8))
def test_equal_rates_are_what_is_counted_over_tested_tokens(alpha, gamma):
    assert alpha_over_tested([alpha] * gamma) == pytest.approx(alpha)


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


# ---- break-even ------------------------------------------------------------------------------------------------


@given(alpha=rates, gamma=st.integers(1, 20))
def test_alpha_for_inverts_the_emitted_tokens(alpha, gamma):
    emitted = expected_emitted(alpha, gamma)
    assert expected_emitted(alpha_for(emitted, gamma), gamma) == pytest.approx(emitted, abs=1e-9)
    assert alpha_for(gamma + 1.01, gamma) is None and alpha_for(0.99, gamma) is None


@given(gamma=st.integers(1, 20), c=st.floats(0, 1))
def test_at_the_break_even_the_speed_up_is_one(gamma, c):
    alpha = break_even_alpha(gamma, c)
    assert speedup(alpha, gamma, c) == pytest.approx(1, abs=1e-9)
    assert alpha >= c - 1e-9, "a draft that pays for some length has alpha > c"
    assert speedup(min(1, alpha + 0.01), gamma, c) >= 1


def test_break_even_by_hand():
    """One token pays from alpha = c; two from alpha + alpha^2 = 2 c; nothing pays if a draft step costs more."""
    assert break_even_alpha(1, 0.3) == pytest.approx(0.3)
    assert break_even_alpha(2, 0.375) == pytest.approx(0.5)
    assert break_even_alpha(3, 1) == pytest.approx(1)
    assert break_even_alpha(3, 0) == 0
    assert break_even_alpha(3, 1.01) is None
    with pytest.raises(ValueError, match="gamma 0"):
        break_even_alpha(0, 0.1)


# ---- measured times --------------------------------------------------------------------------------------------

TIMES = {1: 2.0, 2: 2.2, 4: 2.4, 8: 3.2, 16: 4.8}


def test_the_time_of_a_pass_is_read_between_what_was_measured():
    assert [pass_time(TIMES, k) for k in (1, 3, 6, 16)] == pytest.approx([2.0, 2.3, 2.8, 4.8])
    for k in (0, 17):
        with pytest.raises(ValueError, match=f"over {k} tokens is not known: measured were 1 to 16"):
            pass_time(TIMES, k)
    with pytest.raises(ValueError, match="measured were nothing"):
        pass_time({}, 1)


def test_the_predicted_speed_up_by_hand():
    """Two positions, .8 then .5: 1 + .8 + .4 emitted; 2 * 2.2 over 2 * .5 + 2.3."""
    assert speedup_from_times([0.8, 0.5], TIMES, 0.5) == pytest.approx(2.2 * 2 / (2 * 0.5 + 2.3))
    assert speedup_from_times([], TIMES, 0.5) == 1.0


@given(alpha=rates, gamma=st.integers(0, 12), c=st.floats(0, 1))
def test_flat_times_give_the_papers_formula(alpha, gamma, c):
    flat = {1: 0.04, 65: 0.04}
    assert speedup_from_times([alpha] * gamma, flat, c * 0.04) == pytest.approx(speedup(alpha, gamma, c))


@pytest.mark.parametrize("alpha, c", [(alpha, c) for alpha in BEST for c in BEST[alpha]])
def test_flat_times_give_the_papers_best_length(alpha, c):
    assert best_gamma_from_times([alpha] * 64, {1: 1.0, 65: 1.0}, c) == BEST[alpha][c][0]


def test_a_dearer_pass_shortens_the_best_draft():
    """It is searched among what is known: gamma + 1 up to the longest pass, gamma up to the positions given."""
    flat = best_gamma_from_times([0.8] * 15, {1: 2.0, 16: 2.0}, 0.2)
    steep = best_gamma_from_times([0.8] * 15, TIMES, 0.2)
    assert 0 < steep < flat
    assert best_gamma_from_times([1.0] * 64, TIMES, 0.1) == 15
    assert best_gamma_from_times([1.0] * 3, TIMES, 0.1) == 3
    assert best_gamma_from_times([0.1] * 8, TIMES, 0.5) == 0
    assert best_gamma_from_times([], TIMES, 0.5) == 0


def test_the_break_even_with_measured_times():
    alpha = break_even_alpha_from_times(3, TIMES, 0.2)
    assert speedup_from_times([alpha] * 3, TIMES, 0.2) == pytest.approx(1)
    assert break_even_alpha_from_times(3, TIMES, 5.0) is None
    assert break_even_alpha_from_times(3, {1: 2.0, 4: 1.0}, 0.0) == 0, "a pass that is cheaper always pays"


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: expected_emitted(1.2, 3), r"acceptance rate lies in \[0, 1\]; got 1.2"),
        (lambda: expected_emitted(0.5, -1), "whole number, 0 or more; got -1"),
        (lambda: speedup(0.5, 2.5, 0.1), "whole number, 0 or more; got 2.5"),
        (lambda: speedup(0.5, 2, -0.1), "cost of a draft step must be 0 or more; got -0.1"),
        (lambda: speedup(float("nan"), 2, 0.1), "got nan"),
        (lambda: expected_emitted_by_position([0.5, -0.1]), "got .*-0.1"),
        (lambda: alpha_over_tested([]), "no position was tested"),
    ],
)
def test_what_cannot_be_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
