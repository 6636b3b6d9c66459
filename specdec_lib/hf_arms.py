"""Hugging Face's own decoding as arms of a benchmark: generate, assisted generation, prompt lookup. A watch on passes.

Follows transformers 5's generation/utils.py and candidate_generator.py, as installed. Its draft length is read from
the *assistant's* generation config alone: schedule "constant" and confidence threshold 0 keep it at gamma.
Left out: assisted generation for models of two vocabulary sizes, which there is another algorithm (re-encoding).
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from transformers import GenerationConfig, PreTrainedModel

from specdec_lib.methods import GAMMA
from specdec_lib.sampling import COLDEST
from specdec_lib.zoo import Pair

# name: (what it is in a line, its knobs with their defaults)
HF_METHODS = {
    "hf-generate": ("Hugging Face: generate with the target alone", {}),
    "hf-assisted": ("Hugging Face: assisted generation, its draft length held at gamma", {"gamma": GAMMA}),
    "hf-lookup": ("Hugging Face: prompt lookup, up to gamma tokens after a repeated pair of tokens", {"gamma": GAMMA}),
}


def can_assist(pair: Pair) -> bool:
    """Do both models have logits of one size? Else Hugging Face decodes the draft and encodes its text again."""
    sizes = [m.model.config.get_text_config().vocab_size for m in (pair.target, pair.draft)]
    return sizes[0] == sizes[1]


@dataclass
class HFArm:
    """One of Hugging Face's methods, ready to run on a pair's own model objects. lossless: as its authors mean it.

    Raises ValueError for a gamma below 1, and for assisted generation where can_assist says no.
    """

    name: str
    knobs: dict[str, float]
    pair: Pair
    temperature: float
    max_new_tokens: int
    lossless: bool = field(default=True, init=False)
    has_draft_model, fixed_gamma, learns = False, None, False  # nothing here leaves a trace

    def __post_init__(self) -> None:
        if self.knobs.get("gamma", 1) < 1:
            raise ValueError(f"{self.name} needs a gamma of 1 or more; got {self.knobs['gamma']}")
        if self.name == "hf-assisted" and not can_assist(self.pair):
            raise ValueError(
                "hf-assisted: target and draft have logits of two sizes, for which Hugging Face re-encodes the draft's "
                "text, another algorithm; leave hf-assisted out of --methods"
            )
        eos = sorted(self.pair.stops.eos_token_ids)
        self.config = GenerationConfig(
            max_new_tokens=self.max_new_tokens,
            eos_token_id=eos or None,
            pad_token_id=eos[0] if eos else None,  # another one the draft would not look at where the prompt has it
            cache_implementation="dynamic",
            do_sample=self.temperature >= COLDEST,
            prompt_lookup_num_tokens=self.knobs["gamma"] if self.name == "hf-lookup" else None,
        )
        if self.config.do_sample:  # all else at values that change nothing: unset, transformers keeps the 50 likeliest
            self.config.temperature, self.config.top_k, self.config.top_p = float(self.temperature), 0, 1.0
        self.draft_config = GenerationConfig(
            num_assistant_tokens=self.knobs.get("gamma"),
            num_assistant_tokens_schedule="constant",
            assistant_confidence_threshold=0.0,
        )

    def renew(self) -> None:
        """Nothing is learned from one answer to the next."""

    def run(self, prompt: Sequence[int], seed: int) -> list[int]:
        """The new ids, EOS included. transformers draws from the global random state, which is put back."""
        target, draft = self.pair.target.model, self.pair.draft.model
        assistant = {"assistant_model": draft} if self.name == "hf-assisted" else {}
        ids = torch.tensor([list(prompt)], device=target.device)
        with (
            _generation_config(target, self.config),
            _generation_config(draft, self.draft_config),
            torch.random.fork_rng(devices={model.device for model in (target, draft) if model.device.type == "cuda"}),
        ):
            torch.manual_seed(seed)
            out = target.generate(ids, attention_mask=torch.ones_like(ids), generation_config=self.config, **assistant)
        return out[0, len(prompt) :].tolist()


@contextmanager
def _generation_config(model: PreTrainedModel, config: GenerationConfig) -> Iterator[None]:
    """Give the model this generation config for a while: what is unset in a call's own would come from the model's."""
    own, model.generation_config = model.generation_config, config
    try:
        yield
    finally:
        model.generation_config = own


@dataclass
class PassWatch:
    """Counts a model's forward passes and their seconds, from outside: for any arm, ours or Hugging Face's.

    new_tokens: how many tokens each pass read. seconds: None on a GPU, where a pass goes on after its call returns.
    """

    model: PreTrainedModel
    new_tokens: list[int] = field(default_factory=list)
    seconds: float | None = 0.0

    def __enter__(self) -> "PassWatch":
        if self.model.device.type != "cpu":
            self.seconds = None
        before = self.model.register_forward_pre_hook(self._begin, with_kwargs=True)
        after = self.model.register_forward_hook(self._end, prepend=True)
        self.handles = [before, after]
        return self

    def _begin(self, model, args, kwargs) -> None:
        self.new_tokens.append((args[0] if args else kwargs["input_ids"]).shape[1])
        self.began = time.perf_counter()

    def _end(self, model, args, output) -> None:
        if self.seconds is not None:
            self.seconds += time.perf_counter() - self.began

    def __exit__(self, *error) -> None:
        for handle in self.handles:
            handle.remove()
