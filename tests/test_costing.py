"""Bought trees: the best of all subtrees by listing them, counts by hand, what is refused, equal texts, exact laws.
Follows drafters/costing.py and logitspec_cost.py; the references list subtrees and count without either.
Left out: how well it pays (experiments/), and the index (test_ngrams.py).
"""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import SAMPLED, TOLERANCE, FixedTree, law_error, near, plain_law, round_error, whole_text
from retrieval import kept_beside_plain, plain_texts

from specdec_lib.datastore import Datastore, write
from specdec_lib.decode import Session, decode
from specdec_lib.drafters import ModelDrafter, PromptLookup, Rest, SuffixDrafter, TokenRecycling
from specdec_lib.drafters.costing import Basket, CostAware, Odds, PriceList, buy, learn
from specdec_lib.drafters.logitspec import LogitSpec
from specdec_lib.drafters.logitspec_cost import COPY, FOLLOWED, GUESS, PRIORS, LogitSpecCost
from specdec_lib.model import TableModel
from specdec_lib.tree import DraftTree

FLAT = {1: 1.0, 64: 1.0}
DEAR = {1: 1.0, 2: 3.0, 64: 100.0}
SMOLLM2 = {1: 38, 2: 41, 4: 42, 8: 48, 16: 55, 32: 68, 64: 106}  # measured, in ms


class Fixed(Odds):
    """Odds that are given, by key, and never learned."""

    def __init__(self, chances):
        super().__init__(chances.__getitem__, strength=math.inf)

    def chance(self, key):
        return self.prior(key)


# ---- what is bought --------------------------------------------------------------------------------------------


@st.composite
def markets(draw):
    """A tree of offers with the chance of each node, and times of a pass."""
    parents = [-1] + [draw(st.integers(0, n - 1)) for n in range(1, draw(st.integers(1, 8)))]
    chances = [1.0] + [draw(st.floats(0.01, 0.99)) for _ in parents[1:]]
    steps = draw(st.lists(st.floats(0.0, 0.6), min_size=8, max_size=8))
    return parents, chances, {k + 1: 1 + math.fsum(steps[:k]) for k in range(9)}


def rate(nodes, parents, chances, times):
    kept = {0: 1.0}
    for node in sorted(nodes):
        kept[node] = kept[parents[node]] * chances[node]
    return math.fsum(kept.values()) / times[len(nodes) + 1]


@settings(max_examples=60)
@given(markets())
def test_no_other_part_of_the_offers_brings_more_tokens_a_second(market):
    parents, chances, times = market
    others = range(1, len(parents))
    closed = [
        set(nodes)
        for n in range(len(parents))
        for nodes in itertools.combinations(others, n)
        if all(parents[node] == 0 or parents[node] in nodes for node in nodes)
    ]
    best = max(rate(nodes, parents, chances, times) for nodes in closed)

    def offers(path):  # a node's token is its number
        at = path[-1] if path else 0
        return [(node, node) for node in others if parents[node] == at]

    basket = buy(0, offers, Fixed(dict(enumerate(chances))), PriceList(times), room=50)
    bought = basket.tokens[1:]
    assert all(
        basket.tokens[parent] == parents[token] for token, parent in zip(bought, basket.parents[1:], strict=True)
    )
    assert rate(set(bought), parents, chances, times) == pytest.approx(best, rel=1e-9)


def chain_of(chance, width=1):
    return lambda path: [(token, chance) for token in range(width)]


class Same(Fixed):
    """The key is the chance."""

    def __init__(self):
        super().__init__({})

    def chance(self, key):
        return key


@pytest.mark.parametrize(("times", "nodes"), [(FLAT, 64), (DEAR, 1), ({1: 1.0}, 1), ({1: 1.0, 8: 1.0}, 8)])
def test_trees_are_as_large_as_the_prices_allow(times, nodes):
    assert len(buy(0, chain_of(0.5, 2), Same(), PriceList(times), 50).tokens) == nodes


def test_a_worked_example():
    """T = 10, 11, 12, 15. Chances .5, .3, .05 below the root: 1/10, 1.5/11, 1.8/12 = .15, 1.85/15 = .123."""
    prices = PriceList({1: 10, 2: 11, 3: 12, 4: 15})
    offers = {(): [(7, 0.3), (8, 0.5), (9, 0.05)]}
    basket = buy(1, lambda path: offers.get(tuple(path), []), Same(), prices, 50)
    assert (basket.tokens, basket.parents) == ([1, 8, 7], [-1, 0, 0])


def test_nothing_lies_deeper_than_the_room_and_equal_tokens_are_one_node():
    twice = buy(0, lambda path: [(1, 0.9), (1, 0.2), (2, 0.5)], Same(), PriceList(FLAT), 2)
    assert twice.offers[0] == [(1, 0.9), (2, 0.5)]
    assert sorted(map(tuple, paths(twice))) == [(1,), (1, 1), (1, 2), (2,), (2, 1), (2, 2)]
    assert len(buy(0, chain_of(0.9), Same(), PriceList(FLAT), 0).tokens) == 1


