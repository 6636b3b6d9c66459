"""The kind of a token alone: keep all that is no digit. What a judge must beat if it knows more than that kind.

Our own control; nothing is trained, and no model is asked.
Left out: which digits are right: they go by the standard rule.
"""

import torch

from specdec_lib.judge.train import digit_tokens
from specdec_lib.sampling import Chance
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import Scores, Verdict
from specdec_lib.verifiers.lossless import standard_or
from specdec_lib.zoo import Pair


class Words:
    """Accept iff the standard rule accepts, or the token is no digit; the end of a text is none."""

    name, lossless, needs = "words", False, frozenset()

    def __init__(self, pair: Pair):
        ids = torch.arange(pair.target.vocab_size)
        self.digits = ids[digit_tokens(ids, pair)]

    def verify(self, tree: DraftTree, scores: Scores, chance: Chance) -> Verdict:
        rescued = ~torch.isin(tree.tokens, self.digits.to(tree.tokens.device))
        return standard_or(tree, scores, chance, rescued)
