"""Prompt lookup: both conventions against a quadratic specification, Hugging Face's against its own class; exact laws.
Follows drafters/lookup.py, transformers' PromptLookupCandidateGenerator and cases A26, C17, G1, G3, G4, G6, G7.
Left out: the index alone (test_ngrams.py) and speed.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from laws import TOLERANCE, law_error, plain_law, round_error, whole_text
from retrieval import context_of, kept_beside_plain, pocket_texts
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from specdec_lib.decode import Stops, decode
from specdec_lib.drafters.lookup import PromptLookup
from specdec_lib.model import TableModel

texts = st.lists(st.integers(0, 4), min_size=1, max_size=40)


def drafts(drafter, ids, room=50, vocab_size=100):
    """What is proposed after these ids, added one by one after the first."""
    drafter.start(list(ids[:1]))
    for end in range(1, len(ids)):
        drafter.propose(context_of(ids[:end], room, vocab_size))
    tree = drafter.propose(context_of(ids, room, vocab_size))
    assert tree.is_chain and tree.tokens[0] == ids[-1]
    return tree.tokens[1:].tolist()


def by_hand(ids, longest, gamma, overlap):
    """Every earlier place, looked at from left to right, for every key from the longest on."""
    for n in range(min(longest, len(ids)), 0, -1):
        for i in range(len(ids) - n + 1):
            begins, limit = i + n, len(ids) if overlap else len(ids) - n
            if ids[i : i + n] == ids[-n:] and begins < limit:
                return ids[begins : begins + gamma]
    return []


@given(texts, st.integers(1, 4), st.integers(0, 6))
def test_the_original_convention_is_the_quadratic_search(ids, longest, gamma):
    assert drafts(PromptLookup(gamma, longest), ids) == by_hand(ids, longest, gamma, overlap=False)


@given(texts, st.integers(1, 4), st.integers(0, 6))
def test_hugging_faces_convention_is_the_quadratic_search(ids, longest, gamma):
    assert drafts(PromptLookup(gamma, longest, "hf"), ids) == by_hand(ids, longest, gamma, overlap=True)


@given(texts, st.integers(1, 3), st.integers(1, 6), st.sampled_from([None, [2], [0, 3]]))
def test_hugging_faces_convention_is_that_of_its_own_class(ids, longest, gamma, eos):
    theirs = PromptLookupCandidateGenerator(
        eos_token_id=None if eos is None else torch.tensor(eos),
        num_output_tokens=gamma, max_matching_ngram_size=longest, max_length=1000,
    )  # fmt: skip
    found, _ = theirs.get_candidates(torch.tensor([ids]))
    assert drafts(PromptLookup(gamma, longest, "hf", eos or ()), ids) == found[0, len(ids) :].tolist()


def test_the_defaults_are_the_two_sources():
    assert (PromptLookup().gamma, PromptLookup().index.longest) == (10, 3)
    assert PromptLookup(convention="hf").index.longest == 2


@pytest.mark.parametrize(
    "ids, original, hf",
    [
        ([4, 8, 4], [8, 4], [8, 4]),  # G4: one token is enough
        ([1, 2, 3, 1, 2], [3, 1, 2], [3, 1, 2]),  # G6: never the end itself
        ([1, 1, 1], [1, 1], [1]),  # the original's key of two would propose itself, so a key of one is looked up
        ([5, 5], [], [5]),
        ([1, 2, 3], [], []),  # G1: nothing
        ([7, 1, 8, 7, 2, 9, 7], [1, 8, 7, 2, 9, 7], [1, 8, 7, 2, 9, 7]),  # G3: the leftmost of two equal matches
    ],
)
def test_small_texts_by_hand(ids, original, hf):
    assert drafts(PromptLookup(), ids) == original
    assert drafts(PromptLookup(convention="hf"), ids) == hf


def test_generated_text_is_searched_too():
    """G3: the only match lies in the output."""
    drafter = PromptLookup()
    drafter.start([9])
    assert drafter.propose(context_of([9, 1, 2, 3, 1, 2])).tokens.tolist() == [2, 3, 1, 2]


def test_proposals_end_at_the_room_at_eos_and_at_the_vocabulary():
    ids = [1, 2, 3, 4, 5, 6, 1]
    assert drafts(PromptLookup(), ids, room=2) == [2, 3]
    assert drafts(PromptLookup(), ids, room=0) == []
    assert drafts(PromptLookup(eos_token_ids=[4]), ids) == [2, 3]
    assert drafts(PromptLookup(), ids, vocab_size=5) == [2, 3, 4]


def test_a_text_leaves_nothing_behind():
    """G7: neither to a shorter text nor to a longer one."""
    drafter = PromptLookup()
    for new in ([7, 1], [7, 5, 8, 9, 1]):
        drafter.start([1, 2, 3, 1])
        assert drafter.propose(context_of([1, 2, 3, 1])).tokens.tolist() == [1, 2, 3, 1]
        drafter.start(new)
        assert len(drafter.propose(context_of(new))) == 1


@pytest.mark.parametrize("convention", ["original", "hf"])
def test_work_a_token_does_not_depend_on_the_length(convention):
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(50, (128_001,), generator=generator).tolist()
    drafter = PromptLookup(convention=convention)
    drafter.start(ids[:1])
    spent, end = {}, 1
    for length in (1_000, 128_000):
        drafter.index.sync(ids[:length])
        before = drafter.index.operations
        drafter.propose(context_of(ids[: length + 1]))
        spent[length] = drafter.index.operations - before
        end = length + 1
    assert end == 128_001
    assert 0 < spent[128_000] <= spent[1_000] <= 2 * drafter.index.longest


@pytest.mark.parametrize("convention", ["original", "hf"])
def test_greedy_text_is_plain_decodings(convention):
    """A26, C17, G8: token for token, prompts of all lengths."""
    assert kept_beside_plain(lambda: PromptLookup(convention=convention)) > 20


def test_greedy_text_of_the_pocket_pair_is_plain_decodings(pair):
    plain, drafted = pocket_texts(pair, PromptLookup(eos_token_ids=pair.stops.eos_token_ids))
    assert drafted.ids == plain.ids and len(drafted.rounds) < len(plain.rounds)


@pytest.mark.parametrize("prompt", [(0, 1, 2, 0), (1, 1, 1), (2, 0, 1, 2, 0)])
def test_the_law_above_0_is_the_targets(prompt):
    target = TableModel.random(3, 5)
    assert round_error(target, PromptLookup(gamma=2), n=3, prompt=prompt, reaches=(1, 3)) < TOLERANCE
    emitted = whole_text(target, PromptLookup(gamma=2), n=3, prompt=prompt)
    assert law_error(emitted, plain_law(target, prompt_length=len(prompt)), prompt, 3) < TOLERANCE


def test_eos_ends_the_text_and_is_not_drafted():
    target = TableModel(lambda ids: [0.0, 9.0, 0.0] if len(ids) % 3 else [0.0, 0.0, 9.0], 3)
    drafter = PromptLookup(eos_token_ids=[2])
    trace = decode(target, [1, 2, 1, 1, 1], 10, drafter, stops=Stops(frozenset([2])))
    assert trace.ids == [1, 2][-len(trace.ids) :] and trace.reason == "eos"
    assert all(2 not in r.tokens[1:] for r in trace.rounds)


@pytest.mark.parametrize(
    "arguments, said",
    [
        ({"convention": "mine"}, "'mine'"),
        ({"gamma": -1}, "-1"),
        ({"gamma": True}, "True"),
        ({"longest": 0}, "ngram"),
        ({"longest": 2.5}, "2.5"),
    ],
)
def test_bad_numbers_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        PromptLookup(**arguments)
