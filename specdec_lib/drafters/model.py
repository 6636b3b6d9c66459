"""Drafting with a smaller model: a chain of gamma tokens, or a tree of independently drawn siblings.

Follows Leviathan et al. 2023 (arXiv 2211.17192), algorithm 1, and SpecInfer (arXiv 2305.09781) for siblings.
Left out: draft lengths that change (adaptive.py).
"""

from collections.abc import Sequence

import torch

from specdec_lib.drafters.base import DraftContext, Feedback, check_draft_length
from specdec_lib.model import Model, ModelOutput
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import DRAFT_HIDDEN, DRAFT_ROWS, HIDDEN


class ModelDrafter:
    """Draws gamma tokens one after the other from the draft's adjusted law, and hands on the laws drawn from.

    siblings: how many tokens to draw below each node, level by level (default: one; levels beyond the last given
    take one). greedy: take the argmax instead; its tokens are then point masses, whatever the temperature.
    The draft's cache holds a prefix of the committed text; what it lacks (after full acceptance, the last draft)
    is read at the next proposal. Where the text has outgrown the draft's context, nothing is proposed. A token that
    the draft's vocabulary lacks is read as its last one: q is whatever was drawn from, so the text stays exact.
    """

    name = "model"

    def __init__(self, model: Model, gamma: int = 8, siblings: Sequence[int] = (), greedy: bool = False):
        self.model, self.gamma, self.greedy = model, check_draft_length(gamma), greedy
        self.siblings = tuple(siblings)
        if any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in self.siblings):
            raise ValueError(f"siblings must be whole numbers, 1 or more; got {self.siblings}")

    def start(self, prompt: list[int]) -> None:
        self.model.start()

    def propose(self, context: DraftContext) -> DraftTree:
        committed = context.committed
        self.model.truncate(min(self.model.length, len(committed) - 1))  # also drops what an interrupted round left
        gamma = min(self.gamma, context.room, self.model.context - len(committed) + 1)
        if gamma <= 0:
            return DraftTree.chain(committed[-1:], device=context.device)
        hidden = frozenset({HIDDEN} if DRAFT_HIDDEN in context.needs else ())
        output = self._read(committed, hidden)
        point_mass = self.greedy or context.adjuster.greedy
        tokens, parents = [torch.tensor(committed[-1:], device=self.model.device)], [-1]
        laws, peaks, draft_rows, draft_hidden = [], [], [], []
        level = [0]  # nodes whose children come next; the output has a row for each
        for depth in range(gamma):
            width = self.siblings[depth] if depth < len(self.siblings) else 1
            if point_mass:
                width = 1  # equal siblings would be one
            adjusted = self._adjust(output.logits, context, level, parents, tokens)
            rows = adjusted.repeat_interleave(width, dim=0) if width > 1 else adjusted
            if point_mass:
                peak, drawn = rows.max(dim=-1)
                peaks.append(peak)
            else:
                laws.append(context.adjuster.laws(rows))
                drawn = context.chance.draw(laws[-1])
            if DRAFT_ROWS in context.needs:
                draft_rows.append(rows)
            if hidden:
                draft_hidden.append(output.hidden.repeat_interleave(width, dim=0))
            new_parents = [node for node in level for _ in range(width)]
            level = list(range(len(parents), len(parents) + len(new_parents)))
            parents += new_parents
            tokens.append(drawn)
            if depth == gamma - 1 or self.ends_after(rows, drawn):
                break
            output = self.model.score(drawn, [self.base + parent for parent in new_parents], hidden)
            self.scored = len(parents) - 1
        laws, peaks, draft_rows, draft_hidden = (
            torch.cat(found).to(context.device) if found else None for found in (laws, peaks, draft_rows, draft_hidden)
        )
        tokens = torch.cat(tokens).to(context.device)
        return DraftTree(tokens, parents, laws, draft_peaks=peaks, draft_rows=draft_rows, draft_hidden=draft_hidden)

    def ends_after(self, adjusted: torch.Tensor, drawn: torch.Tensor) -> bool:
        """Whether to draft no further than the tokens just drawn, (rows,), from these logits, (rows, vocabulary).

        They stay in the proposal: leaving out a token for what it turned out to be would bend the law.
        """
        return False

    def observe(self, feedback: Feedback) -> None:
        if self.model.pending:  # nothing is pending when nothing was proposed
            read = [node for node in feedback.kept if node <= self.scored]
            self.model.keep([*range(self.base + 1), *(self.base + node for node in read)])

    def _read(self, committed: list[int], needs: frozenset[str]) -> ModelOutput:
        """Bring the cache up to the root; the one row that follows it.

        The root and what was missing before it stay pending: node i of the tree is pending node base + i.
        """
        known = self.model.vocab_size - 1
        missing = [min(token, known) for token in committed[self.model.length :]]
        if len(missing) > 2:  # the prompt, or text added by the user: no logits wanted
            self.model.feed(missing[:-1])
            missing = missing[-1:]
        ids = torch.tensor(missing, dtype=torch.long, device=self.model.device)
        output = self.model.score(ids, range(-1, len(ids) - 1), needs)
        self.base, self.scored = len(missing) - 1, 0
        return ModelOutput(output.logits[-1:], None if output.hidden is None else output.hidden[-1:])

    def _adjust(self, logits, context: DraftContext, level, parents, tokens) -> torch.Tensor:
        """The draft's logits over the target's vocabulary, processed with each node's own prefix."""
        short = context.vocab_size - logits.shape[-1]
        if short > 0:
            logits = torch.nn.functional.pad(logits, (0, short), value=-float("inf"))
        elif short < 0:
            logits = logits[:, : context.vocab_size]

        def prefix(row: int) -> list[int]:
            ids, node, flat = [], level[row], torch.cat(tokens).tolist()
            while node > 0:
                ids.append(flat[node])
                node = parents[node]
            return [*context.committed, *ids[::-1]]

        return context.adjuster.logits(logits, prefix)
