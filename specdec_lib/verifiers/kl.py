"""The KL rule: where the target is sure the standard rule, elsewhere any draft token if the two laws are alike.

Follows arXiv 2601.04766, from one digest (grade B); the value of tau is not known to us.
Left out: its comparison with AutoJudge (autojudge.py).
"""

import torch

from specdec_lib.sampling import Chance
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import DRAFT_ROWS, Scores, Verdict
from specdec_lib.verifiers.lossless import standard_or
from specdec_lib.verifiers.soft import parent_rows


class KL:
    """Accept x iff the standard rule does, or max p <= confidence and KL(q || p) < tau, in nats.

    The digest has the second test replace the standard rule where the target is not sure; here it is added to it, so
    that a token the target itself would write is never refused (ours). At temperature 0 the laws are those at
    temperature 1 (ours). tau 0 is lossless; tau inf with confidence 1 keeps everything that the settings allow, where
    KL is finite. ValueError unless tau >= 0 and 0 <= confidence <= 1, and for a proposal without the draft's rows.
    """

    name, needs = "kl", frozenset({DRAFT_ROWS})

    def __init__(self, tau: float = 0.5, confidence: float = 0.9):
        if isinstance(tau, bool) or not tau >= 0:
            raise ValueError(f"tau of kl must be 0 or more; got {tau!r}")
        if isinstance(confidence, bool) or not 0 <= confidence <= 1:
            raise ValueError(f"confidence of kl must be between 0 and 1; got {confidence!r}")
        self.tau, self.confidence = float(tau), float(confidence)
        self.lossless = self.tau == 0

    def verify(self, tree: DraftTree, scores: Scores, chance: Chance) -> Verdict:
        if len(tree) == 1:
            return standard_or(tree, scores, chance)
        if tree.draft_rows is None:
            raise ValueError("kl compares the draft's laws with the target's; it needs a draft model")
        log_p = parent_rows(tree, scores.adjusted.log_softmax(dim=-1))
        rescued = log_p.exp().amax(dim=-1) <= self.confidence
        rescued[1:] &= divergences(tree.draft_rows.to(log_p.dtype).log_softmax(dim=-1), log_p[1:]) < self.tau
        return standard_or(tree, scores, chance, rescued)


def divergences(log_q: torch.Tensor, log_p: torch.Tensor) -> torch.Tensor:
    """KL(q || p) of each row in nats: sum of q log(q / p), inf where p = 0 < q. Both (rows, vocabulary), logarithms."""
    return torch.where(log_q > -float("inf"), log_q.exp() * (log_q - log_p), 0.0).sum(dim=-1)
