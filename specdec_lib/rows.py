"""Many texts in one model: a row each, of its own length, read together in one forward pass.

Our own. Read after model.py. Column c of a row's cache holds token c of its text, so columns are positions, and a row
is rolled back by making it shorter: what stands behind its end is masked, and overwritten by what is read next.
Left out: trees, sliding windows, and any care for speed beyond one pass for all rows.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers.cache_utils import Cache, DynamicLayer

from specdec_lib.cache import cache_keyword
from specdec_lib.model import CausalLM, ModelOutput, final_norm, input_of


@dataclass
class Place:
    """Where the pass that runs now writes its new tokens and what it sees: two indices of (rows, heads, columns)."""

    write: tuple = ()
    seen: tuple = ()
    width: int = 0  # columns in sight


class RowsLayer(DynamicLayer):
    """One layer's keys and values, (most rows, heads, columns, head size), in buffers that grow by doubling."""

    def __init__(self, most: int, place: Place):
        super().__init__()
        self.most, self.place = most, place

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        """Write the new states, (n, heads, new, head size), and give those rows, (n, heads, width, head size)."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = (
                states.new_zeros(self.most, states.shape[1], 0, states.shape[3])
                for states in (key_states, value_states)
            )
        missing = self.place.width - self.keys.shape[2]
        if missing > 0:  # zeros, since a masked NaN would still spoil its row
            size = (0, 0, 0, max(missing, self.keys.shape[2]))
            self.keys, self.values = (torch.nn.functional.pad(held, size) for held in (self.keys, self.values))
        at, seen = self.place.write, self.place.seen
        self.keys[at], self.values[at] = key_states.transpose(1, 2), value_states.transpose(1, 2)
        return self.keys[seen], self.values[seen]


class RowsModel:
    """A CausalLM's weights with a cache of several rows, beside its own cache, which is not touched.

    lengths: tokens of each row that are read and count; make one smaller to forget. Raises ValueError for a model
    that takes no mask of our own.
    """

    def __init__(self, lm: CausalLM, most: int):
        if not isinstance(lm, CausalLM):
            raise ValueError(f"a batch needs a CausalLM; got a {type(lm).__name__}")
        lm.check_mask("a batch's", "decode the texts one by one")
        self.lm, self.lengths, self.place = lm, [], Place()
        self.layers = [RowsLayer(most, self.place) for _ in range(lm.model.config.get_text_config().num_hidden_layers)]
        self.cache, self.cache_keyword = Cache(layers=self.layers), cache_keyword(lm.model)

    def add(self) -> None:
        """A new row behind the others, empty."""
        self.lengths.append(0)

    @torch.inference_mode()
    def drop(self, row: int) -> None:
        """Forget a row; the last one takes its place."""
        last = len(self.lengths) - 1
        if row != last:
            for layer in self.layers:
                if layer.is_initialized:
                    layer.keys[row], layer.values[row] = layer.keys[last], layer.values[last]
            self.lengths[row] = self.lengths[last]
        self.lengths.pop()

    @torch.inference_mode()
    def read(
        self,
        rows: Sequence[int],
        texts: Sequence[torch.Tensor],
        needs: frozenset[str] = frozenset(),
        last: bool = False,
    ) -> ModelOutput:
        """One pass over new tokens of these rows, texts[i] (new,) for rows[i], in rising order of rows.

        logits (rows, longest, vocabulary) and, if needed, hidden (rows, longest, width); what stands behind a shorter
        text repeats its last token. last: logits of the last token alone. ValueError where the context is too short.
        """
        if needs - {"hidden"}:
            raise ValueError(f"a batch cannot give {sorted(needs - {'hidden'})}")
        device = self.lm.device
        counts, starts = [len(text) for text in texts], [self.lengths[row] for row in rows]
        ends = [start + count for start, count in zip(starts, counts, strict=True)]
        width = max(ends)
        if width > self.lm.context:
            raise ValueError(f"{width} tokens do not fit this model's context of {self.lm.context}")
        # (n, new): a short text repeats its last token, at the same position and into the same column
        final = torch.tensor(counts, device=device)[:, None] - 1
        index = torch.arange(max(counts), device=device).minimum(final)
        columns = index + torch.tensor(starts, device=device)[:, None]
        later = torch.arange(width, device=device) > columns[:, :, None]  # (n, new, width)
        mask = torch.zeros(later.shape, dtype=self.lm.model.dtype, device=device)
        mask.masked_fill_(later, torch.finfo(mask.dtype).min)
        which = torch.tensor(rows, device=device)
        neighbours = rows[-1] - rows[0] + 1 == len(rows)  # a slice copies nothing
        self.place.write = (which[:, None], slice(None), columns)
        self.place.seen = (slice(rows[0], rows[-1] + 1) if neighbours else which, slice(None), slice(width))
        self.place.width = width
        watched = input_of(final_norm(self.lm.model)) if "hidden" in needs else nullcontext()
        with watched as hidden:
            output = self.lm.model(
                input_ids=pad_sequence(list(texts), batch_first=True).gather(1, index),
                attention_mask=mask[:, None],
                position_ids=columns,
                use_cache=True,
                return_dict=True,
                logits_to_keep=int(last),
                **{self.cache_keyword: self.cache},
            )
        for row, end in zip(rows, ends, strict=True):
            self.lengths[row] = end
        return ModelOutput(output.logits[:, :, : self.lm.vocab_size], hidden[0] if hidden else None)
