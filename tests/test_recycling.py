"""Token Recycling: the static tree, what is written from every scored row, what persists and what does not; exactness.
Follows Luo et al. 2025 (arXiv 2408.08696) and specdec_lib/drafters/recycling.py.
Left out: speed.
"""

from collections import Counter

import torch
from laws import TOLERANCE, law_error, plain_law, round_error, whole_text
from retrieval import context_of, kept_beside_plain, pocket_texts

from specdec_lib.decode import decode
from specdec_lib.drafters.base import Feedback
from specdec_lib.drafters.recycling import CHILDREN, TokenRecycling, template
from specdec_lib.model import TableModel
from specdec_lib.tree import depths
from specdec_lib.verifiers.base import Verdict


def test_the_tree_has_80_nodes_in_the_published_levels():
    nodes = template()
    levels = Counter(depths([-1, *(parent for parent, _ in nodes)]))
    assert [levels[d] for d in range(7)] == [1, 8, 21, 25, 15, 8, 3]
    assert len(set(nodes)) == 80 and all(rank < 8 for _, rank in nodes)
    assert [sum(counts) for counts in CHILDREN] == [8, 21, 25, 15, 8, 3]


def test_ranks_above_come_with_ranks_before_them():
    """A node's successors are proposed from the likeliest on, and a likelier node never has fewer children."""
    nodes = template()
    ranks = {}
    for parent, rank in nodes:
        ranks.setdefault(parent, []).append(rank)
    assert all(found == list(range(len(found))) for found in ranks.values())
    assert [len(ranks[node]) for node in range(1, 9)] == [8, 4, 3, 2, 1, 1, 1, 1]


def test_a_full_memory_gives_the_whole_tree_and_an_empty_one_the_root():
    drafter = TokenRecycling()
    drafter.start([1])
    assert len(drafter.propose(context_of([1]))) == 1
    drafter.successors = {token: [(token * 8 + i) % 97 for i in range(8)] for token in range(97)}
    tree = drafter.propose(context_of([5]))
    assert len(tree) == 81 and tree.depth == 6
    assert tree.tokens[1:9].tolist() == drafter.successors[5]
    for node in range(1, 81):
        parent = tree.parents[node]
        rank = tree.children[parent].index(node)
        assert tree.tokens[node] == drafter.successors[int(tree.tokens[parent])][rank]
    assert drafter.propose(context_of([5], room=2)).depth == 2 and len(drafter.propose(context_of([5], room=0))) == 1


def test_nothing_goes_on_behind_eos():
    drafter = TokenRecycling(eos_token_ids=[3])
    drafter.successors = {token: [3, 4] for token in range(5)}
    tree = drafter.propose(context_of([1]))
    assert [int(tree.tokens[tree.parents[n]]) for n in range(1, len(tree))].count(3) == 0
    assert 3 in tree.tokens[1:].tolist()
    assert len(drafter.propose(context_of([3]))) > 1  # the root may be one: the text went on


def feedback(rows, tokens, kept):
    class Rows:
        logits = torch.tensor(rows)

    verdict = Verdict(kept, 0, "bonus", {}, tokens)
    return Feedback(None, Rows(), verdict, kept, [])


def test_every_scored_row_is_written_and_the_texts_own_rows_stay():
    drafter = TokenRecycling()
    rows = [
        [float(i == top) + 0.1 * (i == second) for i in range(5)] for top, second in ((1, 2), (2, 3), (3, 4), (4, 0))
    ]
    drafter.observe(feedback(rows, [0, 1, 1, 2], kept=[1]))  # node 2 repeats node 1's token, and was rejected
    assert drafter.successors[0][:2] == [1, 2]
    assert drafter.successors[1][:2] == [2, 3]
    assert drafter.successors[2][:2] == [4, 0]  # rejected, and written all the same
    assert all(sorted(found) == [0, 1, 2, 3, 4] for found in drafter.successors.values())


def test_it_learns_from_rejected_nodes_in_the_loop():
    target = TableModel.random(20, 3)
    drafter = TokenRecycling()
    trace = decode(target, [1, 2], 12, drafter)
    scored = {token for r in trace.rounds for token in r.tokens}
    assert set(drafter.successors) == scored and len(scored) > len(set(trace.ids))
    newest = target.logits_of((1, 2, *trace.ids[:-1]))
    assert drafter.successors[trace.ids[-2]][0] == max(range(20), key=newest.__getitem__)
    assert all(len(found) == 8 for found in drafter.successors.values())


def test_a_text_leaves_nothing_behind_unless_asked():
    """G7."""
    target = TableModel.random(6, 9)
    shared, kept = TokenRecycling(), TokenRecycling(keep=True)
    for drafter in (shared, kept):
        decode(target, [1, 2, 3], 20, drafter)
        assert drafter.memory is None
    alone = decode(target, [3, 2], 20, TokenRecycling())
    again, more = decode(target, [3, 2], 20, shared), decode(target, [3, 2], 20, kept)
    assert [r.tokens for r in again.rounds] == [r.tokens for r in alone.rounds]
    assert len(more.rounds[0].tokens) > 1 == len(alone.rounds[0].tokens) and more.ids == alone.ids
    assert kept.memory == "successors of 6 tokens from 1 earlier texts" and shared.memory is None
    kept.forget()
    kept.start([1])
    assert kept.memory is None and not kept.successors


def test_greedy_text_is_plain_decodings():
    assert kept_beside_plain(TokenRecycling) > 20
    assert kept_beside_plain(lambda: TokenRecycling(keep=True)) > 20


def test_greedy_text_of_the_pocket_pair_is_plain_decodings(pair):
    plain, drafted = pocket_texts(pair, TokenRecycling(eos_token_ids=pair.stops.eos_token_ids))
    assert drafted.ids == plain.ids and len(drafted.rounds) < len(plain.rounds)


def test_the_law_above_0_is_the_targets():
    target = TableModel.random(3, 5)

    class Filled(TokenRecycling):
        def start(self, prompt):
            self.successors = {0: [2, 1], 1: [0], 2: [1, 0]}
            self.template = template(((2,), (2, 1), (1, 0, 1)))

    assert round_error(target, Filled(), n=4, reaches=(1, 4)) < TOLERANCE
    emitted = whole_text(target, TokenRecycling(), n=3, prompt=(0, 0))
    assert law_error(emitted, plain_law(target, prompt_length=2), (0, 0), 3) < TOLERANCE
