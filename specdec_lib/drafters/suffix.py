"""Suffix decoding: what followed the longest end of the text that stood before, a token as likely as it was frequent.

Follows SuffixDecoding (Oliaro et al. 2024, arXiv 2411.04975): as many nodes as the match is long, grown while a path's
probability is .1 or more. One tree for this text and, if asked, whole earlier ones is ours; the paper keeps two.
Left out: the search over shorter matches for a better tree; the longest match counts.
"""

import heapq
from collections.abc import Iterable

import torch

from specdec_lib.drafters.base import DraftContext, Feedback
from specdec_lib.suffix_tree import FLOOR, SuffixTree
from specdec_lib.tree import DraftTree


class SuffixDrafter:
    """A tree grown from the likeliest path on; a path's probability is the product of its tokens' shares.

    keep: go on with earlier texts, prompts included; what is drafted, never the law under a lossless rule, then depends
    on them, and `memory` says what they left. Work a token does not depend on the text's length.
    """

    name = "suffix"

    def __init__(self, keep: bool = False, eos_token_ids: Iterable[int] = ()):
        self.keep, self.eos_token_ids = bool(keep), frozenset(eos_token_ids)
        self.learns = self.keep
        self.forget()

    def forget(self) -> None:
        self.tree, self.texts, self.read, self.committed = SuffixTree(), 0, 0, []
        self.memory = None

    def start(self, prompt: list[int]) -> None:
        if self.keep:
            self._read(self.committed)  # the last round's tokens, which no proposal followed
            if self.committed:
                self.tree.end()
                self.texts += 1
                self.memory = f"{len(self.tree.text) - self.texts} tokens of {self.texts} earlier texts"
            self.read = 0
        else:
            self.forget()
        self._read(prompt)

    def propose(self, context: DraftContext) -> DraftTree:
        if len(context.committed) < self.read:  # another text, or one that became shorter
            self.start(context.committed)
        self._read(context.committed)
        tokens, parents = [context.committed[-1]], [-1]
        match = self.tree.longest()
        if match is not None:
            self._grow(*match, context, tokens, parents)
        return DraftTree(torch.tensor(tokens, device=context.device), parents)

    def observe(self, feedback: Feedback) -> None:
        pass

    def _read(self, committed: list[int]) -> None:
        for token in committed[self.read :]:
            self.tree.add(token)
        self.committed, self.read = committed, len(committed)

    def _grow(self, place, budget: int, context: DraftContext, tokens: list[int], parents: list[int]) -> None:
        """The likeliest node next, until there are as many as the match is long, or a path falls below FLOOR."""
        waiting: list[tuple] = []  # (-path probability, order of arrival, parent, depth, token, place behind it)
        arrivals = 0

        def wait(place, parent: int, depth: int, probability: float) -> None:
            nonlocal arrivals
            for token, share, behind in self.tree.after(place) if depth <= context.room else ():
                if probability * share >= FLOOR and token < context.vocab_size and token not in self.eos_token_ids:
                    heapq.heappush(waiting, (-probability * share, arrivals, parent, depth, token, behind))
                    arrivals += 1

        wait(place, 0, 1, 1.0)
        while waiting and len(tokens) <= budget:
            probability, _, parent, depth, token, behind = heapq.heappop(waiting)
            tokens.append(token)
            parents.append(parent)
            wait(behind, len(tokens) - 1, depth + 1, -probability)
