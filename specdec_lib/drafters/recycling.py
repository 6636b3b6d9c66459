"""Token Recycling: the target's own runners-up of earlier passes, arranged in a fixed tree.

Follows Luo et al. 2025 (arXiv 2408.08696): eight successors a token, of rejected nodes too; a static tree of 80 nodes.
Left out: a matrix over the whole vocabulary (a dictionary holds the tokens seen), and successors of tokens never seen:
there the original proposes token 0, here nothing is proposed.
"""

from collections.abc import Iterable

import torch

from specdec_lib.drafters.base import DraftContext, Feedback
from specdec_lib.tree import DraftTree

SUCCESSORS = 8
# Level by level, how many children each node of the level above has: the authors' published shape, 80 nodes.
CHILDREN = (
    (8,),
    (8, 4, 3, 2, 1, 1, 1, 1),
    (8, 3, 2, 1, 1, 1, 1, 1, 2, 1, 0, 0, 1, 0, 0, 1, 0, 1, 1, 0, 0),
    (5, 2, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0),
    (3, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0),
    (2, 0, 0, 1, 0, 0, 0, 0),
)


def template(children=CHILDREN) -> list[tuple[int, int]]:
    """(parent, rank among its successors) of nodes 1, 2, ..., level by level."""
    nodes, level, new = [], [0], 1
    for counts in children:
        for parent, count in zip(level, counts, strict=True):
            nodes += [(parent, rank) for rank in range(count)]
        level = list(range(new, len(nodes) + 1))
        new = len(nodes) + 1
    return nodes


class TokenRecycling:
    """successors: token -> the eight likeliest tokens after it, as its newest scored row had them.

    Where one pass scores a token several times, the rows of the text itself count last, so that they stay. keep: go on
    with the successors of earlier texts, as the authors do; what is drafted, never the law under a lossless rule, then
    depends on them, and `memory` says what they left. A round adds one copy of (nodes, 8) ids to the host.
    """

    name = "recycling"

    def __init__(self, keep: bool = False, eos_token_ids: Iterable[int] = ()):
        self.keep, self.eos_token_ids = bool(keep), frozenset(eos_token_ids)
        self.learns = self.keep
        self.template = template()
        self.successors: dict[int, list[int]] = {}
        self.forget()

    def start(self, prompt: list[int]) -> None:
        if not self.keep:
            self.forget()
        elif self.successors:
            self.texts += 1
            self.memory = f"successors of {len(self.successors)} tokens from {self.texts} earlier texts"

    def forget(self) -> None:
        self.successors, self.texts, self.memory = {}, 0, None

    def propose(self, context: DraftContext) -> DraftTree:
        tokens, parents, depths = [context.committed[-1]], [-1], [0]
        placed = {0: 0}  # node of the template: node of the tree
        for node, (above, rank) in enumerate(self.template, start=1):
            parent = placed.get(above)
            if parent is None or depths[parent] == context.room or (parent and tokens[parent] in self.eos_token_ids):
                continue
            found = self.successors.get(tokens[parent], ())
            if rank < len(found):
                placed[node] = len(tokens)
                tokens.append(found[rank])
                parents.append(parent)
                depths.append(depths[parent] + 1)
        return DraftTree(torch.tensor(tokens, device=context.device), parents)

    def observe(self, feedback: Feedback) -> None:
        rows = feedback.scores.logits
        likeliest = rows.topk(min(SUCCESSORS, rows.shape[-1]), dim=-1).indices.tolist()
        tokens = feedback.verdict.tokens
        for node in (*range(len(tokens)), 0, *feedback.kept):
            self.successors[tokens[node]] = likeliest[node]