def paths(basket):
    tree = DraftTree(torch.tensor(basket.tokens), basket.parents)
    return [[basket.tokens[n] for n in tree.path_to(node)] for node in range(1, len(tree))]


def test_a_price_list_interpolates_and_never_falls():
    prices = PriceList({1: 10.0, 2: 14.0, 4: 12.0, 6: 20.0})
    assert prices.seconds == [0.0, 10.0, 14.0, 14.0, 14.0, 16.0, 20.0] and prices.most == 6
    assert prices.least[1:3] == pytest.approx([4 / 3, 0.0]) and prices.least[6] == math.inf


@pytest.mark.parametrize("times", [{}, {2: 1.0}, {1: 0.0, 2: 1.0}])
def test_times_without_a_first_or_of_nothing_are_refused(times):
    with pytest.raises(ValueError, match="price list"):
        PriceList(times)


# ---- what is learned -------------------------------------------------------------------------------------------


def test_odds_start_at_the_prior_and_move_with_the_counts():
    odds = Odds({"a": 0.25}.__getitem__, strength=4)
    assert odds.chance("a") == 0.25
    odds.count("a", True)
    odds.count("a", False)
    assert odds.chance("a") == pytest.approx((4 * 0.25 + 1) / 6)
    odds.clear()
    assert odds.chance("a") == 0.25


def test_every_offer_at_a_node_reached_is_counted_bought_or_not():
    #   bought: 0 - 5 - 6; offered below the root 5 a, 9 b; below 5: 6 a, 9 b; below 6: 7 c
    basket = Basket([0, 5, 6], [-1, 0, 1], [[(5, "a"), (9, "b")], [(6, "a"), (9, "b")], [(7, "c")]])
    for emitted, counts in {
        (5, 6, 7): {"a": [2, 2], "b": [0, 2], "c": [1, 1]},
        (5, 9): {"a": [1, 2], "b": [1, 2]},
        (9,): {"a": [0, 1], "b": [1, 1]},
        (9, 5): {"a": [0, 1], "b": [1, 1]},  # 9 was not bought: of what may follow it nothing is known
        (5,): {"a": [1, 1], "b": [0, 1]},
    }.items():
        odds = Odds(lambda key: 0.5)
        learn(basket, odds, emitted)
        assert odds.counts == counts


def test_what_is_right_gets_bought_and_what_is_wrong_no_longer():
    """The target says 1 for ever; 1 is the second sibling, whose prior is low."""
    target = TableModel.constant([0.1, 0.7, 0.1, 0.1])
    drafter = CostAware(FixedTree([2], [1], [3]), {1: 10.0, 2: 12.0, 3: 15.0, 4: 18.0})
    trace = decode(target, [0], 200, drafter)
    assert trace.rounds[0].tokens == [0, 2] and trace.rounds[-2].tokens == [1, 1]
    assert drafter.odds.counts[1, 1] == [len(trace.rounds) - 1, len(trace.rounds) - 1]  # the last round had no room


@pytest.mark.parametrize("make", [lambda r: LogitSpecCost(SMOLLM2, r), lambda r: CostAware(LogitSpec(), SMOLLM2, r)])
def test_a_text_forgets_the_last_one_unless_asked_to_keep_it(make):
    target, prompt = TableModel.random(6, 3, spread=3.0), [1, 2, 3] * 4
    alone = decode(target, prompt, 30, make(False))
    for keep, tokens in itertools.product((False, True), (2, 40)):  # a text shorter than the prompt, and longer
        drafter = make(keep)
        decode(target, [3, 2, 1, 3], tokens, drafter)
        counted = {key: list(counts) for key, counts in drafter.odds.counts.items()}
        again = decode(target, prompt, 30, drafter)
        assert again.ids == alone.ids
        assert (drafter.memory is not None) == keep
        if keep:
            assert all(drafter.odds.counts[key][1] >= tested for key, (_, tested) in counted.items()) and counted
        else:
            assert [r.tokens for r in again.rounds] == [r.tokens for r in alone.rounds]


# ---- what is offered -------------------------------------------------------------------------------------------


def test_offers_of_a_worked_example():
    text = [5, 6, 7, 8, 5, 6]
    drafter = LogitSpecCost(FLAT)
    drafter.index.sync(text)
    drafter.tail, drafter.best, drafter.copies = text, [6, 9, 7], {6: [4], 7: [8, 2]}
    assert list(drafter.offers([])) == [
        (7, (FOLLOWED, 2, True)),  # after 5 6, two tokens, stood 7, which the last row has, too
        (4, (COPY, 0)),
        (9, (GUESS, 1, 0)),  # (5, 6, 9), (6, 9) and 9 never stood before
        (7, (GUESS, 2, 3)),  # (5, 6, 7) did
    ]
    assert list(drafter.offers([7])) == [(8, (FOLLOWED, 3, False)), (8, (COPY, 0)), (2, (COPY, 1))]
    assert list(drafter.offers([9])) == []


