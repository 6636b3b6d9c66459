"""AutoJudge: keep a mismatched token that a small head calls unimportant for the final answer. Lossy.

Follows AutoJudge (arXiv 2504.20039); its head's labels are mined without anybody's judgement (autojudge/mine.py).
Left out: training the head (autojudge/train.py).
"""

import math

import torch

from specdec_lib.autojudge.head import AutoJudgeHead
from specdec_lib.sampling import Chance
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import DRAFT_HIDDEN, HIDDEN, Scores, Verdict
from specdec_lib.verifiers.lossless import standard_or


class AutoJudge:
    """Accept iff the standard rule accepts, or P(important) < threshold, from [draft state; target state].

    threshold: 0 is the standard rule exactly, lossless; from 1 on every token that may be kept is. The target's state
    is that of the token's own row, as in the authors' code. The draft's is that of the row which the token was drawn
    from, one earlier than theirs: the last drafted token is never read by the draft (our choice). Both are taken
    before the final norm (ours; theirs after). Temperatures above 0 keep the residual rule (ours).
    A score that is NaN rescues nothing. Raises ValueError where there are no such states: it needs a draft model.
    """

    name, needs = "autojudge", frozenset({HIDDEN, DRAFT_HIDDEN})

    def __init__(self, head: AutoJudgeHead, threshold: float = 0.1):
        if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold < math.inf:
            raise ValueError(
                f"threshold, the least P(important) that is rejected, must be 0 or more; got {threshold!r}"
            )
        self.head, self.threshold = head, float(threshold)
        self.lossless = self.threshold == 0.0

    def verify(self, tree: DraftTree, scores: Scores, chance: Chance) -> Verdict:
        return standard_or(tree, scores, chance, self._unimportant(tree, scores))

    def _unimportant(self, tree: DraftTree, scores: Scores) -> torch.Tensor:
        """(nodes,) bool. Compared as logits, where a probability near 1 is not rounded to 1."""
        found = torch.full((len(tree),), self.threshold >= 1, device=tree.tokens.device)
        if len(tree) > 1 and 0 < self.threshold < 1:
            if scores.hidden is None or tree.draft_hidden is None:
                raise ValueError(
                    "autojudge reads hidden states of draft and target; use a draft model, or another rule"
                )
            states = torch.cat([tree.draft_hidden.float(), scores.hidden[1:].float()], dim=-1)
            found[1:] = self.head.logits(states) < math.log(self.threshold / (1 - self.threshold))
        return found
