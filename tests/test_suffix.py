"""Suffix decoding: the tree against counting every stretch by hand, what is grown from it, constant work; exact texts.
Follows SuffixDecoding (arXiv 2411.04975), specdec_lib/suffix_tree.py and specdec_lib/drafters/suffix.py.
Left out: speed.
"""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from laws import TOLERANCE, law_error, plain_law, round_error, whole_text
from retrieval import context_of, kept_beside_plain, pocket_texts

from specdec_lib import suffix_tree
from specdec_lib.decode import decode
from specdec_lib.drafters.suffix import SuffixDrafter
from specdec_lib.model import TableModel
from specdec_lib.suffix_tree import FLOOR, SuffixTree

many_texts = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=25), min_size=1, max_size=3)


def filled(texts):
    tree = SuffixTree()
    for i, text in enumerate(texts):
        for token in text:
            tree.add(token)
        if i < len(texts) - 1:
            tree.end()
    return tree


def followers(texts, stretch):
    """How often each token followed a stretch, in texts that do not run into each other."""
    n = len(stretch)
    places = ((text, i + n) for text in texts for i in range(len(text) - n) if text[i : i + n] == stretch)
    return Counter(text[at] for text, at in places)


def longest_by_hand(texts):
    newest = texts[-1]
    for n in range(len(newest), 0, -1):
        if followers(texts, newest[-n:]):
            return n, followers(texts, newest[-n:])
    return 0, Counter()


def shares(counts):
    total = sum(counts.values())
    return {token: count / total for token, count in counts.items() if count >= FLOOR * total}


@given(many_texts)
def test_the_longest_match_and_its_followers_are_those_counted_by_hand(texts):
    tree, (length, counts) = filled(texts), longest_by_hand(texts)
    match = tree.longest()
    assert (match[1] if match else 0) == length
    if match:
        assert {token: share for token, share, _ in tree.after(match[0])} == pytest.approx(shares(counts))


@given(many_texts)
def test_shares_further_down_are_those_counted_by_hand(texts):
    """Every path of three tokens below the match, while more than one stretch goes there."""
    tree = filled(texts)
    match = tree.longest()
    if match is None:
        return
    stretch = texts[-1][-match[1] :]
    below = [(match[0], [])]
    for _ in range(3):
        below = [(behind, [*path, token]) for place, path in below for token, _, behind in tree.after(place)]
        for place, path in below:
            if not isinstance(place, int):
                found = {token: share for token, share, _ in tree.after(place)}
                assert found == pytest.approx(shares(followers(texts, [*stretch, *path])))


def test_stretches_end_at_64_tokens_and_drafts_go_on():
    text = list(range(200))
    tree = filled([[*text, 999, *text[:100]]])
    node, length = tree.longest()
    assert length == suffix_tree.DEPTH == 64
    assert [token for token, *_ in tree.after(node)] == [100]
    drafter = SuffixDrafter()
    drafter.start([*text, 999, *text[:100]])
    tree = drafter.propose(context_of([*text, 999, *text[:100]], vocab_size=1000))
    assert tree.is_chain and tree.tokens[1:].tolist() == list(range(100, 150))  # as deep as there is room


def test_frequent_tokens_stay_likely_where_many_different_ones_followed():
    """300 tokens followed 7, a few of them often: exactly those with a share of .1 or more are found."""
    often = {1: 60, 2: 45}
    order = [token for token in range(10, 310)] + [t for t, n in often.items() for _ in range(n)]
    generator = torch.Generator().manual_seed(1)
    order = [order[i] for i in torch.randperm(len(order), generator=generator).tolist()]
    tree = filled([[token for follower in order for token in (7, follower)] + [7]])
    found = {token: share for token, share, _ in tree.after(tree.root.children[7])}
    assert found == pytest.approx({1: 60 / 405, 2: 45 / 405})
    assert len(tree.root.children[7].likely) <= 2 / FLOOR


def test_a_small_text_by_hand():
    """[1 2 3 1 2] 4 [1 2 3 1 2]: a match of five tokens stood before 4, so five tokens from there on."""
    drafter, text = SuffixDrafter(), [1, 2, 3, 1, 2, 4, 1, 2, 3, 1, 2]
    drafter.start(text)
    tree = drafter.propose(context_of(text))
    assert tree.tokens.tolist() == [2, 4, 1, 2, 3, 1] and tree.is_chain


def test_the_likeliest_path_comes_first_within_the_budget():
    text = [5, 1, 9, 5, 2, 9, 5, 1, 8, 5]  # after 5: 1 twice, 2 once
    drafter = SuffixDrafter()
    drafter.start(text)
    assert drafter.propose(context_of(text)).tokens.tolist() == [5, 1]  # a match of one token
    text = [6, 5, 1, 9, 6, 5, 2, 9, 6, 5, 1, 8, 6, 5]
    drafter.start(text)
    tree = drafter.propose(context_of(text))
    assert tree.tokens.tolist() == [5, 1, 2] and tree.parents == [-1, 0, 0]  # 2/3, then 1/3, which came before 1/3


