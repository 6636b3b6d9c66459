"""The index of n-grams against a scan of the whole text, and its cost, which must not grow with the text.
Follows the rule in ngrams.py; the reference here looks at every occurrence and keeps no index.
Left out: what drafters make of it (test_logitspec.py).
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_lib.ngrams import NGramIndex


def occurrences(text, key):
    """Positions after each occurrence of a key that something follows."""
    return [end for end in range(len(key), len(text)) if text[end - len(key) : end] == key]


def scanned(text, tail, longest, full):
    for length in range(min(longest, len(tail)), 0, -1):
        ends = occurrences(text, tail[-length:])
        if ends:
            whole = [end for end in ends if full is not None and len(text) - end >= full]
            return (whole[-1] if whole else ends[0]), length
    return None


def index_of(text, **kwargs):
    index = NGramIndex(**kwargs)
    index.sync(text)
    return index


@given(
    st.lists(st.integers(0, 3), max_size=40), st.integers(0, 3), st.integers(1, 4),
    st.one_of(st.none(), st.integers(1, 6)),
)  # fmt: skip
def test_every_look_up_equals_a_scan_of_the_text(text, guess, longest, full):
    index = index_of(text, longest=longest, full=full)
    for tail in (text, [*text, guess]):
        assert index.find(tail[-longest:]) == scanned(text, tail, longest, full)


@given(st.lists(st.integers(0, 2), max_size=30), st.integers(0, 30))
def test_it_may_be_filled_in_pieces(text, cut):
    index = index_of(text[:cut], full=4)
    index.sync(text)
    assert index._after == index_of(text, full=4)._after and index.ids == text


def test_a_worked_example():
    #       0  1  2  3  4  5  6  7  8
    text = [7, 8, 1, 7, 8, 2, 9, 7, 8]
    assert index_of(text, full=3).find([7, 8]) == (5, 2)  # followed by 2 9 7: the latest with three tokens
    assert index_of(text, full=5).find([7, 8]) == (2, 2)  # only the first has five
    assert index_of(text, full=9).find([7, 8]) == (2, 2)  # none has nine: the earliest
    assert index_of(text, full=None).find([7, 8]) == (2, 2)  # prompt lookup
    assert index_of(text).find([9, 7, 8]) == (2, 2)  # 9 7 8 ends the text, so nothing follows it yet


def test_the_end_of_the_text_is_never_found():
    assert index_of([1, 2, 3]).find([2, 3]) is None
    assert index_of([3, 3]).find([3]) == (1, 1)


def test_a_text_that_became_shorter_is_read_anew():
    index = index_of([1, 2, 1, 3, 1, 4])
    index.sync([1, 2, 1])
    assert index.find([1]) == (1, 1) and index.find([3]) is None and index.ids == [1, 2, 1]


def test_a_cleared_index_knows_nothing():
    index = index_of([1, 2, 1, 2])
    index.clear()
    assert index.find([1]) is None and index.ids == []


@pytest.mark.parametrize("bad", [{"longest": 0}, {"full": 0}, {"longest": True}, {"full": 2.5}])
def test_numbers_below_one_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        NGramIndex(**bad)


def test_a_token_and_a_look_up_cost_the_same_at_1k_and_at_128k_tokens():
    draws, index, costs = random.Random(0), NGramIndex(), {}
    for length in (1_000, 128_000):
        index.sync([*index.ids, *(draws.randrange(500) for _ in range(length - len(index.ids)))])
        before = index.operations
        index.add(draws.randrange(500))
        added = index.operations - before
        index.find([501, 502, 503])  # nothing found: the dearest look-up
        costs[length] = added, index.operations - before - added
    assert costs[1_000] == costs[128_000] == (6, 3)
