"""Model: one causal LM and its cache, target or draft. score() is one forward pass over new tokens, keep() rolls back.

Read after tree.py. The mask and positions of a tree follow SpecInfer (arXiv 2305.09781), section 4.2.
Left out: cache classes (cache.py), loading by name (zoo.py), and any choice of tokens (drafters/, verifiers/).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from transformers import PreTrainedModel

from specdec_lib.cache import cache_keyword, has_sliding_window, keep_rows, new_cache
from specdec_lib.tree import ancestor_mask, depths

TREE_ATTENTION = ("eager", "sdpa")  # the attention implementations that take a mask of our own
COMPILED_CONTEXT = 1024  # rows of a compiled model's cache: every pass attends over all of them
COMPILED_SIZES = (1, 2)  # tokens of the passes that are compiled: those that a draft takes


@dataclass
class ModelOutput:
    """logits (nodes, vocabulary) of the new nodes; hidden (nodes, width), before the final norm, when asked for."""

    logits: torch.Tensor
    hidden: torch.Tensor | None = None


class Model(Protocol):
    """What the loop and the drafters ask of a model.

    length: committed tokens in the cache. Nodes scored since the last keep() are pending: the parents of new
    nodes are indices of pending nodes, -1 for the end of the committed text.
    """

    vocab_size: int
    context: int
    device: torch.device
    length: int

    def start(self) -> None:
        """Forget everything."""

    def feed(self, tokens: Sequence[int]) -> None:
        """Commit tokens without looking at their logits."""

    def score(self, tokens: torch.Tensor, parents: Sequence[int], needs: frozenset[str] = frozenset()) -> ModelOutput:
        """One pass over new nodes (nodes,), appended to the pending ones. needs may name "hidden"."""

    def keep(self, path: Sequence[int]) -> None:
        """Commit these pending nodes, in order; drop the other pending ones."""

    def truncate(self, length: int) -> None:
        """Back to the first `length` committed tokens; nothing stays pending."""


class _Pending:
    """Book-keeping of scored nodes that are not committed yet, shared by all models."""

    length: int
    pending: list[int]

    def _append(self, tokens: torch.Tensor, parents: Sequence[int], context: int) -> None:
        known = len(self.pending)
        if len(parents) != len(tokens) or len(tokens) == 0:
            raise ValueError(
                f"{len(tokens)} tokens with {len(parents)} parents: give one parent a token, and at least one"
            )
        for node, parent in enumerate(parents, start=known):
            if not -1 <= parent < node:
                raise ValueError(f"node {node} has parent {parent}; a parent must come before its child")
        self.pending += parents
        deepest = self.length + 1 + max(depths(self.pending))
        if deepest > context:
            del self.pending[known:]
            raise ValueError(f"{deepest} tokens do not fit this model's context of {context}")

    def _is_chain(self) -> bool:
        return all(parent == node - 1 for node, parent in enumerate(self.pending))


class CausalLM(_Pending):
    """A transformers causal LM as a Model, batch 1.

    vocab_size: use only the first so many logits (padding rows beyond the tokenizer are cut). compiled: passes of one
    or two tokens go through torch.compile, which pays for a small draft, whose passes are mostly Python; the first
    of them take seconds, the context is COMPILED_CONTEXT tokens at most, and trees are refused.
    Raises ValueError for encoder-decoder models and where nothing can be compiled; CacheError for caches that cannot
    be rolled back.
    """

    def __init__(self, model: PreTrainedModel, vocab_size: int | None = None, compiled: bool = False):
        if model.config.is_encoder_decoder:
            raise ValueError(f"{type(model).__name__} is an encoder-decoder model; only decoder-only models work here")
        config = model.config.get_text_config()
        self.model = model.eval()
        self.vocab_size = min(vocab_size or config.vocab_size, config.vocab_size)
        self.context = int(getattr(config, "max_position_embeddings", None) or 2**31)
        self.device = model.device
        self._sliding = has_sliding_window(model)
        self._cache_keyword = cache_keyword(model)
        self.compiled = compiled
        if compiled:
            self.context = min(self.context, COMPILED_CONTEXT)
            self._compiled_forward = torch.compile(model.forward, dynamic=False)
        self.start()
        if compiled:
            self._warm_up()

    def start(self) -> None:
        fixed_rows = self.context if self.compiled else None
        self.cache, self.length, self.pending = new_cache(self.model, fixed_rows), 0, []

    def _warm_up(self) -> None:
        """Compile now, where an error can be told from one of decoding."""
        try:
            self.feed([0, 0, 0])
            for size in COMPILED_SIZES:
                self.score(torch.zeros(size, dtype=torch.long, device=self.device), range(-1, size - 1))
                self.truncate(3)
        except Exception as error:  # whatever the compiler says
            said = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise ValueError(
                f"{type(self.model).__name__} cannot be compiled here ({said}); torch.compile needs a C++ compiler. "
                "Use it as it is, without compiling"
            ) from error
        self.start()

    @torch.inference_mode()
    def feed(self, tokens: Sequence[int]) -> None:
        if not len(tokens):
            return
        ids = torch.as_tensor(tokens, dtype=torch.long, device=self.device)
        self._append(ids, range(-1, len(ids) - 1), self.context)
        self._forward(ids, logits_to_keep=1)
        self.keep(range(len(ids)))

    @torch.inference_mode()
    def score(self, tokens: torch.Tensor, parents: Sequence[int], needs: frozenset[str] = frozenset()) -> ModelOutput:
        self._append(tokens, parents, self.context)
        if needs - {"hidden"}:
            raise ValueError(f"a CausalLM cannot give {sorted(needs - {'hidden'})}")
        if "hidden" in needs and self.compiled:
            raise ValueError("a compiled model gives no hidden states; use the model as it is")
        if "hidden" not in needs:
            return ModelOutput(self._forward(tokens).logits[0, :, : self.vocab_size])
        with input_of(final_norm(self.model)) as hidden:
            logits = self._forward(tokens).logits[0, :, : self.vocab_size]
        return ModelOutput(logits, hidden[0][0])

    @torch.inference_mode()
    def keep(self, path: Sequence[int]) -> None:
        keep_rows(self.cache, self.length, path)
        self.length += len(path)
        self.pending = []

    @torch.inference_mode()
    def truncate(self, length: int) -> None:
        _check_truncation(self.length, length)
        keep_rows(self.cache, length, [])
        self.length, self.pending = length, []

    def _forward(self, tokens: torch.Tensor, **kwargs):
        if not self._is_chain():
            kwargs |= self._tree_inputs(len(tokens))
        kwargs[self._cache_keyword] = self.cache
        forward = self._compiled_forward if self.compiled and len(tokens) in COMPILED_SIZES else self.model
        return forward(
            input_ids=tokens.unsqueeze(0),
            use_cache=True,
            return_dict=True,
            **kwargs,
        )

    def _tree_inputs(self, new: int) -> dict[str, torch.Tensor]:
        """Mask (1, 1, new, committed + pending) and positions (1, new) of the newest nodes of a tree."""
        if self.compiled:
            raise ValueError("a compiled model takes chains only; use a chain, or the model as it is")
        self.check_mask("a tree's", "use a chain")
        dtype = self.model.dtype
        sees = ancestor_mask(self.pending)[-new:].to(self.device)
        mask = torch.zeros(new, self.length + len(self.pending), dtype=dtype, device=self.device)
        mask[:, self.length :].masked_fill_(~sees, torch.finfo(dtype).min)
        positions = torch.tensor(depths(self.pending)[-new:], device=self.device) + self.length
        return {"attention_mask": mask[None, None], "position_ids": positions[None]}

    def check_mask(self, whose: str, instead: str) -> None:
        """ValueError, with the caller's words (whose mask, what else to do), unless it takes a mask of our own."""
        attention = self.model.config._attn_implementation
        if attention not in TREE_ATTENTION or self._sliding:
            what = "a sliding window" if self._sliding else f"the attention implementation {attention!r}"
            raise ValueError(
                f"{type(self.model).__name__} with {what} cannot take {whose} mask; {instead}, or load it with "
                f"attn_implementation one of {', '.join(TREE_ATTENTION)}"
            )


