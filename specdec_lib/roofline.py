"""What the machine allows: from which batch on verification stops being free, and the memory of two models.

Follows the roofline model (Williams et al. 2009): a pass takes as long as the slower of its memory traffic and its
arithmetic; S(B) as in theory.py, with the times of a batch. MagicDec (arXiv 2408.11049) for long contexts.
Left out: attention's own arithmetic, activations, and how well a kernel reaches either limit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specdec_lib.theory import LARGEST, speedup_from_times


@dataclass(frozen=True)
class Device:
    """Its two limits: flops_per_s at the dtype of the maths, bytes_per_s of its memory."""

    flops_per_s: float
    bytes_per_s: float


@dataclass(frozen=True)
class Size:
    """A model, as far as memory and traffic go.

    bytes_per_weight: 2 in 16 bits, 0.5 in 4 bits. bytes_per_value: of a number in its cache.
    kv_heads: heads of keys and values (fewer than attention heads in most models).
    """

    parameters: float
    layers: int
    kv_heads: int
    head_dim: int
    bytes_per_weight: float = 2.0
    bytes_per_value: float = 2.0

    @property
    def weight_bytes(self) -> float:
        return self.parameters * self.bytes_per_weight

    def cache_bytes(self, context: int, batch: int = 1) -> float:
        """Keys and values of `batch` texts of `context` tokens each."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.bytes_per_value * context * batch

    def memory_bytes(self, context: int, batch: int = 1) -> float:
        """Weights and cache; for a pair, add target and draft. A run needs some more, for activations and logits."""
        return self.weight_bytes + self.cache_bytes(context, batch)


# ---- short texts: the weights are the traffic ------------------------------------------------------------------


def turnover_tokens(device: Device, bytes_per_weight: float = 2.0) -> float:
    """Tokens in a pass from which arithmetic takes longer than reading the weights: two operations a weight and token.

    About 295 on an H100, 153 on an A100 and 164 on a 4090 in 16 bits; a quarter of it with 4-bit weights and 16-bit
    maths.
    """
    return device.flops_per_s / device.bytes_per_s * bytes_per_weight / 2


def turnover_batch(turnover: float, gamma: int) -> float:
    """The batch at which verifying gamma drafts a text, gamma + 1 tokens each, reaches the turnover."""
    return turnover / (gamma + 1)


def roofline_times(turnover: float, batch: int = 1, ks: Iterable[int] = range(1, LARGEST + 2)) -> dict[int, float]:
    """T(batch, k) = max(1, batch k / turnover) for every k, in units of one token's pass: `times` for theory.py."""
    _check_batch(batch)
    return {k: max(1.0, batch * k / turnover) for k in ks}


def speedup_of_batch(acceptance: Sequence[float], c: float, batch: int, turnover: float) -> float:
    """S(B) = E[emitted] T(B, 1) / (gamma D(B, 1) + T(B, gamma + 1)), both models with the same turnover.

    acceptance: by position, as in theory.py. c: a draft step over a target step, at batch 1. Where even one token a
    text is beyond the turnover this is E[emitted] / (gamma c + gamma + 1): never a gain.
    """
    times = roofline_times(turnover, batch, range(1, len(acceptance) + 2))
    return speedup_from_times(acceptance, times, c * times[1])


# ---- long texts: the cache is the traffic too ------------------------------------------------------------------


def pass_s(size: Size, device: Device, k: int, context: int = 0, batch: int = 1) -> float:
    """Seconds of a pass over k tokens for each of `batch` texts, each after `context` tokens: the slower limit."""
    _check_batch(batch)
    traffic_s = size.memory_bytes(context, batch) / device.bytes_per_s
    return max(traffic_s, 2 * size.parameters * k * batch / device.flops_per_s)


def speedup_on(
    acceptance: Sequence[float], target: Size, draft: Size, device: Device, context: int = 0, batch: int = 1
) -> float:
    """S(B) with the times of pass_s: with long contexts every text brings its own cache, and drafting pays again."""
    times = {k: pass_s(target, device, k, context, batch) for k in {1, len(acceptance) + 1}}
    return speedup_from_times(acceptance, times, pass_s(draft, device, 1, context, batch))


def _check_batch(batch: int) -> None:
    if isinstance(batch, bool) or int(batch) != batch or batch < 1:
        raise ValueError(f"a batch holds a whole number of texts, 1 or more; got {batch!r}")
