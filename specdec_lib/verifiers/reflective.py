"""Reflective verification: the target reads the draft twice, and both readings together verify it. Lossy.

Follows reflective verification (arXiv 2505.18629): [context, draft, reflect prompt, draft again] in one pass.
Left out: the paper's own prompt and weight, which we do not know; branching trees. Its gain is graded B: reviewers
suspect that the second copy agrees with whatever stands before it.
"""

from collections.abc import Sequence

import torch

from specdec_lib.pocket.tokenizer import world_ids
from specdec_lib.pocket.world import tokens_of
from specdec_lib.sampling import Chance
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import Scores, Verdict
from specdec_lib.verifiers.lossless import LosslessRejection

WORLDS_WORDS = ", wait,"  # how the pocket world announces a correction: the nearest that its models know
QUESTION = "\n\nLet me read that again and check every step. The corrected version:\n\n"  # ours


class Reflective:
    """The base rule on mixed logits: (1 - weight) of the usual row, weight of the same token's row in the second copy.

    prompt: ids between the two copies; it may be empty. weight in [0, 1] is our default; 0 is the base rule exactly,
    lossless, and scores nothing twice. The base rule is exact match at temperature 0, rejection sampling above it.
    A round scores gamma + len(prompt) nodes more. Where they do not fit the target's context, the round is verified
    by the base rule alone. Raises ValueError for a tree that branches.
    """

    name, needs = "reflective", frozenset()

    def __init__(self, prompt: Sequence[int] = (), weight: float = 0.3):
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= 1:
            raise ValueError(f"weight, the share of the second copy, must be from 0 to 1; got {weight!r}")
        self.prompt, self.weight = list(prompt), float(weight)
        self.lossless = self.weight == 0.0
        self.base = LosslessRejection()

    def with_scouts(self, tree: DraftTree, room: int) -> DraftTree:
        """The chain with the prompt and the second copy behind it, as scouts."""
        if not tree.is_chain or tree.scouts:
            raise ValueError("reflective verification reads a single chain twice; use the method lossless for a tree")
        again = [*self.prompt, *tree.tokens[1:].tolist()] if self.weight and len(tree) > 1 else []
        if not again or tree.depth + len(again) > room:
            return tree
        return tree.with_scouts(again, range(len(tree) - 1, len(tree) - 1 + len(again)))

    def verify(self, tree: DraftTree, scores: Scores, chance: Chance) -> Verdict:
        if tree.scouts:
            scores = Scores(self._mixed(tree, scores.logits), scores.adjuster, scores.prefix)
        return self.base.verify(tree, scores, chance)

    def _mixed(self, tree: DraftTree, logits: torch.Tensor) -> torch.Tensor:
        """(nodes, vocabulary) raw logits; the rows of the scouts themselves stay as they are.

        Row i verifies token i + 1 and follows the tokens 1..i. Its second reading follows the same tokens of the
        second copy: row i + gamma + len(prompt), for row 0 the end of the prompt (or of the draft, without one).
        """
        gamma = len(tree) - 1 - len(tree.scouts)
        second = gamma + len(self.prompt)
        mixed = logits.clone()
        mixed[: gamma + 1] = (1 - self.weight) * logits[: gamma + 1] + self.weight * logits[second:]
        return mixed


def reflect_prompt(tokenizer) -> list[int]:
    """Ids to put between the copies: a question, or the pocket world's own words where a model knows no others."""
    if "<answer>" in tokenizer.get_vocab():
        return world_ids(tokenizer, tokens_of(WORLDS_WORDS))
    return tokenizer(QUESTION, add_special_tokens=False)["input_ids"]
