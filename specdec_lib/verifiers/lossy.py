"""Lossy speculative sampling with two knobs: one eases the test, the other shapes what replaces a rejected token.

Follows the two-knob form that speculative cascades (arXiv 2405.19261) take as a baseline; from a digest, not confirmed.
Left out: the b that suits an a best, which depends on p and q.
"""

from specdec_lib.sampling import Chance
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import Scores, Verdict, walk
from specdec_lib.verifiers.lenience import near_best
from specdec_lib.verifiers.lossless import accept_and_recover, standard_or


class Lossy:
    """Accept x with min(1, p / (a q)); a rejected token is replaced by a draw from norm(max(p / b - q, 0)).

    a = b = 1 is lossless; b = 1 is Lenience(a). Where p / b - q has no mass the draw is from p, and after a rejected
    sibling the residual takes p's place, as in the lossless rule (both ours). At temperature 0 the rule is
    p(x) >= a max p, else the argmax, for every b (ours, as greedy lenience). ValueError unless 0 < a <= 1 and
    0 < b < inf.
    """

    name, needs = "lossy", frozenset()

    def __init__(self, a: float = 0.1, b: float = 1.0):
        if isinstance(a, bool) or not 0 < a <= 1:
            raise ValueError(f"a of lossy must be above 0 and at most 1; got {a!r}")
        if isinstance(b, bool) or not 0 < b < float("inf"):
            raise ValueError(f"b of lossy must be above 0 and finite; got {b!r}")
        self.a, self.b = float(a), float(b)
        self.lossless = self.a == 1 and self.b == 1

    def verify(self, tree: DraftTree, scores: Scores, chance: Chance) -> Verdict:
        if scores.greedy:
            return standard_or(tree, scores, chance, near_best(tree, scores, self.a))
        accept, recovered_laws = accept_and_recover(tree, scores.laws, lenience=self.a, residual=self.b)
        return walk(tree, scores, accept, chance.roll(recovered_laws))