def _check_truncation(have: int, length: int) -> None:
    if not 0 <= length <= have:
        raise ValueError(f"cannot truncate {have} committed tokens to {length}")


def final_norm(model: PreTrainedModel) -> torch.nn.Module:
    """The norm between the last layer and the output matrix. Raises ValueError where none is found."""
    body = model.base_model
    for name in ("norm", "ln_f", "final_layer_norm", "final_layernorm"):
        if hasattr(body, name):
            return getattr(body, name)
    raise ValueError(f"cannot find the final norm of {type(model).__name__}")


class input_of:
    """Context manager: the list that it gives collects the inputs of a module's calls."""

    def __init__(self, module: torch.nn.Module):
        self.module, self.inputs = module, []

    def __enter__(self) -> list[torch.Tensor]:
        self.handle = self.module.register_forward_pre_hook(lambda module, args: self.inputs.append(args[0]))
        return self.inputs

    def __exit__(self, *error) -> None:
        self.handle.remove()


class TableModel(_Pending):
    """A small LM given by numbers: logits_of(ids so far) -> (vocabulary,) logits. For tests and lesson 03.

    hidden_of(ids so far) -> (width,), a hidden state, for rules that need one.
    Keeps tokens in place of a cache, and checks by itself what a cache cannot: every row's whole history.
    """

    def __init__(
        self,
        logits_of: Callable[[tuple[int, ...]], Sequence[float]],
        vocab_size: int,
        context: int = 10**6,
        hidden_of: Callable[[tuple[int, ...]], Sequence[float]] | None = None,
    ):
        self.logits_of, self.vocab_size, self.context, self.hidden_of = logits_of, vocab_size, context, hidden_of
        self.device = torch.device("cpu")
        self.start()

    @classmethod
    def random(cls, vocab_size: int, seed: int, spread: float = 1.0, context: int = 10**6) -> "TableModel":
        """Logits that depend on the whole history through its hash, normal with a standard deviation of spread."""

        def logits_of(ids: tuple[int, ...]) -> list[float]:
            generator = torch.Generator().manual_seed(hash((seed, *ids)) % 2**31)
            return (torch.randn(vocab_size, generator=generator, dtype=torch.float64) * spread).tolist()

        return cls(logits_of, vocab_size, context)

    @classmethod
    def constant(cls, law: Sequence[float], context: int = 10**6) -> "TableModel":
        """The same law after any history."""
        logits = torch.tensor(law, dtype=torch.float64).log().tolist()
        return cls(lambda ids: logits, len(law), context)

    @property
    def length(self) -> int:
        return len(self.ids)

    def start(self) -> None:
        self.ids: list[int] = []
        self.pending, self.pending_tokens = [], []

    def feed(self, tokens: Sequence[int]) -> None:
        self.ids += [int(token) for token in tokens]

    def history(self, node: int) -> tuple[int, ...]:
        path = []
        while node >= 0:
            path.append(self.pending_tokens[node])
            node = self.pending[node]
        return (*self.ids, *path[::-1])

    def score(self, tokens: torch.Tensor, parents: Sequence[int], needs: frozenset[str] = frozenset()) -> ModelOutput:
        self._append(tokens, parents, self.context)
        self.pending_tokens += tokens.tolist()
        first = len(self.pending) - len(tokens)
        histories = [self.history(node) for node in range(first, len(self.pending))]
        output = ModelOutput(torch.tensor([list(self.logits_of(ids)) for ids in histories], dtype=torch.float64))
        if "hidden" in needs:
            if self.hidden_of is None:
                raise ValueError("this TableModel has no hidden states; give it hidden_of")
            output.hidden = torch.tensor([list(self.hidden_of(ids)) for ids in histories], dtype=torch.float64)
        return output

    def keep(self, path: Sequence[int]) -> None:
        self.ids += [self.pending_tokens[node] for node in path]
        self.pending, self.pending_tokens = [], []

    def truncate(self, length: int) -> None:
        _check_truncation(self.length, length)
        self.ids, self.pending, self.pending_tokens = self.ids[:length], [], []
