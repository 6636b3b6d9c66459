"""Lookahead decoding: every pass betters guesses at later positions; the n-grams that arise are kept and proposed.

Follows Fu et al. 2024 (arXiv 2402.02057): a Jacobi window of W columns and N - 1 levels, a pool of G n-grams a token.
Left out: the pool filled from the prompt, a window that moves on by more than one column a round, several devices.
"""

import random
from collections.abc import Iterable

from specdec_lib.drafters.base import DraftContext, Feedback
from specdec_lib.drafters.lookup import sound
from specdec_lib.tree import DraftTree
from specdec_lib.whole import check_whole


class Lookahead:
    """Proposes all n-grams of the newest token; beside them the window is scored, as scouts that are never kept.

    width W, ngram N (tokens of an n-gram, its key included), guesses G: at most so many n-grams a key, the one found or
    found again longest ago falls out. About (W + G)(N - 1) nodes a round.
    window[0][i] is a guess at position i + 1 after the root; window[level][i] one at position i + level, made when all
    before it in its column was there to be read. The columns' deepest rows give the next level, the lowest one leaves,
    and the window moves on by a column. It begins with random tokens of the prompt, drawn with `seed` for every text
    anew. Where fewer positions are left than the window is deep, it rests. A round adds one copy of the deepest level's
    argmax to the host. ValueError for W or G below 1 or N below 3.
    """

    name = "lookahead"

    def __init__(
        self, width: int = 7, ngram: int = 5, guesses: int = 7, seed: int = 0, eos_token_ids: Iterable[int] = ()
    ):
        self.width, self.guesses = check_whole("width", width, 1), check_whole("guesses", guesses, 1)
        self.ngram, self.seed = check_whole("ngram", ngram, 3), seed
        self.eos_token_ids = frozenset(eos_token_ids)
        self.start([])

    def start(self, prompt: list[int]) -> None:
        rng = random.Random(self.seed)
        columns = self.width + self.ngram - 3  # a column is lost with every level that is filled
        self.window = [[rng.choice(prompt) for _ in range(columns)] if prompt else []]
        self.pool: dict[int, dict[tuple[int, ...], None]] = {}
        self.deepest: list[int] = []  # nodes of the newest level, column by column

    def propose(self, context: DraftContext) -> DraftTree:
        root = context.committed[-1]
        paths = [
            sound(path[: context.room], context.vocab_size, self.eos_token_ids) for path in self.pool.get(root, ())
        ]
        tree = DraftTree.from_paths(root, paths, device=context.device)
        self.deepest = []
        depth = len(self.window[0]) + len(self.window) - 1
        return tree if depth > context.room else self._with_window(tree)

    def _with_window(self, tree: DraftTree) -> DraftTree:
        """Level 0 is a chain below the root; each column hangs as a chain below its own token of level 0."""
        new = len(tree)
        level = [0, *range(new, new + len(self.window[0]))]  # column 0 begins with the root
        tokens, parents = list(self.window[0]), level[:-1]
        for guesses in self.window[1:]:
            parents += level[: len(guesses)]
            level = list(range(new + len(tokens), new + len(tokens) + len(guesses)))
            tokens += guesses
        self.deepest = level[1:] if len(self.window) == 1 else level
        return tree.with_scouts(tokens, parents)

    def observe(self, feedback: Feedback) -> None:
        if not self.deepest:
            return
        made = feedback.scores.best[self.deepest].tolist()
        if len(self.window) < self.ngram - 1:
            self.window = [[*guesses[1:]] for guesses in self.window] + [made if len(self.window) == 1 else made[1:]]
            return
        keys = [feedback.verdict.tokens[0], *self.window[0]]
        for column, key in enumerate(keys):
            self._remember(key, (*(guesses[column] for guesses in self.window[1:]), made[column]))
        self.window = [self.window[1][1:], *self.window[2:], made]

    def _remember(self, key: int, rest: tuple[int, ...]) -> None:
        known = self.pool.setdefault(key, {})
        known.pop(rest, None)  # to the end: the newest
        known[rest] = None
        if len(known) > self.guesses:
            del known[next(iter(known))]
