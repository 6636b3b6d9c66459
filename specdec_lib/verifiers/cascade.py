"""Speculative cascade: the draft's token stays unless the target finds it much less likely than its best.

Follows Narasimhan et al. 2025 (arXiv 2405.19261), the third token-specific rule; from a digest, not confirmed.
Left out: its other deferral rules.
"""

from collections.abc import Callable

import torch

from specdec_lib.sampling import Chance
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import Scores, Verdict, walk
from specdec_lib.verifiers.lenience import near_best
from specdec_lib.verifiers.lossless import accept_and_recover, laws_drawn_from, standard_or


class Cascade:
    """Keep x unless p(x) < (1 - alpha) max p; else the target's own token.

    At temperature 0 this is Lenience(1 - alpha); alpha 0 is lossless and 1 keeps everything. Above 0 the law to emit
    at a drafted position is q where its tokens are kept, and p for q's remaining mass; the lossless rule emits exactly
    that mixture in place of p (that the mixture is the paper's is from memory), on chains only. ValueError unless
    0 <= alpha <= 1; above temperature 0 also for alpha 0, which still keeps every argmax, and for a branching tree.
    """

    name, needs = "cascade", frozenset()

    def __init__(self, alpha: float = 0.9):
        if isinstance(alpha, bool) or not 0 <= alpha <= 1:
            raise ValueError(f"alpha of cascade must be between 0 and 1; got {alpha!r}")
        self.alpha = float(alpha)
        self.lossless = self.alpha == 0

    def verify(self, tree: DraftTree, scores: Scores, chance: Chance) -> Verdict:
        if scores.greedy:
            return standard_or(tree, scores, chance, near_best(tree, scores, 1 - self.alpha))
        if self.lossless:
            raise ValueError(
                "cascade with alpha 0 is lossless at temperature 0 only; take the method lossless above it"
            )
        if not tree.is_chain:
            raise ValueError("cascade judges a single chain above temperature 0; use the method lossless for a tree")
        share = 1 - self.alpha
        mixed = mixture(tree, scores.laws, lambda p, q: q * (p >= share * p.amax(dim=-1, keepdim=True)))
        accept, recovered_laws = accept_and_recover(tree, mixed)
        return walk(tree, scores, accept, chance.roll(recovered_laws))


def mixture(tree: DraftTree, target_laws: torch.Tensor, of_draft: Callable) -> torch.Tensor:
    """The laws that a rule on one chain emits in place of p, (nodes, vocabulary): of_draft(p, q), mass of q that stays,
    both (drafts, vocabulary), and p for the rest. A row whose node has no child, so no q, is p.
    """
    mixed = target_laws.clone()
    chain = [(parent, children[0]) for parent, children in enumerate(tree.children) if children]
    if chain:
        parents, nodes = map(list, zip(*chain, strict=True))
        p, q = target_laws[parents], laws_drawn_from(tree, target_laws)[[node - 1 for node in nodes]]
        kept = of_draft(p, q) * (p > 0)  # what the settings forbid is never kept
        mixed[parents] = kept + (1 - kept.sum(dim=-1, keepdim=True)).clamp_min(0) * p
    return mixed
