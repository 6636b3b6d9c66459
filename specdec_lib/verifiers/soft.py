"""What lossy rules read beside p(x): the whole law at a token's place, how uncertain it is, how high a token ranks.

Our own choice at temperature 0, where the adjusted law is a one-hot and says nothing: the law at temperature 1.
Left out: the rules, one file each, and log p(x) / max p (logit_gaps in base.py).
"""

import torch

from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import Scores, parents_of


def parent_rows(tree: DraftTree, rows: torch.Tensor) -> torch.Tensor:
    """The row of each node's parent, which is the one that verifies it, (nodes, ...); the root has its own."""
    return rows[parents_of(tree)]


def soft_laws(scores: Scores) -> torch.Tensor:
    """p, (nodes, vocabulary); at temperature 0 the softmax of the adjusted logits in place of the one-hot."""
    return torch.softmax(scores.adjusted, dim=-1) if scores.greedy else scores.laws


def entropies(laws: torch.Tensor) -> torch.Tensor:
    """Entropy of each row in nats: (..., vocabulary) -> (...). Rows need not sum to 1."""
    return torch.special.entr(laws).sum(dim=-1)


def ranks(tree: DraftTree, scores: Scores) -> torch.Tensor:
    """How many tokens stand before each node's own in its parent's row, (nodes,): 0 for the argmax, lowest id first on
    a tie; the vocabulary's size for a foreign id. The root's is without meaning.
    """
    return rank_in(parent_rows(tree, scores.adjusted), tree.tokens)


def rank_in(rows: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """How many tokens stand before tokens (n,) in rows (n, vocabulary), (n,); on a tie the lowest id stands first."""
    tokens = tokens[:, None]
    inside = tokens < rows.shape[-1]
    own = rows.gather(1, torch.where(inside, tokens, 0))
    ids = torch.arange(rows.shape[-1], device=rows.device)
    before = (rows > own) | ((rows == own) & (ids < tokens))
    return torch.where(inside[:, 0], before.sum(dim=-1), rows.shape[-1])
