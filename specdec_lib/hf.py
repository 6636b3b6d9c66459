"""For transformers users: our loop inside model.generate(custom_generate=...).

Follows transformers' protocol for custom decoding methods.
Left out: batches and beams, which are refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from transformers import EosTokenCriteria, MaxLengthCriteria, StoppingCriteriaList

from specdec_lib.decode import EOS, STOP, Session, Stops
from specdec_lib.drafters import Drafter
from specdec_lib.model import CausalLM
from specdec_lib.sampling import Adjuster
from specdec_lib.verifiers import Verifier


def custom_generate(drafter: Drafter, verifier: Verifier | None = None, seed: int = 0) -> Callable:
    """A callable for `model.generate(..., custom_generate=custom_generate(drafter))`.

    generate's own logits processors, EOS ids, max_new_tokens and further stopping criteria are respected. The trace
    is left at `.trace` of the callable. Raises ValueError for more than one text or beam, for padding and for
    outputs other than ids. transformers hands on no streamer and no tokenizer: stop strings go in as a
    StopStringCriteria. verifier: lossless rejection unless given.

    >>> model.generate(ids, max_new_tokens=50, custom_generate=custom_generate(ModelDrafter(draft)))
    """

    def decode(model, input_ids, logits_processor, stopping_criteria, generation_config, **model_kwargs):
        if generation_config.num_beams != 1 or generation_config.num_return_sequences not in (None, 1):
            raise ValueError("speculative decoding follows one text: num_beams and num_return_sequences must be 1")
        if generation_config.return_dict_in_generate:
            raise ValueError("only ids are returned: leave return_dict_in_generate out; laws are in the trace")
        mask = model_kwargs.get("attention_mask")
        if mask is not None and not bool(mask.all()):
            raise ValueError("the prompt is padded (zeros in attention_mask); give its own ids alone")
        eos = generation_config.eos_token_id
        eos_ids = frozenset([eos] if isinstance(eos, int) else eos or [])
        further = [c for c in stopping_criteria if not isinstance(c, MaxLengthCriteria | EosTokenCriteria)]
        stops = _CriteriaStops(eos_ids, criteria=StoppingCriteriaList(further), device=input_ids.device)
        session = Session(CausalLM(model), drafter, verifier, stops=stops, seed=seed).start(input_ids)
        adjuster = Adjuster(logits_processor, greedy=not generation_config.do_sample)
        for _ in session.rounds(generation_config.max_length - input_ids.shape[1], adjuster):
            pass
        decode.trace = session.trace
        return torch.tensor([session.ids], device=input_ids.device)

    return decode


@dataclass
class _CriteriaStops(Stops):
    """Stops that also ask generate's stopping criteria, on each prefix of what a round emits."""

    criteria: StoppingCriteriaList = field(default_factory=StoppingCriteriaList)
    device: torch.device | None = None

    def first(self, ids: Sequence[int], start: int, emitted: Sequence[int]) -> tuple[int, str] | None:
        for i, token in enumerate(emitted):
            if token in self.eos_token_ids:
                return i + 1, EOS
            if len(self.criteria):
                text = torch.tensor([[*ids, *emitted[: i + 1]]], device=self.device)
                if bool(self.criteria(text, None).all()):
                    return i + 1, STOP
        return None
