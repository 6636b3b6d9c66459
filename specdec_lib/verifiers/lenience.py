"""Lenience: the first lossy step, one knob from lossless (1) towards accepting everything (0).

Follows Leviathan et al. 2023 (arXiv 2211.17192), appendix A.5.
Left out: rules that look at more than p and q of one token.
"""

import math

import torch

from specdec_lib.sampling import Chance
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import Scores, Verdict, logit_gaps, walk
from specdec_lib.verifiers.lossless import accept_and_recover, standard_or


class Lenience:
    """Sampled: accept with min(1, p / (l q)), residual unchanged. Greedy: accept iff p(x) >= l max p.

    l in (0, 1]; 1 is the lossless rule exactly. No token is emitted more than 1 / l times as often as under p.
    """

    name, needs = "lenience", frozenset()

    def __init__(self, lenience: float = 0.1):
        if isinstance(lenience, bool) or not 0 < lenience <= 1:
            raise ValueError(f"lenience must be above 0 and at most 1; got {lenience!r}")
        self.lenience = float(lenience)
        self.lossless = self.lenience == 1.0

    def verify(self, tree: DraftTree, scores: Scores, chance: Chance) -> Verdict:
        if not scores.greedy:
            accept, recovered_laws = accept_and_recover(tree, scores.laws, self.lenience)
            return walk(tree, scores, accept, chance.roll(recovered_laws))
        return standard_or(tree, scores, chance, near_best(tree, scores, self.lenience))


def near_best(tree: DraftTree, scores: Scores, share: float) -> torch.Tensor | None:
    """Nodes with p(x) >= share max p, (nodes,) bool; None at 1, where a tie would pass and a match does not.

    The greedy rule of Lenience(share), Lossy(share) and Cascade(1 - share).
    """
    if share == 1:
        return None
    return logit_gaps(tree, scores) >= (math.log(share) if share > 0 else -math.inf)
