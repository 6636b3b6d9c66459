"""Tree attention is exact: each leaf's logits are those of its own chain run alone, and the path kept stays exact.
Follows SpecInfer (arXiv 2305.09781), section 4.2; the chains run without a cache, mask or positions of ours.
Left out: single trees by hand and any tree at random (test_model.py), drafters (test_logitspec.py).
"""

import pytest
import tiny
import torch
from test_logitspec import context

from specdec_lib.drafters.logitspec import LogitSpec
from specdec_lib.model import TREE_ATTENTION, CausalLM
from specdec_lib.tree import DraftTree

CLOSE = {"atol": 1e-4, "rtol": 1e-4}
CAPACITIES = (1, 2, 3, 8, 64, 256)


@torch.no_grad()
def alone(model, ids):
    """The last row of a chain, by the model itself."""
    return model(input_ids=torch.tensor([ids])).logits[0, -1]


def bushy(root, capacity, vocab, seed=0):
    """A tree of so many nodes that branches, with a chain of up to 20 among its branches."""
    generator = torch.Generator().manual_seed(seed)
    parents = [-1, *range(min(20, capacity - 1))]
    while len(parents) < capacity:
        parents.append(int(torch.randint(len(parents), (1,), generator=generator)))
    tokens = torch.randint(vocab, (capacity,), generator=generator)
    tokens[0] = root
    return DraftTree(tokens, parents[:capacity])


def check(model, prompt, tree, nodes):
    """These nodes' rows, then the rows after the deepest path was kept, against their chains."""
    lm = CausalLM(model)
    lm.feed(prompt)
    logits = lm.score(tree.tokens, tree.parents).logits
    tokens = tree.tokens.tolist()

    def chain(node):
        return [*prompt, tokens[0], *(tokens[n] for n in tree.path_to(node))]

    for node in nodes:
        torch.testing.assert_close(logits[node], alone(model, chain(node)), **CLOSE)
    last = max(range(len(tree)), key=lambda node: (tree.depths[node], node))  # behind its siblings: rows are gathered
    lm.keep([0, *tree.path_to(last)])
    assert lm.length == lm.cache.get_seq_length() == len(chain(last))
    after = lm.score(torch.tensor([3, 4, 5]), [-1, 0, 0]).logits
    for row, more in zip(after, ([3], [3, 4], [3, 5]), strict=True):
        torch.testing.assert_close(row, alone(model, [*chain(last), *more]), **CLOSE)


def leaves(tree, most):
    """So many of them at most, from all over the tree."""
    found = [node for node in range(len(tree)) if not tree.children[node]]
    return found[:: -(-len(found) // most)]


@pytest.mark.parametrize("capacity", CAPACITIES)
@pytest.mark.parametrize("attention", TREE_ATTENTION)
@pytest.mark.parametrize("prompt", [[7], tiny.prompts(2)[1]], ids=["one token", "twenty"])
def test_every_leaf_equals_its_own_chain_on_a_tiny_model(attention, capacity, prompt):
    model = tiny.llama(attention=attention)
    tree = bushy(1, capacity, tiny.VOCAB)
    check(model, prompt, tree, leaves(tree, 20))


@pytest.fixture(scope="module")
def smollm2(real_smollm2):
    from transformers import AutoModelForCausalLM

    from specdec_lib.zoo import quiet

    with quiet():
        return AutoModelForCausalLM.from_pretrained(real_smollm2, dtype=torch.float32).eval()


@pytest.mark.slow
@pytest.mark.parametrize("attention", TREE_ATTENTION)
def test_leaves_equal_their_own_chains_on_smollm2(smollm2, attention):
    smollm2.set_attn_implementation(attention)
    tree = bushy(42, 64, 49_000)
    check(smollm2, [504, 2365, 282, 4649, 314, 7042, 30], tree, leaves(tree, 3))


def test_the_trees_of_logitspec_are_exact():
    text = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4, 3, 3, 8, 3, 2, 7, 9, 5, 3, 1]
    drafter = LogitSpec()
    drafter.best, drafter.best_for = list(range(20)), len(text)
    tree = drafter.propose(context(text))
    assert not tree.is_chain and len(tree) > 30
    check(tiny.llama(), text[:-1], tree, range(len(tree)))


def test_positions_go_by_depth_and_the_mask_shows_prefix_and_ancestors():
    lm = CausalLM(tiny.llama())
    lm.feed([5, 6])
    lm._append(torch.zeros(5, dtype=torch.long), [-1, 0, 0, 1, 2], lm.context)
    inputs = lm._tree_inputs(5)
    assert inputs["position_ids"].tolist() == [[2, 3, 3, 4, 4]]
    shown = (inputs["attention_mask"][0, 0] == 0).int().tolist()
    assert shown == [
        [1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0],
        [1, 1, 1, 0, 1, 0, 0],
        [1, 1, 1, 1, 0, 1, 0],
        [1, 1, 1, 0, 1, 0, 1],
    ]


@pytest.mark.parametrize("attention", ["flash_attention_2", "flex_attention", "paged|sdpa"])
def test_an_attention_that_takes_no_mask_of_ours_is_refused_by_name(attention):
    model = tiny.llama()
    model.config._attn_implementation = attention
    lm = CausalLM(model)
    with pytest.raises(ValueError, match=f"{attention.replace('|', '.')}.*attn_implementation one of eager, sdpa"):
        lm.score(torch.tensor([1, 2, 3]), [-1, 0, 0])
