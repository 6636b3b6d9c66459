"""Every outcome of the real loop with its weight: the emitted law is the target's, to 1e-9.
Follows Leviathan et al. 2023 (arXiv 2211.17192), appendix A.1, and SpecInfer (arXiv 2305.09781), section 4.3.
Left out: wrong rules, which the same checker must catch (test_mutants.py).
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import (
    SAMPLED,
    TOLERANCE,
    DrawnTree,
    FixedTree,
    first_token_law,
    law_error,
    near,
    plain_law,
    round_error,
    whole_text,
)

from specdec_lib.drafters import ModelDrafter, NoDrafter
from specdec_lib.model import TableModel
from specdec_lib.sampling import SamplingSettings
from specdec_lib.verifiers import Lenience, LosslessRejection

P2, Q2 = [0.6, 0.4], [0.8, 0.2]
P3, Q3 = [0.2, 0.3, 0.5], [0.6, 0.3, 0.1]
EOS = 2


def pair(vocab, seed=0):
    target = TableModel.random(vocab, 2 * seed + 1)
    return target, near(target, 2 * seed + 2)


@pytest.mark.parametrize("gamma", [1, 2, 3])
@pytest.mark.parametrize("vocab", [3, 4, 5])
def test_a_chain_emits_the_targets_law(vocab, gamma):
    target, draft = pair(vocab, seed=gamma)
    error = round_error(target, ModelDrafter(draft, gamma), n=gamma + 1, reaches=range(1, gamma + 2))
    assert error < TOLERANCE


def test_plain_decoding_passes_the_same_test():
    assert round_error(pair(4)[0], NoDrafter(), n=2) < TOLERANCE


def test_several_rounds_emit_the_targets_law():
    target, draft = pair(3)
    emitted = whole_text(target, ModelDrafter(draft, 1), n=3)
    assert law_error(emitted, plain_law(target), (0,), 3) < TOLERANCE


def test_several_rounds_of_trees_emit_the_targets_law():
    target, draft = TableModel.random(2, 5), TableModel.random(2, 6)
    emitted = whole_text(target, ModelDrafter(draft, 1, siblings=(2,)), n=3)
    assert law_error(emitted, plain_law(target), (0,), 3) < TOLERANCE


def test_a_greedy_draft_verified_at_temperature_1_emits_the_targets_law():
    """A1: the draft's tokens are point masses, so q is one-hot."""
    target, draft = pair(4)
    assert round_error(target, ModelDrafter(draft, 3, greedy=True), n=4) < TOLERANCE
    p2, q2 = TableModel.constant(P2), TableModel.constant(Q2)
    assert first_token_law(p2, ModelDrafter(q2, 1, greedy=True)) == pytest.approx(P2, abs=TOLERANCE)


@pytest.mark.parametrize(
    "siblings, vocab, gamma", [((2,), 5, 1), ((3,), 4, 1), ((2,), 3, 2), ((1, 2), 3, 2), ((2, 2), 3, 2)]
)
def test_drawn_siblings_emit_the_targets_law(siblings, vocab, gamma):
    """G16: siblings drawn independently may be equal, and each is tested against the updated law."""
    target, draft = pair(vocab, seed=3)
    drafter = ModelDrafter(draft, gamma, siblings)
    assert round_error(target, drafter, n=gamma + 1, reaches=range(1, gamma + 2)) < TOLERANCE


@pytest.mark.parametrize(
    "shape",
    [(0, 0, 1, 1), (0, 0, 2), (0, 1, 1), (0, 0, 0, 2), (0, 1, 0, 3), (0, 0, 1, 2, 2)],
    ids=lambda shape: "-".join(map(str, shape)),
)
def test_unequal_branches_emit_the_targets_law(shape):
    target = TableModel.random(3, 11)
    draft = near(target, 12, hides=lambda ids: len(ids) % 3)
    assert round_error(target, DrawnTree(draft, shape), n=3) < TOLERANCE


@pytest.mark.parametrize(
    "paths",
    [
        [[1], [2]],
        [[0, 1], [0, 2], [3]],
        [[0, 1, 2], [1, 1], [2]],
        [[0, 0, 0], [0, 1, 0], [0, 1, 2], [1]],
        [[0], [1], [2], [3]],
        [[0], [0]],
    ],
    ids=str,
)
def test_point_mass_trees_emit_the_targets_law(paths):
    """G16, G12: one draw a node, equal prefixes merged; all tokens of the vocabulary may be proposed at once."""
    target = TableModel.random(4, 21)
    assert round_error(target, FixedTree(*paths), n=max(map(len, paths)) + 1) < TOLERANCE


