"""Tiny transformers models with random weights, made in milliseconds, and plain greedy decoding to compare with.
Follows transformers' own configuration classes.
Left out: trained models (the pocket pair).
"""

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

VOCAB = 24
_SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
_IDS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


def _made(kind, config, seed, attention="sdpa"):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config._attn_implementation = attention
        return kind(config).eval()


def llama(seed=0, vocab=VOCAB, context=128, attention="sdpa", spread=0.3):
    """spread: standard deviation of the weights; large enough that texts do not fall into one token for ever."""
    config = LlamaConfig(
        vocab_size=vocab, max_position_embeddings=context, initializer_range=spread, num_key_value_heads=1,
        **_SMALL, **_IDS,
    )  # fmt: skip
    return _made(LlamaForCausalLM, config, seed, attention)


def gpt2(seed=0, vocab=VOCAB, context=128, attention="sdpa"):
    config = GPT2Config(
        vocab_size=vocab, n_positions=context, n_embd=32, n_layer=2, n_head=2, initializer_range=0.3, **_IDS
    )
    return _made(GPT2LMHeadModel, config, seed, attention)


def mistral(seed=0, window=4):
    config = MistralConfig(
        vocab_size=VOCAB, max_position_embeddings=128, sliding_window=window, num_key_value_heads=1,
        initializer_range=0.3, **_SMALL, **_IDS,
    )  # fmt: skip
    return _made(MistralForCausalLM, config, seed)


def mamba(seed=0):
    config = MambaConfig(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, state_size=4)
    return _made(MambaForCausalLM, config, seed, "eager")


def t5(seed=0):
    config = T5Config(
        vocab_size=VOCAB, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    return _made(T5ForConditionalGeneration, config, seed)


def disturbed(model, seed, spread):
    """The same model with noise in its weights: a draft that agrees sometimes."""
    other = type(model)(model.config).eval()
    other.load_state_dict(model.state_dict())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in other.parameters():
            weights += spread * torch.randn(weights.shape, generator=generator)
    return other


def generated(model, prompt, n, **kwargs) -> list[int]:
    """transformers' own greedy decoding: the new ids."""
    if n == 0:
        return []
    ids = torch.tensor([prompt], device=model.device)
    kwargs = {"do_sample": False, "eos_token_id": None, "pad_token_id": 0, **kwargs}
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=n, **kwargs)
    return out[0, len(prompt) :].tolist()


def prompts(n, longest=20, vocab=VOCAB, seed=0) -> list[list[int]]:
    """Random prompts of lengths 1 to longest."""
    generator = torch.Generator().manual_seed(seed)
    lengths = [1 + (longest - 1) * i // max(1, n - 1) for i in range(n)]
    return [torch.randint(vocab, (length,), generator=generator).tolist() for length in lengths]
