"""REST: what followed the end of the text wherever it stands in a datastore of other texts, as a tree.

Follows REST (He et al. 2024, arXiv 2311.08252): the longest end of 16 to 2 tokens, up to 5,000 places, 10 tokens from
each, the 64 heaviest prefixes. Which 5,000 of more, evenly spread ones, is ours.
Left out: the authors' draw for every path; the library's rule draws once a node, which keeps the target's law.
"""

from collections.abc import Iterable

import numpy as np
import torch

from specdec_lib.datastore import END, Datastore
from specdec_lib.drafters.base import DraftContext, Feedback
from specdec_lib.tree import DraftTree
from specdec_lib.whole import check_whole

LONGEST, SHORTEST = 16, 2
PLACES, LENGTH = 5000, 10


class Rest:
    """A prefix's weight is the number of places that go on with it. Nothing is learned from one text to the next.

    nodes: how many of the heaviest prefixes are proposed. ValueError for nodes below 1.
    """

    name = "rest"

    def __init__(self, store: Datastore, nodes: int = 64, eos_token_ids: Iterable[int] = ()):
        self.store, self.nodes = store, check_whole("nodes", nodes, 1)
        self.stop_at = np.array([END, *eos_token_ids])
        self.memory = f"{store.header['tokens']} tokens of a datastore, sha256 {store.header['sha256'][:12]}"

    def start(self, prompt: list[int]) -> None:
        pass

    def propose(self, context: DraftContext) -> DraftTree:
        tokens, parents = [context.committed[-1]], [-1]
        match = self.store.longest(context.committed[-LONGEST:], LONGEST, SHORTEST) if context.room else None
        if match is not None:
            key, first, last = match
            rows = self.store.continuations(first, last, key, min(LENGTH, context.room), PLACES)
            place = {(): 0}
            for prefix in heaviest(rows, self.nodes, self.stop_at, context.vocab_size):
                place[prefix] = len(tokens)
                tokens.append(prefix[-1])
                parents.append(place[prefix[:-1]])
        return DraftTree(torch.tensor(tokens, device=context.device), parents)

    def observe(self, feedback: Feedback) -> None:
        pass


def heaviest(rows: np.ndarray, most: int, stop_at: np.ndarray, vocab_size: int) -> list[tuple[int, ...]]:
    """The `most` commonest prefixes of rows (n, length), the shorter first of equally common ones.

    Rows are sorted, so equal prefixes are neighbours. Prefixes end before a token of stop_at and at the vocabulary. A
    prefix is never before a shorter one of its own: that one is at least as common.
    """
    bad = np.logical_or.accumulate(np.isin(rows, stop_at) | (rows >= vocab_size), axis=1)
    begins = np.ones(len(rows), bool)
    begins[1:] = False
    found = []
    for depth in range(rows.shape[1]):
        begins[1:] |= rows[1:, depth] != rows[:-1, depth]
        first = np.flatnonzero(begins)
        counts = np.diff(np.append(first, len(rows)))
        good = ~bad[first, depth]
        found.append(np.stack([-counts[good], np.full(good.sum(), depth + 1), first[good]]))
    ranked = np.concatenate(found, axis=1)
    ranked = ranked[:, np.lexsort(ranked[::-1])[:most]]
    return [tuple(rows[row, :depth].tolist()) for _, depth, row in ranked.T.tolist()]
