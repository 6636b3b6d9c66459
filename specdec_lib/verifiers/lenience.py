"""Lenience: the first lossy step, one knob from lossless (1) towards accepting everything (0).

Follows Leviathan et al. 2023 (arXiv 2211.17192), appendix A.5.
Left out: rules that look at more than p and q of one token.
"""

import math

from specdec_lib.sampling import Chance
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import Scores, SureRoll, Verdict, probability_of, walk
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
        accept = matches(tree, scores)
        if not self.lossless:  # p(x) / max p from the logits' gap; at l = 1 a tie would pass, a match would not
            rows = scores.adjusted[tree.parents[1:]] if len(tree) > 1 else scores.adjusted[:0]
            gap = probability_of(rows - rows.amax(dim=-1, keepdim=True), tree.tokens[1:])
            inside = tree.tokens[1:] < rows.shape[-1]
            accept[1:] = accept[1:].maximum(((gap >= math.log(self.lenience)) & inside).double())
        return walk(tree, scores, accept, SureRoll(scores.best), rescues=True)
