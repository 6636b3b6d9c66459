"""Laws and chance: settings against a reference written by hand, extremes of logits, chance that is explicit.
Follows specdec_lib/sampling.py.
Left out: the rules that compare two laws (test_verifiers.py, test_exact_law.py).
"""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from laws import reference_law
from transformers import LogitsProcessorList, TemperatureLogitsWarper, TopPLogitsWarper

from specdec_lib.sampling import (
    Adjuster,
    LogitsError,
    RandomChance,
    SamplingSettings,
    normalised,
    one_hot,
    outcomes,
    refuse_bad_rows,
    to_host,
)

EOS = (4,)


def law_of(logits, settings, prefix=(0,), prompt_length=1, eos=EOS):
    adjuster = settings.adjuster(prompt_length, eos)
    rows = torch.tensor([logits], dtype=torch.float64)
    return adjuster.laws(adjuster.logits(rows, lambda row: prefix))[0].tolist()


settings_of = st.builds(
    SamplingSettings,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    top_k=st.none() | st.integers(1, 6),
    top_p=st.none() | st.floats(0.05, 0.95),
    min_p=st.none() | st.floats(0.01, 0.9),
    repetition_penalty=st.none() | st.floats(0.5, 3.0),
    min_new_tokens=st.integers(0, 3),
    bad_words_ids=st.sampled_from([(), ((1,),), ((2, 3), (0,))]),
)


@hypothesis_settings(max_examples=200, deadline=None)
@given(
    logits=st.lists(st.integers(-80, 80), min_size=5, max_size=5, unique=True),
    settings=settings_of,
    prefix=st.lists(st.integers(0, 4), min_size=1, max_size=4),
)
def test_settings_make_the_law_that_they_name(logits, settings, prefix):
    logits = [v / 20 for v in logits]
    found = law_of(logits, settings, prefix)
    assert found == pytest.approx(reference_law(logits, prefix, settings, 1, EOS), abs=1e-9)


@pytest.mark.parametrize("temperature", [0, 1e-6, 0.1])
def test_extreme_logits_make_a_finite_law(temperature):
    """A14: logits (80, -80, 10) at temperatures 0, 1e-6 and 0.1."""
    adjuster = SamplingSettings(temperature=temperature).adjuster()
    law = adjuster.laws(adjuster.logits(torch.tensor([[80.0, -80.0, 10.0]]), lambda row: [0]))
    assert law.tolist() == [[1, 0, 0]]
    assert RandomChance(torch.Generator().manual_seed(0)).draw(law).tolist() == [0]


def test_half_precision_logits_become_float32_laws():
    """F16, F9: whatever the model's dtype, a law is float32 or wider and sums to 1."""
    for dtype in (torch.float16, torch.bfloat16):
        adjuster = SamplingSettings(temperature=0.7, top_p=0.95).adjuster()
        law = adjuster.laws(adjuster.logits(torch.randn(3, 50, generator=torch.manual_seed(0)).to(dtype), None))
        assert law.dtype == torch.float32
        assert law.sum(-1).tolist() == pytest.approx([1, 1, 1], abs=1e-6)


def test_a_tie_goes_to_the_lowest_id_everywhere():
    """F3: one rule for two equal maxima."""
    adjuster = SamplingSettings().adjuster()
    rows = torch.tensor([[1.0, 7.0, 7.0, 0.0]])
    assert adjuster.laws(rows).tolist() == [[0, 1, 0, 0]]
    assert reference_law([1.0, 7.0, 7.0, 0.0], (0,), SamplingSettings()) == [0, 1, 0, 0]


def test_top_p_at_a_low_temperature_works_on_one_row_and_on_many():
    """G17: T = .1, top_p = .9; processors get two dimensions."""
    settings, generator = SamplingSettings(temperature=0.1, top_p=0.9), torch.Generator().manual_seed(1)
    rows = torch.randn(7, 9, generator=generator, dtype=torch.float64)
    adjuster = settings.adjuster()
    many = adjuster.laws(adjuster.logits(rows, None))
    for row, law in zip(rows, many, strict=True):
        assert law.tolist() == pytest.approx(reference_law(row.tolist(), (0,), settings), abs=1e-12)


def test_raw_logits_are_left_as_they_were():
    rows = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]])
    settings = SamplingSettings(0.5, top_k=2, repetition_penalty=2.0, min_new_tokens=3, bad_words_ids=((1,),))
    adjuster = settings.adjuster(1, EOS)
    adjuster.logits(rows, lambda row: [4, 3])
    assert rows.tolist() == [[1, 2, 3, 4, 5]]


def test_rows_with_prefixes_of_different_lengths_are_adjusted_one_by_one():
    """A21: a row is penalised for its own prefix and for no other."""
    adjuster = SamplingSettings(temperature=1.0, repetition_penalty=10.0).adjuster()
    prefixes = [[0], [0, 1], [0, 1, 2]]
    rows = adjuster.logits(torch.full((3, 4), 1.0), lambda row: prefixes[row])
    assert torch.allclose(rows, torch.tensor([[0.1, 1, 1, 1], [0.1, 0.1, 1, 1], [0.1, 0.1, 0.1, 1]]))


