"""Lossless rejection sampling on chains and trees: what is emitted follows the target's law exactly.

Follows Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1; Chen et al. 2023 (arXiv 2302.01318), algorithm 2;
for siblings, SpecInfer (arXiv 2305.09781), section 4.3.
Left out: block verification, which looks at a whole chain at once (block.py).
"""

from collections.abc import Callable

import torch

from specdec_lib.sampling import Chance, normalised
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import Scores, SureRoll, Verdict, probability_of, rows, walk
from specdec_lib.verifiers.greedy import matches


class LosslessRejection:
    """Accept x drawn from q with probability min(1, p(x) / q(x)); else p becomes norm(max(p - q, 0)), next sibling."""

    name, lossless, needs = "lossless", True, frozenset()

    def verify(self, tree: DraftTree, scores: Scores, chance: Chance) -> Verdict:
        return standard_or(tree, scores, chance)


def standard_or(
    tree: DraftTree,
    scores: Scores,
    chance: Chance,
    rescued: torch.Tensor | None = None,
    trusted: Callable[[int, int], bool] | None = None,
) -> Verdict:
    """The lossless rule, or the lossy one that keeps the rescued nodes, (nodes,) bool, as well, if trusted (base.walk).

    What is emitted where nothing is kept stays the lossless rule's: the argmax, or a draw from the residual.
    """
    if scores.greedy:  # p is a one-hot: the rule becomes an exact match, and needs no draw
        return walk(tree, scores, matches(tree, scores), SureRoll(scores.best), rescued, trusted)
    accept, recovered_laws = accept_and_recover(tree, scores.laws)
    return walk(tree, scores, accept, chance.roll(recovered_laws), rescued, trusted)


def accept_and_recover(
    tree: DraftTree, target_laws: torch.Tensor, lenience: float = 1.0, residual: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """The whole rule, before any chance.

    target_laws: (nodes, vocabulary), row i follows node i. Returns the probability that each node is accepted once
    it is reached, (nodes,), and the law to emit from at each node if none of its children is accepted,
    (nodes, vocabulary): the residual after its children, or p itself at a leaf (the bonus law).
    lenience l eases the test: min(1, p / (l q)) (Leviathan et al., appendix A.5). residual b shapes what is left:
    max(p / b - q, 0) (lossy.py).
    """
    accept = target_laws.new_zeros(len(tree))
    laws, draft_laws = target_laws.clone(), laws_drawn_from(tree, target_laws)
    tiny = torch.finfo(laws.dtype).tiny  # an id outside the vocabulary has p = q = 0: rejected, and never 0 / 0
    for siblings in _by_rank(tree):
        nodes, drawn = rows(siblings), rows([node - 1 for node in siblings])
        parents = rows([tree.parents[node] for node in siblings])
        tokens, p, q = tree.tokens[nodes], laws[parents], draft_laws[drawn]
        ratio = probability_of(p, tokens) / (lenience * probability_of(q, tokens)).clamp_min(tiny)
        accept[nodes] = ratio.clamp_max(1.0)
        laws[parents] = normalised((p / residual - q).clamp_min(0), fallback=p)
    return accept, laws


def laws_drawn_from(tree: DraftTree, like: torch.Tensor) -> torch.Tensor:
    """q of every proposed node, (nodes - 1, vocabulary), vocabulary and dtype as in `like`.

    A token that was chosen, not drawn, has a point mass: q(x) = 1, and rejecting x removes it from p. An id outside
    the vocabulary has no mass at all: p is left as it was.
    """
    if tree.draft_laws is not None:
        return tree.draft_laws.to(like.dtype)
    return (tree.tokens[1:, None] == torch.arange(like.shape[-1], device=like.device)).to(like.dtype)


def _by_rank(tree: DraftTree) -> list[list[int]]:
    """Nodes that are first children, then second children, and so on: each rank is computed at once."""
    ranks: list[list[int]] = []
    for children in tree.children:
        for rank, child in enumerate(children):
            if rank == len(ranks):
                ranks.append([])
            ranks[rank].append(child)
    return ranks