SETTINGS = {
    "temperature 0.5": SamplingSettings(temperature=0.5),
    "temperature 2": SamplingSettings(temperature=2.0),
    "top-k": SamplingSettings(temperature=1.0, top_k=2),
    "top-p": SamplingSettings(temperature=1.0, top_p=0.6),
    "min-p": SamplingSettings(temperature=1.0, min_p=0.25),
    "repetition penalty": SamplingSettings(temperature=1.0, repetition_penalty=1.7),
    "min_new_tokens": SamplingSettings(temperature=1.0, min_new_tokens=2),
    "bad words": SamplingSettings(temperature=1.0, bad_words_ids=((1,), (0, 3), (3, 0))),
    "all": SamplingSettings(0.8, top_k=3, top_p=0.9, min_p=0.05, repetition_penalty=1.3, min_new_tokens=1),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_chain_under_sampling_settings_emits_the_adjusted_law(name):
    """A12, A21, A23: settings act on p at every verified row and on the bonus row, each row with its own prefix."""
    target, draft = pair(4, seed=5)
    error = round_error(
        target, ModelDrafter(draft, 2), n=3, settings=SETTINGS[name], prompt=(3, 0), eos=(EOS,), reaches=(1, 2, 3)
    )
    assert error < TOLERANCE


@pytest.mark.parametrize("name", SETTINGS)
def test_trees_under_sampling_settings_emit_the_adjusted_law(name):
    target, draft = pair(4, seed=6)
    setting = SETTINGS[name]
    fixed = FixedTree([0, 1], [0, 3], [EOS, 1], [3])
    assert round_error(target, fixed, n=3, settings=setting, prompt=(3, 0), eos=(EOS,)) < TOLERANCE
    drawn = ModelDrafter(draft, 1, siblings=(2,))
    assert round_error(target, drawn, n=2, settings=setting, prompt=(3, 0), eos=(EOS,)) < TOLERANCE


def test_greedy_decoding_is_the_case_of_one_hot_laws():
    """A5: at temperature 0 both laws are one-hot, and the emitted text is the target's argmax for certain."""
    target, draft = TableModel.constant([0.1, 0.2, 0.7]), TableModel.constant([0.0001, 0.5499, 0.45])
    greedy = SamplingSettings()
    assert first_token_law(target, ModelDrafter(draft, 1), settings=greedy) == [0, 0, 1]
    target, draft = pair(5, seed=8)
    assert round_error(target, ModelDrafter(draft, 3), n=4, settings=greedy) == 0
    assert round_error(target, FixedTree([0, 1], [1, 2], [2], [3], [4]), n=3, settings=greedy) == 0


def test_tokens_outside_the_draft_are_emitted_with_their_law():
    """D1, D2: a draft that lacks two of the target's tokens, and one that has two more."""
    for draft_vocab in (3, 7):
        target, draft = TableModel.random(5, 31), TableModel.random(draft_vocab, 32)
        assert round_error(target, ModelDrafter(draft, 2), n=3) < TOLERANCE


def test_an_end_of_text_inside_the_proposal_cuts_it_there():
    """C1: with EOS drawn, drafted and recovered anywhere, the law of ended texts is the target's."""
    target, draft = pair(3, seed=9)
    assert round_error(target, ModelDrafter(draft, 3), n=4, eos=(EOS,)) < TOLERANCE


def test_the_length_limit_does_not_bend_the_law():
    target, draft = pair(3, seed=10)
    for n in (1, 2):
        emitted = whole_text(target, ModelDrafter(draft, 3), n=n)
        assert all(len(ids) == n for _, ids in emitted)
        assert law_error(emitted, plain_law(target), (0,), n) < TOLERANCE


def test_lenience_1_is_lossless_and_less_is_not():
    target, draft = pair(4, seed=2)
    assert round_error(target, ModelDrafter(draft, 2), n=3, verifier=Lenience(1.0)) < TOLERANCE
    assert round_error(target, ModelDrafter(draft, 2), n=3, verifier=Lenience(0.5)) > 1e-3


laws_of = st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(lambda law: sum(law) > 0.01)


@settings(max_examples=40, deadline=None)
@given(p=laws_of, q=laws_of)
def test_any_two_laws_emit_p(p, q):
    """A15 included: laws with zeros, equal laws, disjoint laws."""
    p, q = ([v / sum(law) for v in law] for law in (p, q))
    target, draft = TableModel.constant(p), TableModel.constant(q)
    for drafter in (ModelDrafter(draft, 1), ModelDrafter(draft, 1, siblings=(2,)), FixedTree([0], [2])):
        assert first_token_law(target, drafter, LosslessRejection(), SAMPLED) == pytest.approx(p, abs=TOLERANCE)
