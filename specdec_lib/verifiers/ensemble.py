"""The ensemble rule: what is verified is a mixture of both laws, w p + (1 - w) q, on a line from lossless to the draft.

Follows transformers 5.24's assistant_ensemble_weight, read in its source, which names arXiv 2604.07622 for it.
Left out: a weight that changes from token to token.
"""

import torch

from specdec_lib.sampling import Chance
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import DRAFT_ROWS, Scores, SureRoll, Verdict, parents_of, walk
from specdec_lib.verifiers.cascade import mixture
from specdec_lib.verifiers.greedy import matches
from specdec_lib.verifiers.lossless import accept_and_recover, standard_or


class Ensemble:
    """At a drafted position the law is w p + (1 - w) q; the bonus token is p's own.

    Above temperature 0: x is accepted with min(1, 1 - w + w p / q), else a draw from norm(max(p - q, 0)). At
    temperature 0: x is kept iff it is the mixture's argmax, else that argmax is emitted; p and q are then the laws at
    temperature 1. A token with p = 0 is never kept (ours; it can only be one that the settings forbid): its share goes
    to p. w 1 is lossless, 0 keeps all that the draft's argmax or draw says (ours: transformers refuses both ends).
    ValueError unless 0 <= w <= 1, for a branching tree, and at temperature 0 for a proposal without the draft's rows.
    """

    name, needs = "ensemble", frozenset({DRAFT_ROWS})

    def __init__(self, weight: float = 0.5):
        if isinstance(weight, bool) or not 0 <= weight <= 1:
            raise ValueError(f"weight of ensemble, the target's share, must be between 0 and 1; got {weight!r}")
        self.weight = float(weight)
        self.lossless = self.weight == 1

    def verify(self, tree: DraftTree, scores: Scores, chance: Chance) -> Verdict:
        if self.lossless or len(tree) == 1:
            return standard_or(tree, scores, chance)
        if not tree.is_chain:
            raise ValueError("ensemble judges a single chain; use the method lossless for a tree")
        if scores.greedy:
            return self._greedy(tree, scores)
        mixed = mixture(tree, scores.laws, lambda p, q: (1 - self.weight) * q)
        accept, recovered_laws = accept_and_recover(tree, mixed)
        return walk(tree, scores, accept, chance.roll(recovered_laws))

    def _greedy(self, tree: DraftTree, scores: Scores) -> Verdict:
        """A node that is the mixture's argmax and not p's counts as rescued."""
        if tree.draft_rows is None:
            raise ValueError("ensemble mixes the draft's laws with the target's; it needs a draft model")
        rows = torch.tensor(tree.parents[1:], device=tree.tokens.device)
        p = scores.adjusted[rows].softmax(dim=-1)
        q = tree.draft_rows.to(p.dtype).softmax(dim=-1) * (p > 0)
        wanted = scores.best.clone()
        wanted[rows] = (self.weight * p + (1 - self.weight) * q).argmax(dim=-1)
        agrees = tree.tokens == wanted[parents_of(tree)]
        return walk(tree, scores, matches(tree, scores) * agrees, SureRoll(wanted), agrees)
