"""DraftTree: what a drafter proposes. A chain is a tree whose every node has at most one child.

Follows SpecInfer (arXiv 2305.09781), section 4, for the tree and its mask. Read after sampling.py.
Left out: how a tree is filled (drafters/) and how it is judged (verifiers/).
"""

from collections.abc import Sequence

import torch


class TreeError(ValueError):
    """A malformed tree: a parent after its child, out of range, or numbers that do not fit together."""


class DraftTree:
    """Token ids and a parent index for each node; node 0 is the root, the newest committed token.

    tokens: (nodes,) int64, on the target's device. parents: one index a node, -1 for the root.
    draft_laws: (nodes - 1, vocabulary), row i - 1 the law q that node i's token was really drawn from; None when
    every token is a point mass (chosen, not drawn).
    scouts: nodes that are scored but never kept.
    draft_peaks: the largest logit of each row that a point mass was chosen from, if a model chose it. NaN or infinite
    values there are named when the round's numbers are read.
    draft_rows: (nodes - 1, vocabulary), the draft's adjusted logits that each token was drawn or chosen from.
    draft_hidden: (nodes - 1, draft's width), the draft's hidden states, before its final norm, behind those rows.
    Both only where the verifier needs them and a draft model proposed.
    """

    def __init__(
        self,
        tokens: torch.Tensor,
        parents: Sequence[int],
        draft_laws: torch.Tensor | None = None,
        scouts: frozenset[int] = frozenset(),
        draft_peaks: torch.Tensor | None = None,
        draft_rows: torch.Tensor | None = None,
        draft_hidden: torch.Tensor | None = None,
    ):
        self.tokens, self.parents, self.draft_laws, self.scouts = tokens, list(parents), draft_laws, scouts
        self.draft_peaks = tokens.new_empty(0, dtype=torch.float32) if draft_peaks is None else draft_peaks
        self.draft_rows, self.draft_hidden = draft_rows, draft_hidden
        self._check()
        self.depths = [0]
        self.children: list[list[int]] = [[] for _ in self.parents]
        for node, parent in enumerate(self.parents[1:], start=1):
            self.depths.append(self.depths[parent] + 1)
            if node not in scouts:
                self.children[parent].append(node)

    def _check(self) -> None:
        n = len(self.parents)
        if n == 0 or self.parents[0] != -1:
            raise TreeError(f"a tree starts with its root, whose parent is -1; got parents {self.parents[:5]}")
        if self.tokens.shape != (n,) or self.tokens.dtype != torch.long:
            raise TreeError(f"tokens must be int64 of shape ({n},); got {self.tokens.dtype} {tuple(self.tokens.shape)}")
        for node, parent in enumerate(self.parents[1:], start=1):
            if not 0 <= parent < node:
                raise TreeError(f"node {node} has parent {parent}; a parent must come before its child")
        for name in ("draft_laws", "draft_rows", "draft_hidden"):
            rows = getattr(self, name)
            if rows is not None and rows.shape[0] != n - 1:
                raise TreeError(f"{name} has {rows.shape[0]} rows for {n - 1} proposed nodes")
        if any(not 0 < scout < n for scout in self.scouts):
            raise TreeError(f"scouts {sorted(self.scouts)} are not all among nodes 1..{n - 1}")

    @classmethod
    def chain(
        cls, tokens: torch.Tensor | Sequence[int], draft_laws: torch.Tensor | None = None, device: str = "cpu"
    ) -> "DraftTree":
        """A chain: the root, then the proposed tokens one below the other."""
        tokens = torch.as_tensor(tokens, dtype=torch.long, device=None if torch.is_tensor(tokens) else device)
        return cls(tokens, range(-1, len(tokens) - 1), draft_laws)

    @classmethod
    def from_paths(cls, root: int, paths: Sequence[Sequence[int]], device: str = "cpu") -> "DraftTree":
        """Point-mass paths below the root, equal prefixes merged into one node. Prefixes are implied."""
        tokens, parents, index = [root], [-1], {}
        for path in paths:
            at = 0
            for token in path:
                key = (at, token)
                if key not in index:
                    index[key] = len(tokens)
                    tokens.append(token)
                    parents.append(at)
                at = index[key]
        return cls(torch.tensor(tokens, dtype=torch.long, device=device), parents)

    def with_scouts(self, tokens: Sequence[int], parents: Sequence[int]) -> "DraftTree":
        """This tree with scouts behind its nodes. parents: indices in the new tree. Scouts have draft rows of zeros."""
        more = torch.as_tensor(tokens, dtype=torch.long, device=self.tokens.device)

        def padded(rows: torch.Tensor | None) -> torch.Tensor | None:
            return None if rows is None else torch.nn.functional.pad(rows, (0, 0, 0, len(more)))

        return DraftTree(
            torch.cat([self.tokens, more]),
            [*self.parents, *parents],
            padded(self.draft_laws),
            self.scouts | set(range(len(self), len(self) + len(more))),
            self.draft_peaks,
            padded(self.draft_rows),
            padded(self.draft_hidden),
        )

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def proposed(self) -> int:
        """Nodes that could be kept: all but the root and the scouts."""
        return len(self.parents) - 1 - len(self.scouts)

    @property
    def is_chain(self) -> bool:
        return all(parent == node - 1 for node, parent in enumerate(self.parents))

    @property
    def depth(self) -> int:
        return max(self.depths)

    def path_to(self, node: int) -> list[int]:
        """Nodes from below the root to this node."""
        path = []
        while node > 0:
            path.append(node)
            node = self.parents[node]
        return path[::-1]


def ancestor_mask(parents: Sequence[int]) -> torch.Tensor:
    """(nodes, nodes) bool: row i is True at i and at its ancestors. Parents of -1 hang on the committed text."""
    mask = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] |= mask[parent]
    return mask


def depths(parents: Sequence[int]) -> list[int]:
    """Depth of each node; 0 where the parent is -1."""
    found: list[int] = []
    for parent in parents:
        found.append(0 if parent < 0 else found[parent] + 1)
    return found
