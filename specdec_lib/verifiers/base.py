"""What every verifier shares: the scores it reads, the verdict it gives, and the walk down the tree.

The words accepted, recovered and bonus are those of Leviathan et al. 2023 and Chen et al. 2023: a token that is
kept, the token emitted in place of the first one rejected, the token emitted after everything was accepted.
Left out: the rules themselves, one file each.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import torch

from specdec_lib.sampling import Adjuster, Chance, Roll, refuse_bad_rows, to_host
from specdec_lib.tree import DraftTree

EXACT, RESCUED, REJECTED = "exact", "rescued", "rejected"
RECOVERED, BONUS = "recovered", "bonus"
HIDDEN, DRAFT_ROWS, DRAFT_HIDDEN = "hidden", "draft_rows", "draft_hidden"  # what a verifier may need


class Scores:
    """The target's rows over a tree; row i is what follows node i. Everything beyond raw logits is made on demand.

    logits: (nodes, vocabulary), raw. hidden: (nodes, width) before the final norm, if the verifier needs it: row i is
    that of node i's own token, whereas the logits that verify node i are the row of its parent.
    prefix(i): the ids that row i follows.
    """

    def __init__(self, logits: torch.Tensor, adjuster: Adjuster, prefix, hidden: torch.Tensor | None = None):
        self.logits, self.adjuster, self.hidden, self.prefix = logits, adjuster, hidden, prefix

    @property
    def greedy(self) -> bool:
        return self.adjuster.greedy

    @cached_property
    def adjusted(self) -> torch.Tensor:
        """Logits after the processors, (nodes, vocabulary), float32 or wider."""
        return self.adjuster.logits(self.logits, self.prefix)

    @cached_property
    def laws(self) -> torch.Tensor:
        """p: the target's adjusted laws, (nodes, vocabulary)."""
        return self.adjuster.laws(self.adjusted)

    @cached_property
    def _peaks(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.adjusted.max(dim=-1)

    @property
    def best(self) -> torch.Tensor:
        """argmax of the adjusted logits, (nodes,); the lowest id on a tie."""
        return self._peaks[1]

    @property
    def row_max(self) -> torch.Tensor:
        """Largest adjusted logit of each row, (nodes,): NaN or infinite where no law can be made."""
        return self._peaks[0]

    def probability(self, rows: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """p of tokens (n,) in these rows (n,); 0 for an id outside the vocabulary."""
        if self.greedy:  # a one-hot: no law needs to be made
            return (self.best[rows] == tokens).to(self.adjusted.dtype)
        inside = tokens < self.laws.shape[-1]
        return self.laws[rows, torch.where(inside, tokens, 0)] * inside


@dataclass
class Verdict:
    """path: the nodes kept, from below the root. token: what is emitted after them, RECOVERED or BONUS.

    outcomes: EXACT, RESCUED or REJECTED for every node reached. target_probs, draft_probs: p and q of each node's
    token (index 0, the root, unused). overlaps: sum over the vocabulary of min(p, q) for each node.
    best: argmax of each row, so best[parent] is what the target wanted where a node stands (empty if nothing was
    proposed). added: what a lossy rule added at each node, where it is metered (exactness.py).
    """

    path: list[int]
    token: int
    kind: str
    outcomes: dict[int, str]
    tokens: list[int] = field(default_factory=list)
    target_probs: list[float] = field(default_factory=list)
    draft_probs: list[float] = field(default_factory=list)
    overlaps: list[float] = field(default_factory=list)
    best: list[int] = field(default_factory=list)
    added: list[float] = field(default_factory=list)


class Verifier(Protocol):
    """A rule over (tree, target rows, chance), with no side effect.

    lossless: the emitted law is the target's adjusted law. needs: what the rule reads beside laws and logits, any of
    HIDDEN (scores.hidden), DRAFT_ROWS (tree.draft_rows) and DRAFT_HIDDEN (tree.draft_hidden).
    A rule that wants more rows scored has a method `with_scouts(tree, room) -> DraftTree`, asked before the target's
    pass; room: how deep the tree may then be.
    A rule that reads a memory which its verdicts go on filling says `learns = True`, and has no such name otherwise:
    what it says of a text then depends on the texts before, and batch.py keeps their order. A
    method `learn(feedback)`, if there is one, is told of every round (drafters.base.Feedback) once it is committed.
    """

    name: str
    lossless: bool
    needs: frozenset[str]

    def verify(self, tree: DraftTree, scores: Scores, chance: Chance) -> Verdict:
        """Judge one proposal."""


class SureRoll:
    """A roll without chance: acceptance is 0 or 1 and each node's token is given."""

    def __init__(self, tokens: torch.Tensor):
        self.tensor = tokens

    def host(self, numbers: Sequence[float]) -> None:
        self.tokens = numbers

    def accept(self, node: int, probability: float) -> bool:
        return probability >= 1

    def token(self, node: int) -> int:
        return int(self.tokens[node])


def probability_of(laws: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """laws (nodes, vocabulary) at tokens (nodes,); 0 for an id outside the vocabulary."""
    inside = tokens < laws.shape[-1]
    at = torch.where(inside, tokens, 0).unsqueeze(1)
    return laws.gather(1, at).squeeze(1) * inside


def logit_gaps(tree: DraftTree, scores: Scores) -> torch.Tensor:
    """log p(x) / max p for each node's token, (nodes,), from adjusted logits: the root has 0, a foreign id -inf."""
    gaps = own_logits(tree, scores) - scores.row_max[parents_of(tree)]
    gaps[0] = 0.0
    return gaps


def own_logits(tree: DraftTree, scores: Scores) -> torch.Tensor:
    """The adjusted logit of each node's token in its parent's row, (nodes,); -inf for what the settings forbid and for
    an id outside the vocabulary. The root's is without meaning.
    """
    inside = tree.tokens < scores.adjusted.shape[-1]
    own = scores.adjusted[parents_of(tree), torch.where(inside, tree.tokens, 0)]
    return torch.where(inside, own, -float("inf"))


def parents_of(tree: DraftTree) -> torch.Tensor:
    """The row that verifies each node, its parent's, (nodes,); the root has its own."""
    return torch.tensor(tree.parents, device=tree.tokens.device).clamp_min(0)


def rows(indices: Sequence[int]) -> slice | list[int]:
    """An index of these rows: a slice where they are consecutive (a chain), which gives a view and copies nothing."""
    first, last = indices[0], indices[-1]
    return slice(first, last + 1) if list(indices) == list(range(first, last + 1)) else list(indices)


def walk(
    tree: DraftTree,
    scores: Scores,
    probabilities: torch.Tensor,
    roll: Roll,
    rescued: torch.Tensor | None = None,
    trusted: Callable[[int, int], bool] | None = None,
) -> Verdict:
    """From the root, go down to the first child that is accepted, until none is; emit that node's token.

    probabilities: (nodes,), the chance that a node is accepted once it is reached (index 0 unused): reached means
    that its parent was kept and its earlier siblings were rejected. roll: its token(node) is what is emitted when
    no child of that node is accepted. The one device-to-host copy of a round is here.
    rescued: (nodes,) bool, nodes that a lossy rule keeps although they are rejected. Where every child of a node is
    rejected, the first rescued one is kept. What the settings forbid (an adjusted logit of -inf, or an id outside the
    vocabulary) is never rescued.
    trusted: asked on the host about a node that would be rescued, trusted(token, argmax of its parent's row); it is
    rescued only if the answer is yes.
    """
    if len(tree) == 1:
        return _plain_step(tree, scores, roll)
    target = scores.probability(parents_of(tree), tree.tokens)
    if tree.draft_laws is None:
        draft, overlap = torch.ones_like(target), target
    else:
        draft = probability_of(tree.draft_laws, tree.tokens[1:])
        overlap = torch.minimum(scores.laws[rows(tree.parents[1:])], tree.draft_laws).sum(dim=-1)
        draft, overlap = (torch.cat([target.new_ones(1), t.to(target.dtype)]) for t in (draft, overlap))
    rescued = target.new_zeros(0) if rescued is None else rescued & (own_logits(tree, scores) > -float("inf"))
    accept, rescue, rolled, tokens, row_max, best, p, q, overlaps, draft_peaks = to_host(
        probabilities, rescued, roll.tensor, tree.tokens, scores.row_max, scores.best, target, draft, overlap,
        tree.draft_peaks,
    )  # fmt: skip
    refuse_bad_rows(row_max, "target")
    refuse_bad_rows(draft_peaks, "draft")
    for node, draft_prob in enumerate(q):
        if not draft_prob > 0 and node not in tree.scouts:
            raise ValueError(
                f"node {node} was proposed although its draft law gives it probability {draft_prob}"
                + (" (the draft's logits hold NaN or infinite values)" if draft_prob != draft_prob else "")
            )
    roll.host(rolled)
    tokens, best = [int(t) for t in tokens], [int(t) for t in best]
    path, outcomes, node = [], {}, 0

    def rescues(child: int) -> bool:
        return bool(rescue and rescue[child]) and (trusted is None or trusted(tokens[child], best[node]))

    while True:
        for child in tree.children[node]:
            if roll.accept(child, accept[child]):
                outcomes[child] = EXACT
                break
            outcomes[child] = REJECTED
        else:
            child = next(filter(rescues, tree.children[node]), None)
            if child is None:
                break
            outcomes[child] = RESCUED
        path.append(child)
        node = child
    kind = RECOVERED if tree.children[node] else BONUS
    return Verdict(path, roll.token(node), kind, outcomes, tokens, p, q, overlaps, best)


def _plain_step(tree: DraftTree, scores: Scores, roll: Roll) -> Verdict:
    """The walk where nothing was proposed: what plain decoding does at every step, so no more than it needs."""
    rolled, tokens, row_max = to_host(roll.tensor, tree.tokens, scores.row_max)
    refuse_bad_rows(row_max, "target")
    roll.host(rolled)
    return Verdict([], roll.token(0), BONUS, {}, [int(tokens[0])], [0.0], [1.0], [0.0])
