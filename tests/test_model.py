"""Models and caches: a row scored after any roll-back equals that of a fresh pass; what cannot roll back is refused.
Follows specdec_lib/model.py and cache.py; trees as in SpecInfer (arXiv 2305.09781), section 4.2.
Left out: the loop on top (test_decode.py).
"""

import random
import shutil

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_tree import parents_of
from tiny import VOCAB, gpt2, llama, mamba, mistral, prompts, t5
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from specdec_lib.cache import CacheError, InPlaceLayer, keep_rows
from specdec_lib.decode import decode
from specdec_lib.drafters import ModelDrafter
from specdec_lib.model import CausalLM, TableModel, final_norm
from specdec_lib.tree import DraftTree
from specdec_lib.zoo import first_layers

CLOSE = {"atol": 1e-4, "rtol": 1e-4}
MAKERS = {
    "llama eager": lambda: llama(attention="eager"),
    "llama sdpa": llama,
    "gpt2 eager": lambda: gpt2(attention="eager"),
    "gpt2 sdpa": gpt2,
}
each_model = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@torch.inference_mode()
def fresh(model, ids):
    """(len(ids), vocabulary) logits of one pass without a cache."""
    return model(torch.tensor([list(ids)]), use_cache=False).logits[0]


def score(lm, tree, needs=frozenset()):
    return lm.score(tree.tokens, tree.parents, needs)


PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
TREE = DraftTree.from_paths(5, [[7, 8], [7, 9, 1], [3, 3]])  # nodes: 0 root, 1: 7, 2: 8, 3: 9, 4: 1, 5: 3, 6: 3


@each_model
def test_each_node_of_a_tree_sees_its_own_ancestors_alone(make):
    """G13, G18: the logits of every node equal those of its own chain run without a cache."""
    model = make()
    lm = CausalLM(model)
    lm.feed(PROMPT)
    logits = score(lm, TREE).logits
    for node in range(len(TREE)):
        chain = [*PROMPT, 5, *(int(TREE.tokens[n]) for n in TREE.path_to(node))]
        torch.testing.assert_close(logits[node], fresh(model, chain)[-1], **CLOSE)


@each_model
@pytest.mark.parametrize("path", [[0], [0, 1], [0, 1, 3, 4], [0, 5, 6]], ids=str)
def test_after_a_path_is_kept_the_next_pass_equals_a_plain_run(make, path):
    """G19, B12: nodes 0, 5 and 6 are not neighbours in the cache; two families of models."""
    model = make()
    lm = CausalLM(model)
    lm.feed(PROMPT)
    score(lm, TREE)
    lm.keep(path)
    assert lm.length == lm.cache.get_seq_length() == len(PROMPT) + len(path)
    kept = [*PROMPT, *(int(TREE.tokens[n]) for n in path)]
    again = score(lm, DraftTree.from_paths(11, [[2], [12, 0]]))
    for node, chain in enumerate([[11], [11, 2], [11, 12], [11, 12, 0]]):
        torch.testing.assert_close(again.logits[node], fresh(model, kept + chain)[-1], **CLOSE)
    lm.truncate(len(kept) - 1)  # rows lie in the text's order: what is cut is the last one
    torch.testing.assert_close(lm.score(torch.tensor(kept[-1:]), [-1]).logits[0], fresh(model, kept)[-1], **CLOSE)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parents=parents_of, seed=st.integers(0, 10**6))
def test_any_tree_and_any_path_keep_the_cache_exact(parents, seed):
    model = _LLAMA
    generator = torch.Generator().manual_seed(seed)
    tree = DraftTree(torch.randint(VOCAB, (len(parents),), generator=generator), parents)
    end = int(torch.randint(len(tree), (1,), generator=generator))
    path = [0, *tree.path_to(end)]
    lm = CausalLM(model)
    lm.feed(PROMPT)
    logits = score(lm, tree).logits
    chain = [*PROMPT, *(int(tree.tokens[n]) for n in path)]
    torch.testing.assert_close(logits[end], fresh(model, chain)[-1], **CLOSE)
    lm.keep(path)
    after = lm.score(torch.tensor([1, 2]), [-1, 0]).logits
    torch.testing.assert_close(after, fresh(model, [*chain, 1, 2])[-2:], **CLOSE)


