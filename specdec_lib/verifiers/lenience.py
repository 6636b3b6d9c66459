"""Lenience: the first lossy step, one knob from lossless (1) towards accepting everything (0).

Follows Leviathan et al. 2023 (arXiv 2211.17192), appendix A.5.
Left out: rules that look at more than p and q of one token.
"""

import math

from specdec_lib.sampling import Chance
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import Scores, SureRoll, Verdict, logit_gaps, walk
from specdec_lib.verifiers.greedy import matches
from specdec_lib.verifiers.lossless import accept_and_recover


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
        rescued = None
        if not self.lossless:  # at l = 1 a tie would pass
            rescued = logit_gaps(tree, scores) >= math.log(self.lenience)
        return walk(tree, scores, matches(tree, scores), SureRoll(scores.best), rescued)
