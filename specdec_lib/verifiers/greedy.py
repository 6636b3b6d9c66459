"""Greedy match: keep a proposed token if it is the target's argmax. Lossless for greedy decoding.

Follows Leviathan et al. 2023 (arXiv 2211.17192), section 2.2, with argmax as the sampling setting.
Left out: temperatures above 0 (lossless.py).
"""

import torch

from specdec_lib.sampling import Chance
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import Scores, SureRoll, Verdict, walk


class GreedyMatch:
    """Accept x iff x = argmax p. Raises ValueError when laws are not greedy."""

    name, lossless, needs = "greedy", True, frozenset()

    def verify(self, tree: DraftTree, scores: Scores, chance: Chance) -> Verdict:
        if not scores.greedy:
            raise ValueError("greedy match verifies temperature 0 only; use the method lossless above it")
        return walk(tree, scores, matches(tree, scores), SureRoll(scores.best))


def matches(tree: DraftTree, scores: Scores) -> torch.Tensor:
    """(nodes,) 1.0 where a node's token is the argmax of its parent's row, else 0.0; the root counts as 0."""
    found = torch.zeros(len(tree), dtype=torch.float64, device=tree.tokens.device)
    parents = torch.tensor(tree.parents[1:], dtype=torch.long, device=tree.tokens.device)
    found[1:] = (scores.best[parents] == tree.tokens[1:]).double()
    return found
