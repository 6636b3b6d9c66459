"""The correction memory of CSD: how often the target wanted t* where the draft said x.

Follows Calibrated Speculative Decoding (Zhou et al. 2026, arXiv 2604.13634), known to us from digests alone; what those
leave open (what is counted when, the cap, the rates) is ours.
Left out: the file (file.py), filling it before use (calibrate.py), and the rule that reads it (verifiers/csd.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from specdec_lib.trace import Trace
from specdec_lib.tree import depths
from specdec_lib.verifiers.base import EXACT, RESCUED
from specdec_lib.whole import check_whole

CAP = 65_536  # pairs
CONTEXT_TOKENS = 16  # what is kept of the text before a pair, where contexts are asked for


@dataclass(frozen=True)
class Owner:
    """Whose mistakes these are: checksums of target and draft, and the tokenizer's fingerprint.

    Behind the checksum of a model that is not the whole one as it is stored stands its form, ":nf4" or ":layers=4".
    """

    target: str = ""
    draft: str = ""
    tokenizer: str = ""


@dataclass
class CorrectionMemory:
    """Counts of the directed pair (x, t*): x was drafted where t* was the target's argmax, and was not it.

    pairs: (x, t*) -> [times rescued, times rejected], the longest unused first. drafted: x -> how often x was drafted
    at a position reached, whatever came of it. texts: how many whole texts it was taught.
    cap: a new pair beyond it drives out the one of the smallest count, of equals the longest unused.
    contexts_kept: how many contexts of each pair are kept, 0 unless asked for: they are people's text. contexts: the
    last ids before x. frozen: it can be read only. made: how it was filled, for people and for going on.
    """

    owner: Owner = Owner()
    cap: int = CAP
    contexts_kept: int = 0
    pairs: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    drafted: dict[int, int] = field(default_factory=dict)
    contexts: dict[tuple[int, int], list[list[int]]] = field(default_factory=dict)
    texts: int = 0
    frozen: bool = False
    made: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_whole("cap, the most pairs kept,", self.cap, 1)
        check_whole("contexts_kept, the contexts kept of a pair,", self.contexts_kept, 0)

    def count(self, x: int, best: int) -> int:
        """How often x was no match where best was the argmax, rescued or rejected."""
        return sum(self.pairs.get((x, best), (0, 0)))

    def rate(self, x: int, best: int) -> float:
        """count over how often x was drafted at a position reached; 0 for a pair never seen."""
        count = self.count(x, best)
        return count / self.drafted[x] if count else 0.0

    def teach(
        self,
        tokens: Sequence[int],
        parents: Sequence[int],
        outcomes: dict[int, str],
        best: Sequence[int],
        committed: Sequence[int],
        emitted: int,
    ) -> None:
        """One committed round, as in Verdict and Round. committed: all ids after it, of which it emitted the last.

        Counted is every node reached at a position that was emitted: nothing behind the first rejection, and nothing
        behind a stop. Where x is the argmax (rejected by chance, above temperature 0), it only counts as drafted.
        ValueError if frozen, or if the round does not say what the target wanted.
        """
        if self.frozen:
            raise ValueError("this correction memory is frozen; take a snapshot() to go on learning")
        if outcomes and len(best) != len(tokens):
            raise ValueError("a round without the target's argmax teaches nothing; decode the text again")
        depth = depths(parents)
        for node, outcome in outcomes.items():
            if depth[node] > emitted:
                continue
            x, wanted = tokens[node], best[parents[node]]
            self.drafted[x] = self.drafted.get(x, 0) + 1
            if outcome != EXACT and x != wanted:
                self._add(x, wanted, outcome == RESCUED)
                if len(self.contexts.get((x, wanted), ())) < self.contexts_kept:
                    text = list(committed[: len(committed) - emitted + depth[node] - 1])
                    self.contexts.setdefault((x, wanted), []).append(text[-CONTEXT_TOKENS:])

    def teach_trace(self, trace: Trace) -> None:
        """All rounds of a whole text. What a text teaches does not depend on what was known when it was decoded."""
        ids = list(trace.prompt)
        for r in trace.rounds:
            ids += r.emitted
            self.teach(r.tokens, r.parents, r.outcomes, r.best, ids, len(r.emitted))
        self.texts += 1

    def _add(self, x: int, best: int, rescued: bool) -> None:
        counts = self.pairs.pop((x, best), None)
        if counts is None:
            counts = [0, 0]
            while len(self.pairs) >= self.cap:
                self._forget()
        counts[0 if rescued else 1] += 1
        self.pairs[x, best] = counts  # now the latest used

    def _forget(self) -> None:
        """Drop the pair of the smallest count; of equals the longest unused, which stands first."""
        least, found = None, None
        for pair, counts in self.pairs.items():
            if least is None or sum(counts) < least:
                least, found = sum(counts), pair
                if least == 1:
                    break
        del self.pairs[found]
        self.contexts.pop(found, None)

    def snapshot(self) -> "CorrectionMemory":
        """A copy of its own as things stand, not frozen."""
        return CorrectionMemory(
            self.owner, self.cap, self.contexts_kept, {pair: list(counts) for pair, counts in self.pairs.items()},
            dict(self.drafted), {pair: [list(ids) for ids in known] for pair, known in self.contexts.items()},
            self.texts, False, dict(self.made),
        )  # fmt: skip

    def freeze(self) -> "CorrectionMemory":
        """From now on it can only be read; the memory itself."""
        self.frozen = True
        return self

    def merge(self, other: "CorrectionMemory") -> None:
        """Add another memory's counts, as if its texts had come after these. ValueError for another pair's."""
        if self.frozen:
            raise ValueError("this correction memory is frozen; take a snapshot() and merge into that")
        if self.owner != other.owner:
            raise ValueError("these memories are of different models or tokenizers: merge those of one pair")
        for (x, best), (rescued, rejected) in other.pairs.items():
            ours = self.pairs.pop((x, best), (0, 0))
            self.pairs[x, best] = [ours[0] + rescued, ours[1] + rejected]
        for x, times in other.drafted.items():
            self.drafted[x] = self.drafted.get(x, 0) + times
        for pair, known in other.contexts.items():
            self.contexts[pair] = [*self.contexts.get(pair, ()), *known][: self.contexts_kept]
        while len(self.pairs) > self.cap:
            self._forget()
        self.texts += other.texts

    def most_frequent(self, n: int | None = None) -> list[tuple[int, int, int, int, float]]:
        """(x, t*, rescued, rejected, rate), the most frequent pair first."""
        rows = [(x, best, *counts, self.rate(x, best)) for (x, best), counts in self.pairs.items()]
        return sorted(rows, key=lambda row: (-row[2] - row[3], row[0], row[1]))[:n]
