"""NGramIndex: where the last few tokens stood before in a text. Constant work a token added, constant work a look-up.

Follows LogitSpec (arXiv 2507.01449) for which occurrence counts: the latest one with a full continuation. Prompt
lookup's convention, the earliest occurrence, is the same index with full=None.
Left out: what is proposed from it (drafters/), and texts of other requests.
"""

from collections.abc import Sequence

from specdec_lib.whole import check_whole

LONGEST = 3  # tokens in a key, at most
FULL = 20  # tokens of a continuation


class NGramIndex:
    """Keys of 1 to `longest` tokens, each with one number: the position after an occurrence that something follows.

    full: of a key's occurrences, the latest one with at least `full` tokens after it counts; where none has so many
    yet, the earliest. None: always the earliest. operations: dictionary reads and writes so far, for the tests of cost.
    Raises ValueError for numbers below 1.
    """

    def __init__(self, longest: int = LONGEST, full: int | None = FULL):
        self.longest = check_whole("longest, the tokens of a key,", longest, 1)
        self.full = None if full is None else check_whole("full, the tokens of a continuation,", full, 1)
        self.clear()

    @property
    def keys(self) -> int:
        """Entries of the dictionary."""
        return len(self._after)

    def clear(self) -> None:
        """Forget the text."""
        self.ids: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}
        self.operations = 0

    def sync(self, committed: Sequence[int]) -> None:
        """Take in what a text has gained. A text that became shorter (a round that failed) is read anew."""
        if len(committed) < len(self.ids):
            self.clear()
        for position in range(len(self.ids), len(committed)):
            self.add(committed[position])

    def add(self, token: int) -> None:
        """One more token: it is the first to follow the keys before it, and completes one continuation."""
        self.ids.append(token)
        self._earliest(len(self.ids) - 1)
        if self.full is not None and len(self.ids) > self.full:
            self._latest(len(self.ids) - self.full)

    def find(self, tail: Sequence[int]) -> tuple[int, int] | None:
        """(position, length of the key) of the longest key that ends `tail` and stood before; None if none did.

        What followed it is ids[position:]. The end of the text itself, which nothing follows, is never found.
        """
        for length in range(min(self.longest, len(tail)), 0, -1):
            self.operations += 1
            position = self._after.get(tuple(tail[-length:]))
            if position is not None:
                return position, length
        return None

    def _earliest(self, end: int) -> None:
        for length in range(1, min(self.longest, end) + 1):
            self.operations += 1
            self._after.setdefault(tuple(self.ids[end - length : end]), end)

    def _latest(self, end: int) -> None:
        for length in range(1, min(self.longest, end) + 1):
            self.operations += 1
            self._after[tuple(self.ids[end - length : end])] = end
