"""Rows of a model: each row's logits are those of its own text alone, whatever the others hold or have forgotten.
Follows specdec_lib/rows.py; most cases come from public bug reports about padded batches. All in float64.
An eager Llama's softmax stays in float32 whatever the dtype, and rounds by a row's width and by the processor: hence
its wider bound, far below what one token of another text would do.
Left out: what is decoded with them (test_batch.py).
"""

import pytest
import torch
from tiny import gpt2, llama, mistral

from specdec_lib.model import CausalLM, final_norm
from specdec_lib.rows import RowsModel

MODELS = {
    "llama": lambda: llama(seed=7),
    "llama, eager": lambda: llama(seed=7, attention="eager"),
    "gpt2, absolute positions": lambda: gpt2(seed=7),
}
each_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
A, B, C = [1, 2, 3], [4, 5, 6, 7, 8, 9, 10], [11]


def rows_of(make, most=3):
    lm = CausalLM(make().double())
    rows = RowsModel(lm, most)
    return lm, rows


def alone(lm, text):
    """Logits (tokens, vocabulary) of a text, read without a cache."""
    with torch.inference_mode():
        return lm.model(input_ids=torch.tensor([text]), use_cache=False).logits[0]


def tensors(*texts):
    return [torch.tensor(text) for text in texts]


def equals(lm, found, expected):
    eager = lm.model.config._attn_implementation == "eager"
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 if eager else 1e-10)  # of logits of about 4


@each_model
def test_texts_of_different_lengths_read_together_are_as_alone(make):
    """E3, E5: lengths 3, 7 and 1; no NaN."""
    lm, rows = rows_of(make)
    for _ in range(3):
        rows.add()
    logits = rows.read(range(3), tensors(A, B, C)).logits
    for row, text in enumerate((A, B, C)):
        equals(lm, logits[row, : len(text)], alone(lm, text))
        equals(lm, logits[row, -1], alone(lm, text)[-1])  # behind a short text stands its last token again
    assert rows.lengths == [3, 7, 1] and lm.length == 0


@each_model
def test_rows_that_keep_different_numbers_go_on_as_alone(make):
    """E1, E2: four tokens are read in each row; all of them, one and none are kept, and the rest is overwritten."""
    lm, rows = rows_of(make)
    for _ in range(3):
        rows.add()
    rows.read(range(3), tensors(A, B, C))
    drafts = tensors([12, 13, 14, 15], [16, 17, 18, 19], [20, 21, 22, 23])
    rows.read(range(3), drafts)
    rows.lengths = [len(A) + 4, len(B) + 1, len(C)]
    texts = [[*A, 12, 13, 14, 15], [*B, 16], C]
    for new in ([[5], [6, 7], [8, 9, 10]], [[3, 2], [1], [4]]):
        logits = rows.read(range(3), tensors(*new)).logits
        texts = [text + more for text, more in zip(texts, new, strict=True)]
        for row, more in enumerate(new):
            equals(lm, logits[row, : len(more)], alone(lm, texts[row])[-len(more) :])
    assert rows.lengths == [len(text) for text in texts]


@each_model
def test_some_of_the_rows_can_be_read(make):
    """Neighbours and others; the rows that are not read stay as they are."""
    lm, rows = rows_of(make)
    for _ in range(3):
        rows.add()
    for at, text in enumerate((A, B, C)):
        equals(lm, rows.read([at], tensors(text), last=True).logits[0, 0], alone(lm, text)[-1])
    logits = rows.read([0, 2], tensors([6], [7, 8])).logits
    equals(lm, logits[0, 0], alone(lm, [*A, 6])[-1])
    equals(lm, logits[1], alone(lm, [*C, 7, 8])[-2:])
    equals(lm, rows.read([1], tensors([9])).logits[0, 0], alone(lm, [*B, 9])[-1])


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_the_last_row_takes_the_place_of_one_that_goes(gone):
    lm, rows = rows_of(MODELS["llama"])
    for _ in range(3):
        rows.add()
    rows.read(range(3), tensors(A, B, C))
    rows.drop(gone)
    left = [A, B, C]
    left[gone] = left[-1]
    left.pop()
    assert rows.lengths == [len(text) for text in left]
    rows.add()  # the free row begins anew, in front of what another text left there
    logits = rows.read(range(3), tensors([2], [2], [3, 4])).logits
    for row, text in enumerate([[*left[0], 2], [*left[1], 2], [3, 4]]):
        equals(lm, logits[row, -1], alone(lm, text)[-1])


def test_hidden_states_are_those_before_the_final_norm():
    lm, rows = rows_of(MODELS["llama"])
    rows.add()
    rows.add()
    output = rows.read(range(2), tensors(A, B), frozenset({"hidden"}))
    assert output.hidden.shape == (2, 7, 32) and rows.read([0], tensors([1])).hidden is None
    with torch.inference_mode():
        equals(lm, lm.model.get_output_embeddings()(final_norm(lm.model)(output.hidden)), output.logits)
    with pytest.raises(ValueError, match=r"cannot give \['draft'\]"):
        rows.read([0], tensors([1]), frozenset({"draft"}))


def test_padding_rows_beyond_the_vocabulary_are_cut():
    """D1."""
    rows = RowsModel(CausalLM(llama(vocab=12), vocab_size=9), 1)
    rows.add()
    assert rows.read([0], tensors([1, 2])).logits.shape == (1, 2, 9)


def test_the_context_is_reached_and_not_passed():
    lm, rows = rows_of(lambda: gpt2(context=8))
    rows.add()
    rows.add()
    equals(lm, rows.read(range(2), tensors([1] * 8, [2])).logits[0], alone(lm, [1] * 8))
    with pytest.raises(ValueError, match="9 tokens do not fit this model's context of 8"):
        rows.read(range(2), tensors([1], [2]))
    assert rows.lengths == [8, 1], "what was refused is not counted"


def test_models_that_take_no_mask_of_our_own_are_refused():
    with pytest.raises(ValueError, match="sliding window cannot take a batch's mask; decode the texts one by one"):
        RowsModel(CausalLM(mistral()), 2)
    model = llama()
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ValueError, match="'flash_attention_2' cannot take a batch's mask"):
        RowsModel(CausalLM(model), 2)
