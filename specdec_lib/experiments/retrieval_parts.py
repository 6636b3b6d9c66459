"""What the replays of retrieval.py compare: drafters as they are, with other settings, and with a part left out.

Follows LogitSpec (arXiv 2507.01449), section 4, in what is varied; `logitspec-cost` and its parts are our own.
Left out: the replays and their figures (retrieval.py).

"pld, whole" proposes only where all ten tokens of a continuation stand, as the original prompt lookup does.
"""

from collections.abc import Callable, Mapping

from specdec_lib.drafters import CostAware, Drafter, LogitSpec, LogitSpecCost, PromptLookup
from specdec_lib.drafters.logitspec_cost import COPY, GUESS
from specdec_lib.ngrams import FULL, LONGEST, NGramIndex

CAPACITIES = (2, 4, 8, 16, 32, 64)


class Whole(PromptLookup):
    """Prompt lookup that takes no continuation of fewer than gamma tokens; the leftmost one is the longest there is."""

    def _position(self):
        ids, longest = self.index.ids, self.index.longest
        while longest and (found := self.index.find(ids[-longest:])):
            at, length = found
            if at + self.gamma <= len(ids):
                return at
            longest = length - 1
        return None


class Late(NGramIndex):
    """An index that takes in the root a step later, as that of LogitSpec's authors does."""

    def sync(self, committed):
        super().sync(committed[:-1])


class Part(LogitSpecCost):
    """logitspec-cost with a part left out. without: a kind of offer that is not made. bare: nothing hangs below a
    guess. guesses: so many are tried, whatever T(k) says; None: as many as nodes are nearly free.
    """

    def __init__(self, times: Mapping[int, float], without: str = "", bare: bool = False, guesses: int | None = None):
        super().__init__(times)
        self.without, self.bare = without, bare
        self.guesses = self.guesses if guesses is None else guesses

    def offers(self, path):
        if path and self.bare and path[0] in self.guessed:
            return
        found: dict[int, tuple] = {}  # of equal tokens the first offer counts
        for token, key in super().offers(path):
            if key[0] != self.without:
                found.setdefault(token, key)
        if not path:
            self.guessed = {token for token, key in found.items() if key[0] == GUESS}
        yield from found.items()


def late() -> LogitSpec:
    drafter = LogitSpec()
    drafter.index = Late(LONGEST, FULL)
    return drafter


# Parts of a drafter, by the drafter that they are parts of.
PARTS = {
    "logitspec": ("logitspec, branches of 1", "logitspec, branches of 4", "logitspec, index a step later"),
    "logitspec-cost": (
        "logitspec-cost, no copied guesses", "logitspec-cost, nothing below guesses", "logitspec-cost, 64 guesses",
        "logitspec-cost, no guesses",
    ),
}  # fmt: skip


def drafters(times: Mapping[int, float]) -> dict[str, Callable[[], Drafter]]:
    """What is replayed, by name: the methods, parts of LogitSpec, capacities, cost-aware forms, and PARTS."""
    return {
        "pld": PromptLookup,
        "pld:gamma=4": lambda: PromptLookup(4),
        "pld, whole": Whole,
        "logitspec": LogitSpec,
        "logitspec-cost": lambda: LogitSpecCost(times),
        "guesses alone": lambda: LogitSpec(retrieval=False),
        "retrieval alone": lambda: LogitSpec(guesses=0),
        **{f"logitspec:capacity={c}": lambda c=c: LogitSpec(c) for c in CAPACITIES[:-1]},
        **{f"logitspec:guesses={g}": lambda g=g: LogitSpec(guesses=g) for g in (8, 32)},
        "pld, cost-aware": lambda: CostAware(PromptLookup(), times),
        "logitspec, cost-aware": lambda: CostAware(LogitSpec(), times),
        "logitspec-cost:keep=1": lambda: LogitSpecCost(times, keep=True),
        "logitspec, branches of 1": lambda: LogitSpec(lengths=lambda rank: 1),
        "logitspec, branches of 4": lambda: LogitSpec(lengths=lambda rank: 4),
        "logitspec, index a step later": late,
        "logitspec-cost, no copied guesses": lambda: Part(times, without=COPY),
        "logitspec-cost, nothing below guesses": lambda: Part(times, bare=True),
        "logitspec-cost, 64 guesses": lambda: Part(times, guesses=64),
        "logitspec-cost, no guesses": lambda: Part(times, without=GUESS),
    }
