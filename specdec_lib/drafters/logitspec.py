"""LogitSpec: what stood after the last tokens before, and guesses at the token after next, each with what followed it.

Follows LogitSpec (arXiv 2507.01449) as its authors' code does it: keys, ranks (the argmax has rank 0), lengths, and the
order in which branches fill the capacity. Two things differ: their index takes in the root a step later, which changed
MAT by less than 0.1 % on our recorded texts (an arm of experiments/retrieval.py; interval of the ratio .996 to 1.003);
and their separate chains are merged where they begin alike, which keeps what their "branch with most matches" keeps and
makes the draft exact at any temperature.
Left out: slots that merging frees (logitspec_cost.py uses them).

The row that emitted the root ranks, beside the root, tokens that tend to come right after it: the guesses.
"""

from collections.abc import Callable, Iterator, Sequence

from specdec_lib.drafters.base import DraftContext, Feedback
from specdec_lib.ngrams import FULL, LONGEST, NGramIndex
from specdec_lib.tree import DraftTree
from specdec_lib.whole import check_whole

CAPACITY = 64  # nodes of a tree, its root among them
GUESSES = 64  # the paper says 60, the code 64


def branch_length(rank: int) -> int:
    """Tokens of a guess's branch, the guess included, by its rank among the row's best tokens (0: the argmax)."""
    return 4 if rank <= 8 else 3 if rank <= 32 else 1


class LogitSpec:
    """Branch A: up to 20 tokens that followed the text's last 3, 2 or 1. Branches B: a guess, and what followed it.

    capacity: nodes, root included, counted as separate chains. guesses: how many of the last row's best tokens are
    tried; 0 leaves retrieval alone. retrieval: False leaves the guesses alone, one token each. lengths: tokens of a
    guess's branch by its rank. Reading the row is one device-to-host copy a round more. Until a row has been seen (a
    text's first round) there are no guesses.
    Raises ValueError for a capacity below 1 or guesses below 0.
    """

    name = "logitspec"

    def __init__(
        self,
        capacity: int = CAPACITY,
        guesses: int = GUESSES,
        retrieval: bool = True,
        lengths: Callable[[int], int] = branch_length,
    ):
        self.capacity = check_whole("the capacity, nodes with the root,", capacity, 1)
        self.guesses = check_whole("guesses, how many of a row's best tokens,", guesses, 0)
        self.retrieval, self.lengths = retrieval, lengths
        self.index = NGramIndex(LONGEST, FULL)
        self.start([])

    def start(self, prompt: list[int]) -> None:
        self.index.clear()
        self.best: list[int] = []  # of the row that emitted the newest token
        self.best_for = -1  # the length of the text that it ended

    def propose(self, context: DraftContext) -> DraftTree:
        return DraftTree.from_paths(context.committed[-1], self.paths(context), device=context.device)

    def paths(self, context: DraftContext) -> list[list[int]]:
        """The branches below the root, cut to the capacity and to the room that the text has."""
        self.index.sync(context.committed)
        paths, left = [], self.capacity - 1
        for branch in self._branches(context.committed):
            branch = branch[: min(left, context.room)]
            if not branch:
                break
            paths.append(branch)
            left -= len(branch)
        return paths

    def observe(self, feedback: Feedback) -> None:
        self.best_for = len(feedback.committed)
        if self.guesses:
            self.best = best_tokens(feedback, self.guesses)

    def _branches(self, committed: Sequence[int]) -> Iterator[list[int]]:
        tail, root = committed[-LONGEST:], committed[-1]
        branch = self._continuation(tail, FULL)
        if branch:
            yield branch
        if self.best_for != len(committed):  # the user has added tokens since
            return
        for rank, guess in enumerate(self.best):
            if guess != root:
                yield [guess, *self._continuation([*tail, guess], self.lengths(rank) - 1)]

    def _continuation(self, tail: Sequence[int], tokens: int) -> list[int]:
        hit = self.index.find(tail) if self.retrieval and tokens > 0 else None
        return self.index.ids[hit[0] : hit[0] + tokens] if hit else []


def best_tokens(feedback: Feedback, most: int) -> list[int]:
    """The best tokens of the row that emitted the newest token, best first: the row of the last node kept."""
    row = feedback.scores.logits[feedback.kept[-1] if feedback.kept else 0]
    return row.topk(min(most, row.shape[-1])).indices.tolist()
