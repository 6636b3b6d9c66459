"""What every drafter shares: what it is told before a round, what it proposes, and what it is told afterwards.

Our own protocol, close to transformers' candidate generator: propose, then hear how it went.
Left out: the drafters themselves, one file each.
"""

from dataclasses import dataclass
from typing import Protocol

import torch

from specdec_lib.sampling import Adjuster, Chance
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import Scores, Verdict
from specdec_lib.whole import check_whole


@dataclass
class DraftContext:
    """committed: all ids so far, the last one being the root. room: how deep a proposal may go (0 and up).

    vocab_size: ids at or above it may not be proposed. device: where the tree's tokens must lie. needs: what the
    verifier reads; a drafter with a model gives "draft_rows" and "draft_hidden" with its tree if they are named.
    """

    committed: list[int]
    room: int
    vocab_size: int
    adjuster: Adjuster
    chance: Chance
    device: torch.device
    needs: frozenset[str] = frozenset()


@dataclass
class Feedback:
    """How a proposal fared. kept: its nodes that are committed and scored by the target (not the newest token).

    committed: all ids after the round, cut where the text stopped. scores: the target's rows of every node.
    """

    tree: DraftTree
    scores: Scores
    verdict: Verdict
    kept: list[int]
    committed: list[int]


class Drafter(Protocol):
    """Proposes a tree a round; does not know how it is verified.

    One that goes on with what earlier texts, or a file, left it has a text `memory` that says what, from start() on; if
    it goes on learning from text to text it says `learns = True`.
    """

    name: str

    def start(self, prompt: list[int]) -> None:
        """A new text begins; forget the last one."""

    def propose(self, context: DraftContext) -> DraftTree:
        """A tree whose root is the newest committed token."""

    def observe(self, feedback: Feedback) -> None:
        """Hear the verdict."""


class NoDrafter:
    """Proposes nothing: the loop becomes plain autoregressive decoding, on the same code path."""

    name = "none"

    def start(self, prompt: list[int]) -> None:
        pass

    def propose(self, context: DraftContext) -> DraftTree:
        return DraftTree.chain(context.committed[-1:], device=context.device)

    def observe(self, feedback: Feedback) -> None:
        pass


def check_draft_length(gamma: object) -> int:
    """gamma as an int; ValueError unless it is a whole number, 0 or more (True and 2.5 are refused)."""
    return check_whole("the draft length gamma", gamma, 0)