def test_any_list_of_transformers_processors_can_be_used():
    processors = LogitsProcessorList([TemperatureLogitsWarper(0.5), TopPLogitsWarper(0.8)])
    found = Adjuster(processors, greedy=False)
    ours = SamplingSettings(temperature=0.5, top_p=0.8).adjuster()
    rows = torch.randn(4, 9, generator=torch.Generator().manual_seed(2))
    assert torch.equal(found.laws(found.logits(rows, None)), ours.laws(ours.logits(rows, None)))


@pytest.mark.parametrize("value", [-1, math.inf, math.nan, True, "hot"])
def test_a_temperature_that_is_no_temperature_is_refused(value):
    with pytest.raises(ValueError, match="temperature"):
        SamplingSettings(temperature=value)


@pytest.mark.parametrize("wrong", [{"top_k": 0}, {"top_p": 1.5}, {"min_p": -0.1}, {"repetition_penalty": -1.0}])
def test_transformers_own_refusals_come_through(wrong):
    with pytest.raises(ValueError):
        SamplingSettings(temperature=1.0, **wrong).processors()
    with pytest.raises(ValueError):
        SamplingSettings(min_new_tokens=-1)


def test_an_empty_residual_falls_back_and_is_never_nan():
    """A15, F9: p = q up to rounding leaves no mass; then p is drawn from."""
    p = torch.tensor([[0.5, 0.5], [0.3, 0.7]], dtype=torch.float64)
    mass = torch.tensor([[0.0, 0.0], [0.1, 0.3]], dtype=torch.float64)
    assert normalised(mass, fallback=p).tolist() == [[0.5, 0.5], pytest.approx([0.25, 0.75])]
    tiny = torch.tensor([[1e-45, 0.0]])
    assert normalised(tiny, fallback=tiny)[0].isfinite().all()


@pytest.mark.parametrize("bad", [math.nan, -math.inf, math.inf])
def test_rows_that_make_no_law_are_refused_with_their_number(bad):
    """D8."""
    with pytest.raises(LogitsError, match="row 1.*maximum"):
        refuse_bad_rows([0.5, bad, 1.0], "target")
    refuse_bad_rows([0.5, -80.0], "target")


def test_the_host_gets_every_id_and_float32_exactly():
    ids = torch.tensor([0, 65535, 65536, 151935, 2**31])
    numbers = torch.rand(1000, generator=torch.Generator().manual_seed(3))
    got_ids, got_numbers, empty = to_host(ids, numbers, torch.empty(2, 0))
    assert [int(i) for i in got_ids] == ids.tolist()
    assert torch.equal(torch.tensor(got_numbers, dtype=torch.float32), numbers)
    assert empty == []


def test_point_masses():
    assert one_hot(torch.tensor([2, 0]), 3).tolist() == [[0, 0, 1], [1, 0, 0]]


# ---- chance ----------------------------------------------------------------------------------------------------


def test_ids_of_probability_zero_are_never_drawn():
    """F7: a one-hot over 151,936 ids, half-precision logits, 20,000 draws."""
    logits = torch.full((1, 151_936), -torch.inf, dtype=torch.float16)
    logits[0, 77_777] = 3.0
    adjuster = SamplingSettings(temperature=1.0).adjuster()
    law = adjuster.laws(adjuster.logits(logits, None))
    chance = RandomChance(torch.Generator().manual_seed(4))
    for _ in range(20):  # the same row repeated without a copy; each row is drawn by itself
        assert chance.draw(law).tolist() == [77_777]
    narrow = law[:, 77_700:77_800].expand(20_000, -1)
    assert chance.draw(narrow).unique().tolist() == [77]


def test_draws_follow_their_law():
    law = torch.tensor([0.05, 0.0, 0.35, 0.6])
    draws = RandomChance(torch.Generator().manual_seed(5)).draw(law.expand(40_000, -1))
    counts = torch.bincount(draws, minlength=4)
    assert counts[1] == 0
    expected = law[law > 0] * 40_000
    chi_square = ((counts[law > 0] - expected) ** 2 / expected).sum()
    assert chi_square < 13.8  # 2 degrees of freedom, p = 0.001


def test_a_roll_has_a_uniform_and_a_draw_for_every_node():
    roll = RandomChance(torch.Generator().manual_seed(6)).roll(one_hot(torch.tensor([1, 0, 2]), 3))
    roll.host(roll.tensor.reshape(-1).tolist())
    assert [roll.token(node) for node in range(3)] == [1, 0, 2]
    assert [roll.accept(node, 1.0) for node in range(3)] == [True] * 3
    assert [roll.accept(node, 0.0) for node in range(3)] == [False] * 3


def test_the_same_seed_draws_the_same_and_leaves_the_global_state():
    """A16."""
    before = torch.random.get_rng_state()
    laws = torch.full((50, 7), 1 / 7)
    first, again = (RandomChance(torch.Generator().manual_seed(8)).draw(laws) for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_every_outcome_is_walked_once_with_its_weight():
    def two_dice(chance):
        laws = torch.tensor([[0.25, 0.75, 0.0]], dtype=torch.float64)
        first = int(chance.draw(laws))
        roll = chance.roll(laws)
        return first, roll.accept(0, 0.1), roll.token(0)

    found = outcomes(two_dice)
    assert len(found) == 8 == len({result for _, result in found})
    assert math.fsum(weight for weight, _ in found) == pytest.approx(1, abs=1e-15)
    assert dict((result, weight) for weight, result in found)[0, True, 1] == pytest.approx(0.25 * 0.1 * 0.75)
