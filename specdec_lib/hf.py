"""For transformers users: our loop inside model.generate(custom_generate=...).

Follows transformers' protocol for custom decoding methods.
Left out: batches and beams, which are refused.
"""

from collections.abc import Callable

import torch

from specdec_lib.decode import Session, Stops
from specdec_lib.drafters import Drafter
from specdec_lib.model import CausalLM
from specdec_lib.sampling import Adjuster
from specdec_lib.verifiers import Verifier


def custom_generate(drafter: Drafter, verifier: Verifier | None = None, seed: int = 0) -> Callable:
    """A callable for `model.generate(..., custom_generate=custom_generate(drafter))`.

    generate's own logits processors, EOS ids, max_new_tokens and further stopping criteria are respected (criteria
    are asked after each round, on each prefix of what it emitted). The trace is left at `.trace` of the callable.
    Raises ValueError for more than one text or beam. verifier: lossless rejection unless given.

    >>> model.generate(ids, max_new_tokens=50, custom_generate=custom_generate(ModelDrafter(draft)))
    """

    def decode(model, input_ids, logits_processor, stopping_criteria, generation_config, **model_kwargs):
        if generation_config.num_beams != 1 or generation_config.num_return_sequences not in (None, 1):
            raise ValueError("speculative decoding follows one text: num_beams and num_return_sequences must be 1")
        eos = generation_config.eos_token_id
        eos_ids = frozenset([eos] if isinstance(eos, int) else eos or [])
        session = Session(CausalLM(model), drafter, verifier, stops=Stops(eos_ids), seed=seed).start(input_ids)
        prompt_length = input_ids.shape[1]
        adjuster = Adjuster(logits_processor, greedy=not generation_config.do_sample)
        for _ in session.rounds(generation_config.max_length - prompt_length, adjuster):
            length = _criteria_length(
                session.ids, session.trace.rounds[-1].emitted, stopping_criteria, input_ids.device
            )
            if length is not None:
                del session.ids[length:]
                break
        decode.trace = session.trace
        return torch.tensor([session.ids], device=input_ids.device)

    return decode


def _criteria_length(ids: list[int], emitted: list[int], criteria, device) -> int | None:
    """The earliest length, within the last round, at which a stopping criterion is met; None if none is."""
    for length in range(len(ids) - len(emitted) + 1, len(ids) + 1):
        if bool(criteria(torch.tensor([ids[:length]], device=device), None).all()):
            return length
    return None
