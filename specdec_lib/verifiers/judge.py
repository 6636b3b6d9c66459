"""Judge: keep a token by the standard rule, or because a small head on the target's hidden state calls it right. Lossy.

Follows Judge Decoding (Bachmann et al. 2025, arXiv 2501.19309; known here from digests): standard mask or judge mask.
Left out: training the head (judge/), and tokens judged together.
"""

import math

import torch

from specdec_lib.judge.head import JudgeHead
from specdec_lib.sampling import Chance
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import HIDDEN, Scores, Verdict
from specdec_lib.verifiers.lossless import standard_or


class Judge:
    """Accept iff the standard rule accepts, or the head's score is above delta.

    delta in [0, 1]: 1 is the standard rule exactly, 0 keeps every token that may be kept, whatever the hidden states.
    The score is read from the token's own row; the logits that verify it are its parent's. Rescued tokens come after
    all siblings that the standard rule accepts. Where the text is cut, the standard rule's own token follows: the
    argmax, and at temperatures above 0 a draw from its residual (our choice; the paper's is not known).
    A token that the target's settings forbid (a banned word, an early EOS, beyond top-k), or that is not in its
    vocabulary, is never rescued, and a score that is NaN rescues nothing. EOS is judged like any other token.
    """

    name, needs = "judge", frozenset({HIDDEN})

    def __init__(self, head: JudgeHead, delta: float = 0.5):
        if isinstance(delta, bool) or not isinstance(delta, int | float) or not 0 <= delta <= 1:
            raise ValueError(f"delta, the score above which a token is kept, must be from 0 to 1; got {delta!r}")
        self.head, self.delta = head, float(delta)
        self.lossless = self.delta == 1.0

    def verify(self, tree: DraftTree, scores: Scores, chance: Chance) -> Verdict:
        return standard_or(tree, scores, chance, self._judged_right(tree, scores))

    def _judged_right(self, tree: DraftTree, scores: Scores) -> torch.Tensor:
        """(nodes,) bool. On the scale of logits, where a score near 1 is not rounded to 1."""
        if self.delta in (0.0, 1.0):
            return torch.full((len(tree),), self.delta == 0.0, device=tree.tokens.device)
        if scores.hidden is None:
            raise ValueError("the judge reads hidden states, and this target gives none; use a transformers model")
        return self.head.logits(scores.hidden) > math.log(self.delta / (1 - self.delta))
