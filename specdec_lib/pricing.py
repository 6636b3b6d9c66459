"""T(k) as the loop pays it: seconds of a round over a tree of k nodes, with its mask, the verdict and the roll-back.

Our own. machine.pass_times times the target's pass over a chain alone; a tree's round costs a little more.
Left out: the drafter's own time, which it knows how to spend.
"""

import statistics
from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

import torch

from specdec_lib.decode import Session
from specdec_lib.drafters.base import DraftContext, NoDrafter
from specdec_lib.machine import PASS_SIZES
from specdec_lib.model import CausalLM, Model
from specdec_lib.tree import DraftTree
from specdec_lib.whole import check_whole

CONTEXT = 64  # tokens before the first round; a quarter of the model's context if that is less

_known: WeakKeyDictionary[torch.nn.Module, dict[int, float]] = WeakKeyDictionary()


def prices_of(target: CausalLM) -> dict[int, float]:
    """round_times of this model, measured once in a process, so that all its drafters buy at the same prices."""
    if target.model not in _known:
        _known[target.model] = round_times(target)
    return dict(_known[target.model])


def remember_prices(target: CausalLM, times: Mapping[int, float]) -> None:
    """From now on these are the model's prices, as when a stopped run is gone on with."""
    _known[target.model] = dict(times)


class _Stars(NoDrafter):
    """Trees of `size` nodes, all but the root below it."""

    size = 1

    def propose(self, context: DraftContext) -> DraftTree:
        tokens = torch.zeros(self.size, dtype=torch.long, device=context.device)  # which ones they are costs nothing
        tokens[0] = context.committed[-1]
        return DraftTree(tokens, [-1] + [0] * (self.size - 1))


def round_times(target: Model, ks: Sequence[int] = PASS_SIZES, repeats: int = 5) -> dict[int, float]:
    """{k: median seconds of a greedy round over k nodes}, drafting not counted, after some 64 tokens.

    Each repeat goes through all k, so that a disturbance does not fall on one of them; the first round of each k warms
    up. The model is started anew before and after. ValueError for repeats or a k below 1.
    """
    check_whole("repeats", repeats, 1)
    for k in ks:
        check_whole("k, the nodes of a tree,", k, 1)
    drafter, seconds = _Stars(), {k: [] for k in ks}
    session = Session(target, drafter).start(
        [token % target.vocab_size for token in range(min(CONTEXT, target.context // 4))]
    )
    for repeat in range(repeats + 1):
        for k in seconds:
            drafter.size = k
            round_ = next(session.rounds(2))  # two, so that there is room for a draft
            if repeat:
                seconds[k].append(round_.seconds - round_.draft_s)
    target.start()
    return {k: statistics.median(taken) for k, taken in seconds.items()}