def test_paths_below_a_tenth_are_not_grown():
    text = [t for follower in range(20, 32) for t in (6, 5, follower)] + [6, 5]  # twelve followers, 1/12 each
    drafter = SuffixDrafter()
    drafter.start(text)
    assert len(drafter.propose(context_of(text))) == 1


def test_the_floor_is_of_whole_paths_not_of_a_single_share():
    """After a key of eight: 1, 2, 3, a third each; below each of them four tokens, a quarter each: paths of 1/12."""
    key = list(range(50, 58))
    blocks = [[*key, first, 10 * first + second] for first in (1, 2, 3) for second in range(4)]
    text = [token for block in blocks for token in block] + key
    drafter = SuffixDrafter()
    drafter.start(text)
    tree = drafter.propose(context_of(text))
    assert sorted(tree.tokens[1:].tolist()) == [1, 2, 3] and tree.parents == [-1, 0, 0, 0]


def test_proposals_end_at_the_room_at_eos_and_at_the_vocabulary():
    text = [1, 2, 3, 4, 5, 6, 7, 1, 2, 3]
    for arguments, context, expected in (
        ({}, {}, [3, 4, 5, 6]),
        ({}, {"room": 1}, [3, 4]),
        ({}, {"room": 0}, [3]),
        ({"eos_token_ids": [5]}, {}, [3, 4]),
        ({}, {"vocab_size": 5}, [3, 4]),
    ):
        drafter = SuffixDrafter(**arguments)
        drafter.start(text)
        assert drafter.propose(context_of(text, **context)).tokens.tolist() == expected


def test_no_stretch_goes_across_two_texts():
    drafter = SuffixDrafter(keep=True)
    drafter.start([1, 2, 3])
    drafter.propose(context_of([1, 2, 3, 4]))
    drafter.start([9, 3])
    assert drafter.memory == "4 tokens of 1 earlier texts"
    assert drafter.propose(context_of([9, 3])).tokens.tolist() == [3, 4]
    drafter.start([4])
    assert len(drafter.propose(context_of([4]))) == 1  # 4 ended its text


def test_a_text_leaves_nothing_behind_unless_asked():
    """G7; the last round's tokens belong to the text too."""
    target = TableModel.random(6, 9)
    shared, kept = SuffixDrafter(), SuffixDrafter(keep=True)
    first = [decode(target, [1, 2, 3], 20, drafter) for drafter in (shared, kept)][0]
    alone = decode(target, [3, 2], 20, SuffixDrafter())
    again, more = decode(target, [3, 2], 20, shared), decode(target, [3, 2], 20, kept)
    assert [r.tokens for r in again.rounds] == [r.tokens for r in alone.rounds]
    assert [r.tokens for r in more.rounds] != [r.tokens for r in alone.rounds] and more.ids == alone.ids
    assert kept.tree.text[:24] == [1, 2, 3, *first.ids, None] and kept.memory == "23 tokens of 1 earlier texts"
    assert shared.memory is None
    kept.forget()
    kept.start([1])
    assert kept.memory is None


def test_work_a_token_does_not_depend_on_the_length():
    """Steps of the thousand tokens up to 1k and up to 128k, and what a look-up may read."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(60, (128_000,), generator=generator).tolist()
    tree, spent = SuffixTree(), {}
    for end in range(1, 128_001):
        tree.add(ids[end - 1])
        if end in (8_000, 9_000, 127_000, 128_000):
            spent[end] = tree.operations
    assert spent[9_000] - spent[8_000] < 4_500 and spent[128_000] - spent[127_000] < 5_500
    assert len(tree.riding) <= 64
    repeated = SuffixTree()
    for token in ids[:500] * 4:
        repeated.add(token)
    assert repeated.operations <= 64 * 2000  # the worst there is: all ends ride
    assert max(len(node.likely) for node in tree.root.children.values()) <= 2 / FLOOR


def test_greedy_text_is_plain_decodings():
    assert kept_beside_plain(SuffixDrafter) > 20
    assert kept_beside_plain(lambda: SuffixDrafter(keep=True)) > 20


def test_greedy_text_of_the_pocket_pair_is_plain_decodings(pair):
    plain, drafted = pocket_texts(pair, SuffixDrafter(eos_token_ids=pair.stops.eos_token_ids))
    assert drafted.ids == plain.ids and len(drafted.rounds) < len(plain.rounds)


@pytest.mark.parametrize("prompt", [(0, 1, 0, 2, 0), (1, 1, 1), (2, 0, 1, 2, 0)])
def test_the_law_above_0_is_the_targets(prompt):
    target = TableModel.random(3, 5)
    assert round_error(target, SuffixDrafter(), n=3, prompt=prompt, reaches=(1, 2)) < TOLERANCE
    emitted = whole_text(target, SuffixDrafter(), n=3, prompt=prompt)
    assert law_error(emitted, plain_law(target, prompt_length=len(prompt)), prompt, 3) < TOLERANCE