def test_every_key_has_a_prior():
    drafter = LogitSpecCost(FLAT)
    assert drafter.guesses == 64 and LogitSpecCost(SMOLLM2).guesses == 4
    for seed in range(3):
        decode(TableModel.random(70, seed, spread=3.0), [1, 2, 3, 1], 60, drafter)
        assert set(drafter.odds.counts) <= set(PRIORS)
    assert {kind for kind, *_ in drafter.odds.counts} == {FOLLOWED, GUESS, COPY}


@given(st.lists(st.integers(0, 2), min_size=1, max_size=25), st.lists(st.integers(0, 2), max_size=3))
def test_a_matchs_length_is_that_of_a_scan(text, path):
    drafter = LogitSpecCost(FLAT)
    drafter.index.sync(text)
    ids = [*text, *path][-16:]
    for position in range(1, len(text) + 1):
        common = [n for n in range(1, min(position, len(ids)) + 1) if text[position - n : position] == ids[-n:]]
        assert drafter._matched(position, ids) == max(common, default=0)


# ---- exact -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A datastore of the tiny model's own texts, and of some over three tokens."""
    file = tmp_path_factory.mktemp("stores") / "t.store"
    write(file, [*plain_texts(), [0, 1, 0, 2, 0, 1, 1, 0, 2, 0, 2]], "abc")
    return Datastore(file, "abc")


INNER = {
    "pld": lambda store, keep: PromptLookup(),
    "rest": lambda store, keep: Rest(store),
    "suffix": lambda store, keep: SuffixDrafter(keep),
    "recycling": lambda store, keep: TokenRecycling(keep),
    "logitspec": lambda store, keep: LogitSpec(),
}


def wrapped(name, store, times, keep=False):
    return CostAware(INNER[name](store, keep), times)


@pytest.mark.parametrize("times", [FLAT, SMOLLM2], ids=["flat", "smollm2"])
@pytest.mark.parametrize("name", [*INNER, "own"])
def test_texts_equal_plain_greedy_decoding_on_a_real_model(times, name, store):
    make = (lambda: LogitSpecCost(times)) if name == "own" else lambda: wrapped(name, store, times)
    assert kept_beside_plain(make) > 0


@pytest.mark.parametrize("name", [*INNER, "own"])
def test_laws_are_exact_over_every_outcome_of_a_round_and_of_a_text(name, store):
    target, prompt = TableModel.random(3, 5), (0, 1, 0, 2, 0)
    make = (lambda: LogitSpecCost(FLAT)) if name == "own" else lambda: wrapped(name, store, FLAT)
    reaches = () if name == "recycling" else (1, 2)  # it has scored no row yet, and proposes nothing
    assert round_error(target, make(), 3, prompt=prompt, reaches=reaches) < TOLERANCE
    emitted = whole_text(target, make(), 3, prompt=prompt)
    assert law_error(emitted, plain_law(target), prompt, 3) < TOLERANCE


@pytest.mark.parametrize("name", INNER)
def test_a_wrapped_drafter_leaves_nothing_behind_unless_asked_and_says_what(name, store):
    target, prompt = TableModel.random(6, 3, spread=3.0), [1, 2, 3] * 4
    alone = decode(target, prompt, 30, wrapped(name, store, SMOLLM2))
    for keep in (False, True):
        drafter = wrapped(name, store, SMOLLM2, keep)
        learns = keep and name in ("suffix", "recycling")
        decode(target, [3, 2, 1, 3], 20, drafter)
        again = decode(target, prompt, 30, drafter)
        assert again.ids == alone.ids and drafter.learns == learns
        if not learns:
            assert [r.tokens for r in again.rounds] == [r.tokens for r in alone.rounds]
        said = {"rest": "a datastore", "suffix": "earlier text", "recycling": "earlier text"}
        expected = said[name] if learns or name == "rest" else None
        memory = again.settings.get("memory")
        assert memory == drafter.memory and (expected in memory if expected else memory is None)


def test_a_wrapped_drafters_memory_stands_beside_the_odds_that_are_kept(store):
    drafter = CostAware(SuffixDrafter(keep=True), FLAT, keep=True)
    for _ in range(2):
        decode(TableModel.random(6, 3, spread=3.0), [1, 2, 3] * 4, 20, drafter)
    odds, texts = drafter.memory.split("; ")
    assert odds.startswith("odds of") and texts.endswith("1 earlier texts")


@pytest.mark.parametrize(
    ("inner", "what"), [(ModelDrafter(near(TableModel.random(4, 1), 2), 2), "drawn"), (None, "scouts")]
)
def test_trees_whose_nodes_may_not_be_left_out_are_refused(inner, what):
    class Scouts(FixedTree):
        def propose(self, context):
            return super().propose(context).with_scouts([1], [0])

    session = Session(TableModel.random(4, 1), CostAware(inner or Scouts([1]), FLAT), settings=SAMPLED).start([0])
    with pytest.raises(ValueError, match=what):
        session.run(5)
