"""Block verification: a chain is judged as a whole, so that a later token can save an earlier one. Lossless.

Follows Sun et al. 2025 (arXiv 2403.10444), algorithm 2; that it is written as a chance a node is ours.
Left out: branching trees, for which the rule is not defined.
"""

import torch

from specdec_lib.sampling import Chance, normalised
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import Scores, SureRoll, Verdict, probability_of, walk
from specdec_lib.verifiers.greedy import matches
from specdec_lib.verifiers.lossless import laws_drawn_from


class BlockVerification:
    """Keep the longest prefix of the chain that passes, not the run up to the first token that fails.

    Exact match at temperature 0. Raises ValueError for a tree that branches or holds scouts.
    """

    name, lossless, needs = "block", True, frozenset()

    def verify(self, tree: DraftTree, scores: Scores, chance: Chance) -> Verdict:
        if not tree.is_chain or tree.scouts:
            raise ValueError("block verification judges a single chain; use the method lossless for a tree")
        if scores.greedy:
            return walk(tree, scores, matches(tree, scores), SureRoll(scores.best))
        accept, recovered_laws = accept_and_recover(tree, scores.laws)
        return walk(tree, scores, accept, chance.roll(recovered_laws))


def accept_and_recover(tree: DraftTree, target_laws: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The whole rule on a chain of gamma nodes, before any chance; what it returns is what lossless.py returns.

    target_laws: (gamma + 1, vocabulary), row i follows node i. Returns the probability that node i is kept once node
    i - 1 is, (gamma + 1,), and the law to emit from where the kept prefix ends at node i, (gamma + 1, vocabulary).

    The paper: P_0 = 1, P_i = min(1, P_{i-1} p_i(x_i) / q_i(x_i)). A prefix of length i < gamma passes with
    h_i = Z_i / (Z_i + 1 - P_i), where Z_i is the mass of max(P_i p_{i+1} - q_{i+1}, 0); the whole chain passes with
    h_gamma = P_gamma. Every length is tried with a uniform of its own, and the longest prefix that passes is kept.
    So at least i tokens are kept with S_i = 1 - prod over j >= i of (1 - h_j), and a walk down the chain that goes on
    to node i with probability S_i / S_{i-1} keeps each length as often.
    """
    p, tokens = target_laws[:-1], tree.tokens[1:]  # row i of p, and of q: what may follow i kept drafts
    q = laws_drawn_from(tree, p)
    tiny = torch.finfo(p.dtype).tiny
    prefix = [p.new_ones(())]  # P_i
    for ratio in probability_of(p, tokens) / probability_of(q, tokens).clamp_min(tiny):
        prefix.append((prefix[-1] * ratio).clamp_max(1))
    prefix = torch.stack(prefix)  # (gamma + 1,)
    residual = (prefix[:-1, None] * p - q).clamp_min(0)
    mass = residual.sum(dim=-1)  # Z_i
    passes = torch.cat([mass / (mass + 1 - prefix[:-1]), prefix[-1:]])  # h_i
    passes = passes.nan_to_num(1.0)  # 0 / 0 where P_i = 1 and p = q: nothing before or after has gone wrong
    at_least = 1 - (1 - passes).flip(0).cumprod(0).flip(0)  # S_i
    accept = target_laws.new_zeros(len(tree))
    accept[1:] = (at_least[1:] / at_least[:-1].clamp_min(tiny)).clamp_max(1)
    return accept, torch.cat([normalised(residual, fallback=p), target_laws[-1:]])
