"""Our loop inside transformers' generate: same text, same law, its own criteria and refusals.
Follows transformers' protocol for custom decoding methods.
Left out: what the loop does by itself (test_decode.py).
"""

from collections import Counter

import pytest
import torch
from laws import completions
from tiny import VOCAB, disturbed, llama, prompts
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast, StopStringCriteria

from specdec_lib.drafters import ModelDrafter, NoDrafter
from specdec_lib.hf import custom_generate
from specdec_lib.model import CausalLM
from specdec_lib.verifiers import GreedyMatch, Lenience

MODEL = llama(seed=1)
DRAFT = disturbed(MODEL, seed=2, spread=0.03)


def ours(gamma=3, verifier=None, seed=0, siblings=()):
    return custom_generate(ModelDrafter(CausalLM(DRAFT), gamma, siblings), verifier, seed)


def generate(ids, method=None, **kwargs):
    ids = torch.tensor([ids])
    kwargs = {
        "max_new_tokens": 15,
        "do_sample": False,
        "pad_token_id": 0,
        "attention_mask": torch.ones_like(ids),
        **kwargs,
    }
    return MODEL.generate(ids, custom_generate=method, **kwargs)


KINDS = {
    "greedy": {},
    "end tokens": {"eos_token_id": [7, 12]},
    "penalty": {"repetition_penalty": 1.4},
    "least length": {"min_new_tokens": 8, "eos_token_id": [3, 7]},
    "bad words": {"bad_words_ids": [[5], [3, 7]]},
    "no repeated pair": {"no_repeat_ngram_size": 2},
    "max_length": {"max_new_tokens": None, "max_length": 30},
    "length 1": {"max_new_tokens": 1},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_is_generates_own(kind):
    for prompt in prompts(5):
        for method in (ours(), ours(siblings=(2,)), ours(verifier=GreedyMatch()), custom_generate(NoDrafter())):
            plain = generate(prompt, **KINDS[kind])
            spoken = generate(prompt, method, **KINDS[kind])
            assert torch.equal(spoken, plain)
            assert method.trace.ids == spoken[0, len(prompt) :].tolist()


def test_the_sampled_law_is_the_models():
    """2 tokens after a prompt, top-k 3 at temperature .9: 600 texts against the law, by chi-square."""
    prompt, settings = [3, 1], {"do_sample": True, "temperature": 0.9, "top_k": 3, "max_new_tokens": 2}

    def law(ids):
        with torch.inference_mode():
            logits = MODEL(torch.tensor([list(ids)])).logits[0, -1]
        top = logits.topk(3)
        values = torch.zeros(VOCAB).scatter(0, top.indices, (top.values / 0.9).softmax(-1))
        return values.tolist()

    expected = dict(completions(law, tuple(prompt), (), 2))
    found = Counter(tuple(generate(prompt, ours(2, seed=s), **settings)[0, 2:].tolist()) for s in range(600))
    assert set(found) <= set(expected) and len(expected) == 9
    chi_square = sum((found[w] - 600 * p) ** 2 / (600 * p) for w, p in expected.items())
    assert chi_square < 26.1  # 8 degrees of freedom, p = 0.001


def test_the_same_seed_gives_the_same_text_and_leaves_the_global_state():
    """A16."""
    before = torch.random.get_rng_state()
    texts = [generate([1, 2], ours(seed=s), do_sample=True) for s in (5, 5, 6)]
    assert torch.equal(texts[0], texts[1]) and not torch.equal(texts[0], texts[2])
    assert torch.equal(torch.random.get_rng_state(), before)


def test_stopping_criteria_cut_inside_a_round_and_the_trace_with_it():
    """C1's kind."""
    for length in range(3, 12):
        method = ours(5)
        stop = [lambda ids, scores, n=length, **kwargs: torch.tensor([ids.shape[1] >= n])]
        spoken = generate([1, 2], method, stopping_criteria=stop)
        assert torch.equal(spoken, generate([1, 2])[:, :length])
        assert method.trace.ids == spoken[0, 2:].tolist()
        assert method.trace.reason == "stop"


def test_stop_strings_end_the_text_where_generate_ends_it():
    letters = "abcdefghijklmnopqrstuvwx"
    inner = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    inner.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner)
    string = "".join(letters[i] for i in generate([1, 2])[0, 7:9])
    expected = generate([1, 2], stop_strings=[string], tokenizer=tokenizer)
    assert expected.shape[1] < 17
    criteria = [StopStringCriteria(tokenizer, [string])]
    assert torch.equal(generate([1, 2], ours(4), stopping_criteria=criteria), expected)


def test_the_reasons_that_a_text_ends_are_told_apart():
    method = ours()
    text = generate([1, 2], method)[0, 2:].tolist()
    assert method.trace.reason == "length"
    generate([1, 2], method, eos_token_id=text[4])
    assert method.trace.reason == "eos"


def test_one_callable_serves_many_texts():
    method = ours()
    for prompt in prompts(4):
        assert torch.equal(generate(prompt, method), generate(prompt))


def test_a_lossy_rule_says_so_in_its_trace():
    """A30."""
    method = ours(verifier=Lenience(0.3))
    generate([1, 2], method)
    assert method.trace.lossless is False


@pytest.mark.parametrize(
    "kwargs, message",
    [
        ({"num_beams": 2}, "one text"),
        ({"do_sample": True, "num_return_sequences": 2}, "one text"),
        ({"return_dict_in_generate": True}, "only ids"),
        ({"attention_mask": torch.tensor([[0, 1]])}, "padded"),
    ],
    ids=["beams", "returns", "dict", "padding"],
)
def test_what_is_not_done_is_refused(kwargs, message):
    """E1, E3."""
    with pytest.raises(ValueError, match=message):
        generate([1, 2], ours(), **kwargs)


def test_a_batch_is_refused():
    """E1."""
    ids = torch.tensor([[1, 2], [3, 4]])
    with pytest.raises(ValueError, match="one text at a time"):
        MODEL.generate(ids, max_new_tokens=3, pad_token_id=0, custom_generate=ours())
