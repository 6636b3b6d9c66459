"""Trees: malformed ones are refused, paths and masks are what the parents say.
Follows specdec_lib/tree.py; the mask is that of SpecInfer (arXiv 2305.09781), section 4.
Left out: what a model makes of a mask (test_model.py).
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specdec_lib.tree import DraftTree, TreeError, ancestor_mask, depths

parents_of = st.lists(st.integers(0, 10**6), max_size=12).map(
    lambda numbers: [-1, *(n % node for node, n in enumerate(numbers, start=1))]
)


@pytest.mark.parametrize(
    "parents",
    [[], [0], [-1, -1], [-1, 1], [-1, 2, 1], [-1, 0, 3, 0], [-1, 0, -2], [-1, 5]],
    ids=str,
)
def test_malformed_trees_are_refused(parents):
    """G11: no root, a node without a parent, a cycle, a gap, a parent after its child."""
    with pytest.raises(TreeError):
        DraftTree(torch.zeros(len(parents), dtype=torch.long), parents)


def test_numbers_that_do_not_fit_together_are_refused():
    tokens = torch.tensor([1, 2, 3])
    with pytest.raises(TreeError, match="int64"):
        DraftTree(tokens.float(), [-1, 0, 1])
    with pytest.raises(TreeError, match="shape"):
        DraftTree(tokens, [-1, 0])
    with pytest.raises(TreeError, match="draft_laws"):
        DraftTree(tokens, [-1, 0, 1], torch.ones(3, 5))
    for scout in (0, 3, -1):
        with pytest.raises(TreeError, match="scouts"):
            DraftTree(tokens, [-1, 0, 1], scouts=frozenset({scout}))


def test_paths_imply_their_prefixes_and_share_equal_ones():
    """G12: (1, 2, 3) alone is a chain of three; equal prefixes become one node, equal siblings one child."""
    chain = DraftTree.from_paths(9, [[1, 2, 3]])
    assert chain.is_chain and chain.tokens.tolist() == [9, 1, 2, 3]
    tree = DraftTree.from_paths(9, [[1, 2], [1, 3], [1, 2], [4], [2]])
    assert tree.tokens.tolist() == [9, 1, 2, 3, 4, 2]
    assert tree.parents == [-1, 0, 1, 1, 0, 0]
    assert DraftTree.from_paths(9, [[0], [0]]).proposed == 1
    assert DraftTree.from_paths(9, []).proposed == 0


def test_a_chain_is_a_tree():
    chain = DraftTree.chain([5, 6, 7])
    assert (chain.is_chain, chain.depth, chain.proposed, len(chain)) == (True, 2, 2, 3)
    root = DraftTree.chain([5])
    assert (root.depth, root.proposed, root.children) == (0, 0, [[]])


def test_a_scout_is_scored_and_never_a_child():
    tree = DraftTree(torch.tensor([1, 2, 3]), [-1, 0, 0], scouts=frozenset({1}))
    assert tree.children[0] == [2]
    assert tree.proposed == 1


@given(parents=parents_of)
def test_paths_depths_children_and_masks_agree(parents):
    tree = DraftTree(torch.arange(len(parents)), parents)
    mask = ancestor_mask(parents)
    assert depths(parents) == tree.depths
    for node in range(len(tree)):
        path = tree.path_to(node)
        assert len(path) == tree.depths[node]
        assert all(tree.parents[b] == a for a, b in zip([0, *path], path, strict=False))
        assert set(mask[node].nonzero().flatten().tolist()) == {0, node, *path}
        assert all(tree.parents[child] == node for child in tree.children[node])
    assert sum(map(len, tree.children)) == tree.proposed


def test_nodes_that_hang_on_the_committed_text_do_not_see_each_other():
    """G13: cousins stay apart."""
    assert ancestor_mask([-1, -1, 0]).tolist() == [[True, False, False], [False, True, False], [True, False, True]]
    assert depths([-1, -1, 0, 2]) == [0, 0, 1, 2]