_LLAMA = llama(seed=4)


def test_nodes_may_come_in_several_passes():
    """A draft tree grows level by level; later nodes hang on pending ones."""
    model = llama()
    lm = CausalLM(model)
    lm.feed(PROMPT)
    lm.score(torch.tensor([5]), [-1])
    lm.score(torch.tensor([7, 8]), [0, 0])
    logits = lm.score(torch.tensor([1, 2, 3]), [1, 2, 1]).logits
    for row, chain in enumerate([[5, 7, 1], [5, 8, 2], [5, 7, 3]]):
        torch.testing.assert_close(logits[row], fresh(model, PROMPT + chain)[-1], **CLOSE)
    lm.keep([0, 2, 4])
    torch.testing.assert_close(
        lm.score(torch.tensor([6]), [-1]).logits[0], fresh(model, [*PROMPT, 5, 8, 2, 6])[-1], **CLOSE
    )


@each_model
def test_many_rounds_of_scoring_and_rolling_back_do_not_drift(make):
    """B9, B11: 50 rounds; the cache has exactly the committed positions, and the logits are those without a cache."""
    model, generator = make(), torch.Generator().manual_seed(1)
    lm, ids, seen = CausalLM(model), [3], []
    original = lm.model.forward

    def spy(*args, position_ids=None, **kwargs):
        new = kwargs["input_ids"].shape[1]
        seen.append(list(range(lm.length, lm.length + new)) if position_ids is None else position_ids[0].tolist())
        return original(*args, position_ids=position_ids, **kwargs)

    lm.model.forward = spy
    for round_ in range(50):
        tokens = torch.randint(VOCAB, (4,), generator=generator)
        tokens[0] = ids[-1]
        tree = DraftTree(tokens, [-1, 0, 1, 2] if round_ % 2 else [-1, 0, 0, 2])
        logits = score(lm, tree).logits
        assert seen[-1] == [lm.length + depth for depth in tree.depths], "positions are prefix length + depth"
        kept = ([0, 1, 2, 3] if round_ % 2 else [0, 2, 3])[: 1 + round_ % 3]
        lm.keep(kept)
        ids += [int(tokens[n]) for n in kept[1:]] + [int(logits[kept[-1]].argmax())]
        assert lm.length == lm.cache.get_seq_length() == len(ids) - 1
    lm.model.forward = original
    row = lm.score(torch.tensor(ids[-1:]), [-1]).logits[0]
    torch.testing.assert_close(row, fresh(model, ids)[-1], **CLOSE)


def test_truncation_goes_to_the_length_asked_for_or_refuses():
    """B1: 3 tokens cut to 0, 3; beyond the ends an error, and never a silent other length."""
    for length in (0, 1, 3):
        lm = CausalLM(llama())
        lm.feed([1, 2, 3])
        lm.truncate(length)
        assert lm.length == lm.cache.get_seq_length() == length
    for length in (-3, -5, 4, 7):
        lm = CausalLM(llama())
        lm.feed([1, 2, 3])
        with pytest.raises(ValueError, match="cannot truncate"):
            lm.truncate(length)
        assert lm.length == lm.cache.get_seq_length() == 3
        with pytest.raises(ValueError, match="cannot truncate"):
            table = TableModel.random(3, 0)
            table.feed([1, 2, 0])
            table.truncate(length)


COMPILER = next(filter(shutil.which, ("c++", "g++", "clang++")), None)
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="torch.compile needs a C++ compiler, and none is here")


