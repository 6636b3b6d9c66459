"""FLy: a mismatch passes where the target is uncertain and then agrees with the next drafts, as after a synonym.

Follows FLy (arXiv 2511.22972) as its paper has it, and as its released code is reported to have it (FLyCode).
Left out: temperatures above 0 and branching trees, for which "the next drafts match" is not defined.
"""

import math

import torch

from specdec_lib.sampling import Chance
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import Scores, SureRoll, Verdict, walk
from specdec_lib.verifiers.greedy import matches
from specdec_lib.verifiers.soft import entropies, parent_rows, soft_laws
from specdec_lib.whole import check_whole


class FLy:
    """Accept draft j of K iff it matches, or entropy >= threshold and drafts j + 1 .. j + window are there and match.

    The entropy is that of p at j (at temperature 1: ours), over log of the vocabulary's size. Near the end of a text K
    is what was really drafted (ours). threshold inf is lossless; threshold 0 with window 0 keeps everything.
    ValueError unless threshold >= 0 and window is a whole number from 0 on; for temperatures above 0, branching trees
    and scouts.
    """

    name, needs = "fly", frozenset()

    def __init__(self, threshold: float = 0.3, window: int = 6):
        if isinstance(threshold, bool) or not threshold >= 0:
            raise ValueError(f"threshold of {self.name} must be 0 or more; got {threshold!r}")
        self.threshold, self.window = float(threshold), check_whole(f"window of {self.name}", window, 0)
        self.lossless = math.isinf(self.threshold)

    def verify(self, tree: DraftTree, scores: Scores, chance: Chance) -> Verdict:
        if not scores.greedy:
            raise ValueError(f"{self.name} verifies temperature 0 only; use the method lossless above it")
        if not tree.is_chain or tree.scouts:
            raise ValueError(f"{self.name} judges a single chain; use the method lossless for a tree")
        match = matches(tree, scores)
        uncertain = self.uncertainty(parent_rows(tree, soft_laws(scores))) >= self.threshold
        rescued = uncertain & followed_by_matches(match, self.window)
        return walk(tree, scores, match, SureRoll(scores.best), rescued)

    def uncertainty(self, laws: torch.Tensor) -> torch.Tensor:
        """(nodes, vocabulary) -> (nodes,), from 0 to 1."""
        return entropies(laws) / math.log(laws.shape[-1])


class FLyCode(FLy):
    """FLy with the entropy of the three likeliest tokens alone, in nats and not normalised, as its code is reported to.

    That the three probabilities are p's own, not scaled to sum to 1, is our reading.
    """

    name = "fly-code"

    def uncertainty(self, laws: torch.Tensor) -> torch.Tensor:
        return entropies(laws.topk(min(3, laws.shape[-1]), dim=-1).values)


def followed_by_matches(match: torch.Tensor, window: int) -> torch.Tensor:
    """match: (K + 1,), 1 where draft j of a chain of K matches (index 0, the root, is 0). Returns (K + 1,) bool: drafts
    j + 1 .. j + window are all there, and all match.
    """
    matched = match.cumsum(dim=0)  # among the first j drafts
    followed = torch.zeros_like(match, dtype=torch.bool)
    reach = len(match) - window
    if reach > 0:
        followed[:reach] = matched[window:] - matched[:reach] == window
    return followed
