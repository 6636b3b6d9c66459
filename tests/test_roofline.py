"""The batch limit and the memory of models: published figures, limits of the formula, and a real cache's bytes.
Follows specdec_lib/roofline.py.
Left out: what a machine really reaches (specdec doctor).
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import llama

from specdec_lib.model import CausalLM
from specdec_lib.roofline import (
    Device,
    Size,
    pass_s,
    roofline_times,
    speedup_of_batch,
    speedup_on,
    turnover_batch,
    turnover_tokens,
)
from specdec_lib.theory import best_gamma_from_times, expected_emitted, speedup
from specdec_lib.zoo import parameter_bytes

H100, A100, RTX4090 = Device(989e12, 3.35e12), Device(312e12, 2.039e12), Device(165.2e12, 1.008e12)
LLAMA_8B = Size(8.03e9, layers=32, kv_heads=8, head_dim=128)
LLAMA_1B = Size(1.24e9, layers=16, kv_heads=8, head_dim=64)
rates = st.floats(0, 1)


@pytest.mark.parametrize("device, tokens, batch", [(H100, 295, 49), (A100, 153, 26), (RTX4090, 164, 27)])
def test_where_a_pass_turns_compute_bound(device, tokens, batch):
    """16-bit weights; with gamma 5 a text brings six tokens. A quarter of it for 4-bit weights and 16-bit maths."""
    assert turnover_tokens(device) == pytest.approx(tokens, abs=0.6)
    assert turnover_batch(turnover_tokens(device), 5) == pytest.approx(batch, abs=0.6)
    assert turnover_tokens(device, 0.5) == pytest.approx(turnover_tokens(device) / 4)


@given(alpha=rates, gamma=st.integers(0, 12), c=rates)
def test_a_small_batch_gives_the_papers_formula(alpha, gamma, c):
    assert speedup_of_batch([alpha] * gamma, c, 4, turnover=4 * 13) == pytest.approx(speedup(alpha, gamma, c))


@given(alpha=rates, gamma=st.integers(1, 12), c=rates, batch=st.integers(100, 1000))
def test_where_both_passes_are_compute_bound_nothing_is_gained(alpha, gamma, c, batch):
    factor = speedup_of_batch([alpha] * gamma, c, batch, turnover=100)
    assert factor == pytest.approx(expected_emitted(alpha, gamma) / (gamma * c + gamma + 1))
    assert factor <= 1 + 1e-12


@given(alpha=rates, gamma=st.integers(0, 8), c=rates, batch=st.integers(1, 500))
def test_a_larger_batch_never_gains_more(alpha, gamma, c, batch):
    small, large = (speedup_of_batch([alpha] * gamma, c, b, turnover=150) for b in (batch, batch + 1))
    assert large <= small + 1e-12


def test_the_best_draft_gets_shorter_as_the_batch_grows():
    best = [
        best_gamma_from_times([0.8] * 64, times, 0.05 * times[1])
        for times in (roofline_times(295, batch) for batch in (1, 32, 64, 128, 300))
    ]
    assert best == sorted(best, reverse=True)
    assert best[0] == 8 and best[-1] == 0


def test_long_contexts_pay_again():
    """Batch 256: compute-bound, and a loss, on short texts; on long ones the cache is the traffic, and it gains."""
    short, long = (speedup_on([0.8] * 3, LLAMA_8B, LLAMA_1B, H100, context, batch=256) for context in (0, 32_000))
    assert short < 1 < long
    assert pass_s(LLAMA_8B, H100, 4, 32_000, 256) == pytest.approx(pass_s(LLAMA_8B, H100, 1, 32_000, 256))
    assert pass_s(LLAMA_8B, H100, 4, 0, 256) == pytest.approx(2 * 8.03e9 * 1024 / 989e12)


def test_the_bytes_of_a_cache_by_hand():
    """128 KiB a token for Llama-3.1-8B and 320 KiB for the 70B in 16 bits; half of it in 8 bits."""
    assert LLAMA_8B.cache_bytes(1) == 128 * 1024
    assert Size(70.6e9, layers=80, kv_heads=8, head_dim=128).cache_bytes(1) == 320 * 1024
    assert Size(8e9, 32, 8, 128, bytes_per_value=1).cache_bytes(1000, batch=3) == 64 * 1024 * 3000
    assert LLAMA_8B.memory_bytes(8192, batch=2) == 8.03e9 * 2 + 2**31
    assert Size(8e9, 32, 8, 128, bytes_per_weight=0.5).weight_bytes == 4e9


def test_the_bytes_are_those_of_a_real_model_and_its_cache():
    network = llama(1)
    config, model = network.config, CausalLM(network)
    size = Size(
        sum(p.numel() for p in network.parameters()), config.num_hidden_layers, config.num_key_value_heads,
        config.head_dim, bytes_per_weight=4, bytes_per_value=4,
    )  # fmt: skip
    model.feed(range(20))
    held = sum(t.numel() * t.element_size() for layer in model.cache.layers for t in _rows(layer, 20))
    assert size.cache_bytes(20) == held
    assert size.weight_bytes == parameter_bytes(network)


def _rows(layer, n):
    """Keys and values of the first n tokens, whatever room the layer has kept besides."""
    assert torch.is_tensor(layer.keys)
    return layer.keys[:, :, :n], layer.values[:, :, :n]


@pytest.mark.parametrize("batch", [0, -1, 1.5, True])
def test_a_batch_that_cannot_be_is_named(batch):
    with pytest.raises(ValueError, match="a batch holds a whole number of texts, 1 or more"):
        speedup_of_batch([0.5], 0.1, batch, 100)
    with pytest.raises(ValueError, match="a batch holds"):
        pass_s(LLAMA_8B, H100, 1, batch=batch)