@needs_compiler
def test_a_compiled_draft_gives_the_same_rows_and_the_same_text():
    """Passes of 1, 2 (compiled) and 3 tokens after roll-backs; then a text; trees and longer texts are refused."""
    model = first_layers(llama(), 1)  # compiling takes its time by the layer
    compiled, plain = CausalLM(model, compiled=True), CausalLM(model)
    for lm in (compiled, plain):
        lm.feed([1, 2, 3])
    for tokens, keep in (([4], 1), ([5, 6], 1), ([7, 8, 9], 2), ([10], 0), ([3, 4], 2), ([5], 1)):
        rows = []
        for lm in (compiled, plain):
            rows.append(lm.score(torch.tensor(tokens), range(-1, len(tokens) - 1)).logits)
            lm.keep(range(keep))
        torch.testing.assert_close(*rows, atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="a compiled model takes chains only"):
        compiled.score(torch.tensor([4, 5]), [-1, -1])
    texts = [decode(CausalLM(llama()), [1, 2], 30, ModelDrafter(lm, 3)) for lm in (compiled, plain)]
    assert texts[0].ids == texts[1].ids and len(texts[0].rounds) == len(texts[1].rounds)


def test_what_cannot_be_compiled_is_told_before_any_text(monkeypatch):
    def no_compiler(*args, **kwargs):
        def fails(*args, **kwargs):
            raise RuntimeError("No working C++ compiler found\nand a long story")

        return fails

    monkeypatch.setattr(torch, "compile", no_compiler)
    with pytest.raises(ValueError, match=r"cannot be compiled here \(No working C\+\+ compiler found\)"):
        CausalLM(llama(), compiled=True)


def test_a_cache_grows_and_rolls_back_in_place_and_holds_what_transformers_own_holds():
    """Passes of 1 to 40 rows and roll-backs, past the buffers' first size; rows that are kept are never copied."""
    rng = random.Random(0)
    ours, theirs = InPlaceLayer(), DynamicLayer()
    addresses = set()
    for step in range(60):
        rows = [torch.randn(1, 2, rng.randint(1, 40), 3, generator=torch.Generator().manual_seed(step))] * 2
        for got, expected in zip(ours.update(*rows), theirs.update(*rows), strict=True):
            assert torch.equal(got, expected)
        surplus = rng.randint(0, rows[0].shape[2])
        ours.crop(-surplus)
        theirs.crop(-surplus)
        assert torch.equal(ours.keys, theirs.keys) and ours.get_seq_length() == theirs.get_seq_length()
        addresses.add(ours.keys.data_ptr())
    assert ours.get_seq_length() > InPlaceLayer.ROOM and len(addresses) <= 3  # it doubled, and did not move otherwise


def test_a_cache_that_ignores_its_roll_back_is_refused(monkeypatch):
    """B4: a crop that does nothing raises, and no text comes out."""
    lm = CausalLM(llama())
    lm.feed([1, 2, 3])
    lm.score(torch.tensor([4, 5]), [-1, 0])
    monkeypatch.setattr(DynamicLayer, "crop", lambda self, *args: None)
    with pytest.raises(CacheError, match="InPlaceLayer has 5 rows after a roll-back to 4"):
        lm.keep([0])


def test_a_cache_that_is_too_short_is_refused():
    lm = CausalLM(llama())
    lm.feed([1, 2, 3])
    with pytest.raises(CacheError, match="3 rows after a roll-back to 4"):
        keep_rows(lm.cache, 3, [0])


def test_a_recurrent_model_is_refused_by_name():
    """B4: its state cannot be rolled back."""
    with pytest.raises(CacheError, match="MambaForCausalLM"):
        CausalLM(mamba())


def test_an_encoder_decoder_model_is_refused_by_name():
    """B14."""
    with pytest.raises(ValueError, match="T5ForConditionalGeneration is an encoder-decoder"):
        CausalLM(t5())


def test_a_sliding_window_model_keeps_its_window_over_roll_backs():
    """B2: window 4; every row after rejections on both sides of the edge equals a run without a cache."""
    model = mistral(window=4)
    lm, ids = CausalLM(model), [1, 2, 3]
    lm.feed(ids[:-1])
    for token in (5, 6, 7, 8, 9, 10):
        logits = lm.score(torch.tensor([ids[-1], token, 11, 12]), [-1, 0, 1, 2]).logits
        torch.testing.assert_close(logits, fresh(model, [*ids, token, 11, 12])[-4:], **CLOSE)
        lm.keep([0, 1])
        ids += [token, (token * 7) % VOCAB]
    with pytest.raises(ValueError, match="sliding window cannot take a tree"):
        score(lm, TREE)


