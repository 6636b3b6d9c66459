"""Typical acceptance: a draft token passes if it is likely enough for how uncertain the target is.

Follows Medusa (Cai et al. 2024, arXiv 2401.10774), section 2.3.1, and the two constants of its code.
Left out: its choice of the longest of several accepted paths; the walk takes the first.
"""

import math

import torch

from specdec_lib.sampling import Chance
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import Scores, Verdict, probability_of, walk
from specdec_lib.verifiers.lossless import standard_or
from specdec_lib.verifiers.soft import entropies, parent_rows, soft_laws


class Typical:
    """Accept x iff p(x) > min(epsilon, delta exp(-H(p))), H in nats.

    At temperature 0, p is the law at temperature 1, and the argmax is always kept (both ours; with delta below 1 the
    argmax passes anyway). Above 0 the test replaces the one of p against q, and where it fails the token is drawn from
    p (ours), so what is emitted is not the target truncated to what passes (arXiv 2607.26627). epsilon 0 keeps every
    token with p > 0; epsilon 1 with delta inf is lossless, and above temperature 0 keeps nothing. ValueError unless
    0 <= epsilon <= 1 and delta > 0.
    """

    name, needs = "typical", frozenset()

    def __init__(self, epsilon: float = 0.09, delta: float = 0.3):
        if isinstance(epsilon, bool) or not 0 <= epsilon <= 1:
            raise ValueError(f"epsilon of typical must be between 0 and 1; got {epsilon!r}")
        if isinstance(delta, bool) or not delta > 0:
            raise ValueError(f"delta of typical must be above 0; got {delta!r}")
        self.epsilon, self.delta = float(epsilon), float(delta)
        self.lossless = self.epsilon == 1 and math.isinf(self.delta)

    def verify(self, tree: DraftTree, scores: Scores, chance: Chance) -> Verdict:
        laws = parent_rows(tree, soft_laws(scores))
        threshold = (self.delta * torch.exp(-entropies(laws))).clamp_max(self.epsilon)
        passes = probability_of(laws, tree.tokens) > threshold
        if scores.greedy:
            return standard_or(tree, scores, chance, passes)
        return walk(tree, scores, passes.to(laws.dtype), chance.roll(scores.laws))
