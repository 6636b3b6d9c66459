"""What the tests of drafters without a model share: a context to propose in, and greedy decoding beside the plain one.

Our own.
Left out: laws above temperature 0 (laws.py) and the drafters' own specifications, which stand in their test files.
"""

from functools import cache

import torch
from tiny import generated, llama, prompts

from specdec_lib.decode import decode
from specdec_lib.drafters.base import DraftContext
from specdec_lib.model import CausalLM
from specdec_lib.sampling import SamplingSettings

NEW = 40


def context_of(ids, room=50, vocab_size=100):
    return DraftContext(list(ids), room, vocab_size, SamplingSettings().adjuster(), None, torch.device("cpu"))


@cache
def _plain():
    """A tiny model, prompts of lengths 1 to 20, and transformers' own greedy text after each."""
    model = llama(seed=3)
    return model, [(prompt, generated(model, prompt, NEW)) for prompt in prompts(8)]


def plain_texts() -> list[list[int]]:
    """Those prompts with their texts."""
    return [[*prompt, *plain] for prompt, plain in _plain()[1]]


def kept_beside_plain(make) -> int:
    """Decodes every prompt with the drafter made by make(), float32; the texts must be the plain ones, token for token.

    Returns how many proposed tokens were kept, so that a test can ask for some.
    """
    model, texts = _plain()
    target, drafter, kept = CausalLM(model), make(), 0
    for prompt, plain in texts:
        trace = decode(target, prompt, NEW, drafter)
        assert trace.ids == plain
        kept += sum(len(r.path) for r in trace.rounds)
    return kept


def pocket_texts(pair, drafter):
    """(plain, drafted) traces of one problem of the pocket world, greedy."""
    prompt = pair.prompt("Sam buys 3 boxes with 4 pens each and gives away 5 pens. How many pens has Sam?")
    return [decode(pair.target, prompt, 60, d, stops=pair.stops) for d in (None, drafter)]
