"""Everything that knows a transformers cache class: make one that grows and rolls back in place, keep a path of it.

Our own. Read with model.py. Sliding-window models get a full cache here, and transformers' own mask keeps their
window, so rolling back past the window's edge stays exact.
Left out: recurrent state, which cannot be rolled back and is refused; many texts at once (rows.py).
"""

import inspect
from collections.abc import Sequence

import torch
from transformers import DynamicCache, PreTrainedModel, StaticCache
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer


class CacheError(RuntimeError):
    """A cache that cannot be rolled back, or did not do what it was told."""


class InPlaceLayer(DynamicLayer):
    """One layer's keys and values, (1, heads, rows, head size), as views of buffers with room behind them.

    New rows are written behind the rows kept, and crop() only shortens the views, so neither copies what is there.
    transformers' own layer copies all of it at every pass.
    """

    ROOM = 256  # rows to begin with; a full buffer doubles

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        old = self.get_seq_length()
        new = old + key_states.shape[-2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._buffers = [_buffer(states, max(new, self.ROOM)) for states in (key_states, value_states)]
        elif new > self._buffers[0].shape[-2]:
            self._buffers = [_buffer(rows, 2 * new, filled=rows) for rows in (self.keys, self.values)]
        keys, values = self._buffers
        keys[:, :, old:new], values[:, :, old:new] = key_states, value_states
        self.keys, self.values = keys[:, :, :new], values[:, :, :new]
        return self.keys, self.values


def _buffer(like: torch.Tensor, rows: int, filled: torch.Tensor | None = None) -> torch.Tensor:
    buffer = like.new_empty(*like.shape[:-2], rows, like.shape[-1])
    if filled is not None:
        buffer[:, :, : filled.shape[-2]] = filled
    return buffer


def new_cache(model: PreTrainedModel, fixed_rows: int | None = None) -> Cache:
    """An empty cache that can be rolled back. Raises CacheError for a model whose cache cannot.

    fixed_rows: of one size from the start, as compiled passes need it, and no more rows than that.
    """
    natural = DynamicCache(config=model.config)
    for layer in natural.layers:
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
            raise CacheError(
                f"{type(model).__name__} keeps its past in a {type(layer).__name__}, which cannot be rolled back "
                "after a rejection; use a model with an ordinary attention cache"
            )
    if getattr(model, "_is_stateful", False):
        raise CacheError(f"{type(model).__name__} keeps a recurrent state, which cannot be rolled back")
    if fixed_rows is not None:
        return StaticCache(config=model.config, max_cache_len=fixed_rows)
    cache = DynamicCache()
    cache.layer_class_to_replicate = InPlaceLayer
    return cache


def cache_keyword(model: PreTrainedModel) -> str:
    """The name under which this model's forward takes a cache: newer transformers renamed it."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def has_sliding_window(model: PreTrainedModel) -> bool:
    return any(type(layer) is DynamicSlidingWindowLayer for layer in DynamicCache(config=model.config).layers)


def keep_rows(cache: Cache, committed: int, path: Sequence[int]) -> None:
    """Keep `committed` rows and, of the rows after them, those of `path` in this order; drop the rest.

    Raises CacheError if the cache then has another length than asked for.
    """
    contiguous = list(path) == list(range(len(path)))
    length = committed + len(path)
    for layer in cache.layers:
        if not layer.is_initialized:
            continue
        if not contiguous:
            source = torch.tensor(path, device=layer.keys.device) + committed
            for rows in (layer.keys, layer.values):
                rows[:, :, committed:length] = rows.index_select(2, source)
        surplus = int(layer.get_seq_length()) - length
        if surplus > 0:
            layer.crop(-surplus)
        if int(layer.get_seq_length()) != length:
            raise CacheError(
                f"{type(layer).__name__} has {int(layer.get_seq_length())} rows after a roll-back to {length}; "
                "this cache cannot be used for speculative decoding"
            )