def test_an_attention_that_takes_no_mask_of_ours_refuses_trees():
    lm = CausalLM(llama())
    lm.feed([1, 2])
    lm.model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ValueError, match="'flash_attention_2' cannot take a tree's mask"):
        score(lm, TREE)


def test_what_does_not_fit_the_context_is_refused_and_changes_nothing():
    """B17, C14: a tree counts by its depth, not by its nodes."""
    lm = CausalLM(llama(context=10))
    lm.feed(PROMPT)
    with pytest.raises(ValueError, match="11 tokens do not fit this model's context of 10"):
        lm.score(torch.tensor([1, 2, 3]), [-1, 0, 1])
    assert lm.score(torch.tensor([1, 2, 3]), [-1, 0, 0]).logits.shape == (3, VOCAB)


def test_parents_that_are_no_parents_are_refused():
    lm = CausalLM(llama())
    for tokens, parents in (([1], [0]), ([1, 2], [-1, 1]), ([1, 2], [-1]), ([], [])):
        with pytest.raises(ValueError):
            lm.score(torch.tensor(tokens, dtype=torch.long), parents)
    with pytest.raises(ValueError, match="cannot give"):
        lm.score(torch.tensor([1]), [-1], frozenset({"dreams"}))


def test_padding_rows_beyond_the_vocabulary_are_cut():
    """D1: 9 real tokens in a model of 12 rows."""
    lm = CausalLM(llama(vocab=12), vocab_size=9)
    assert lm.score(torch.tensor([1]), [-1]).logits.shape == (1, 9)
    assert CausalLM(llama(vocab=12), vocab_size=99).vocab_size == 12


@each_model
def test_hidden_states_are_those_before_the_final_norm(make):
    model = make()
    lm = CausalLM(model)
    lm.feed(PROMPT)
    output = score(lm, TREE, frozenset({"hidden"}))
    assert output.hidden.shape == (len(TREE), 32)
    with torch.inference_mode():
        logits = model.get_output_embeddings()(final_norm(model)(output.hidden))
    torch.testing.assert_close(logits, output.logits, **CLOSE)
    assert not final_norm(model)._forward_pre_hooks, "the hook is taken off"
    assert score(lm, TREE).hidden is None


def test_a_row_scored_alone_and_in_a_block_differ_by_rounding_alone():
    """F4, float32: the control of every exact comparison of texts."""
    model = llama()
    lm = CausalLM(model)
    lm.feed(PROMPT)
    alone = lm.score(torch.tensor([7]), [-1]).logits[0]
    lm.keep([])
    block = lm.score(torch.tensor([7, 1, 2, 3, 4, 5, 6, 8]), range(-1, 7)).logits[0]
    assert (alone - block).abs().max() < 1e-4


def test_a_table_model_keeps_the_same_book_as_a_real_one():
    table, lm = TableModel.random(VOCAB, 0), CausalLM(llama())
    for model in (table, lm):
        model.feed(PROMPT)
        assert score(model, TREE).logits.shape == (len(TREE), VOCAB)
        model.keep([0, 5, 6])
        assert model.length == len(PROMPT) + 3
        model.truncate(4)
        assert model.length == 4 and not model.pending
    assert table.ids == PROMPT[:4]
    table.truncate(0)
    table.feed([1])
    score(table, TREE)
    assert table.history(4) == (1, 5, 7, 9, 1)


def test_tables_depend_on_the_whole_history_and_on_their_seed():
    one, two = TableModel.random(5, 1), TableModel.random(5, 2)
    assert one.logits_of((1, 2)) == TableModel.random(5, 1).logits_of((1, 2))
    assert len({tuple(m.logits_of(ids)) for m in (one, two) for ids in ((1, 2), (2, 1), (2,))}) == 6


def test_the_models_cache_is_made_anew_for_every_text():
    """G7's kind: nothing leaks from one text into the next."""
    lm = CausalLM(llama())
    first = decode(lm, [1, 2, 3], 10).ids
    for prompt in prompts(3):
        decode(lm, prompt, 5)
    assert decode(lm, [1, 2, 3], 10).ids == first
    assert isinstance(lm.cache, DynamicCache)
