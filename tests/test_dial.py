"""The speed dial's numbers and picture: the formula where passes cost the same, hand-worked cases where they do not.
Follows Leviathan et al. 2023 (arXiv 2211.17192), theorem 3.8, and theory.py.
Left out: the controls (test_widgets.py) and the formulas themselves (test_theory.py).
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_lib.dial import dial_line, draw_dial, read_dial
from specdec_lib.roofline import roofline_times, speedup_of_batch
from specdec_lib.theory import best_gamma, break_even_alpha, expected_emitted, speedup

alphas = st.floats(0, 1)
costs = st.floats(0, 1)


@given(alpha=alphas, gamma=st.integers(1, 20), c=costs)
def test_where_every_pass_costs_the_same_the_dial_is_the_formula(alpha, gamma, c):
    reading = read_dial(alpha, gamma, c)
    assert reading.emitted == expected_emitted(alpha, gamma)
    assert reading.speedup == pytest.approx(speedup(alpha, gamma, c))
    assert reading.best_speedup == pytest.approx(speedup(alpha, best_gamma(alpha, c), c))
    assert reading.break_even_alpha == pytest.approx(break_even_alpha(gamma, c))


def test_a_round_pays_its_own_pass():
    """alpha 1/2, gamma 1: 1.5 emitted; T(1) = 2, T(2) = 3, a draft step of half of T(1): 1.5 * 2 / (1 + 3)."""
    assert read_dial(0.5, 1, 0.5, {1: 2.0, 2: 3.0}).speedup == pytest.approx(0.75)


def test_a_batch_multiplies_the_tokens_of_every_pass():
    """Four texts, flat up to 4 tokens: a plain step costs 1, a round c + T(8) = 1/4 + 2, and emits 2."""
    reading = read_dial(1.0, 1, 0.25, {1: 1.0, 4: 1.0, 400: 100.0}, batch=4)
    assert reading.speedup == pytest.approx(2 / 2.25)
    assert reading.speedups[0] == 1, "over plain decoding in the same batch"


@given(alpha=alphas, gamma=st.integers(1, 8), c=costs, batch=st.sampled_from([1, 7, 50, 300, 1000]))
def test_on_a_roofline_the_dial_agrees_with_the_batch_formula(alpha, gamma, c, batch):
    times = roofline_times(295, ks=(1, 295, 295_000))
    assert read_dial(alpha, gamma, c, times, batch).speedup == pytest.approx(
        speedup_of_batch([alpha] * gamma, c, batch, 295)
    )


@given(alpha=alphas, c=st.floats(0.01, 1))
def test_where_arithmetic_bounds_both_passes_no_draft_pays(alpha, c):
    assert read_dial(alpha, 4, c, roofline_times(8, ks=(1, 8, 80_000)), batch=8).best_gamma == 0


def test_what_was_not_measured_is_refused_and_not_drawn():
    times = {1: 1.0, 65: 3.0}
    assert len(read_dial(0.8, 15, 0.1, times, batch=4).speedups) == 16, "4 * 16 tokens are known, 4 * 17 are not"
    with pytest.raises(ValueError, match="a pass over 68 tokens.*up to 65.*lower gamma or the batch"):
        read_dial(0.8, 16, 0.1, times, batch=4)


@pytest.mark.parametrize(
    "wrong, message",
    [({"batch": 0}, "got 0"), ({"batch": 1.5}, "got 1.5"), ({"batch": True}, "got True"), ({"alpha": 1.2}, "1.2")],
)
def test_a_wrong_setting_is_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        read_dial(**{"alpha": 0.8, "gamma": 2, "c": 0.1} | wrong)


@pytest.mark.parametrize(
    "setting, says",
    [
        ((0.8, 5, 0.1), "3.69 tokens a round expected; speed-up 2.46; best gamma 6: 2.47; gamma 5 pays above alpha"),
        ((0.3, 4, 0.4), "no draft length pays"),
        ((0.9, 4, 1.2), "gamma 4 never pays"),
        ((0.9, 4, 0.0), "gamma 4 pays above alpha 0.00"),
    ],
)
def test_the_line_says_what_there_is_to_say(setting, says):
    assert says in dial_line(read_dial(*setting))


def test_the_picture_shows_the_curve_the_formula_and_both_marks():
    reading = read_dial(0.8, 30, 0.1, {1: 1.0, 65: 3.0})
    figure = draw_dial(reading)
    (axes,) = figure.axes
    formula, curve, best, chosen, _ = (line.get_xydata().tolist() for line in axes.lines)
    assert curve == [[gamma, value] for gamma, value in enumerate(reading.speedups[:31])], "as far as gamma"
    assert formula == [[gamma, speedup(0.8, gamma, 0.1)] for gamma in range(31)]
    assert best == [[reading.best_gamma, reading.best_speedup]]
    assert chosen == [[30, reading.speedup]]
    assert f"{reading.speedup:.2f} at gamma 30" in axes.get_title()
