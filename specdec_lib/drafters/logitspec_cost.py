"""LogitSpec with its nodes bought: retrieval at every node, guesses, copied guesses; their odds against measured T(k).

Our own, from LogitSpec (arXiv 2507.01449). "Copied guesses" (the best tokens after the same token, last time) are known
to us from others' measurements of it. The priors are shares measured on the recorded texts of data/prompts/chat.jsonl.
Left out: rows of rejected nodes and of the prompt, which could be copied from as well.
"""

from collections.abc import Iterator, Mapping

from specdec_lib.drafters.base import DraftContext, Feedback
from specdec_lib.drafters.costing import Buyer, Odds, Offer
from specdec_lib.drafters.logitspec import GUESSES
from specdec_lib.machine import nearly_free
from specdec_lib.ngrams import LONGEST, NGramIndex
from specdec_lib.tree import DraftTree

COPIES = 5  # best tokens remembered of each row
LONGEST_MATCH = 16  # tokens of a match that are looked at

FOLLOWED, GUESS, COPY = "followed", "guess", "copy"  # where an offer comes from

# Share accepted, by how many tokens matched before it; by rank among the last row's best, where (..., root, guess) did
# not stand before or its last token alone did; by rank among the best tokens remembered.
_FOLLOWED = {1: 0.18, 2: 0.56, 3: 0.63, 4: 0.73, 6: 0.78, 9: 0.89, 16: 0.91}
_GUESS = (
    {1: 0.039, 2: 0.020, 3: 0.015, 5: 0.006, 9: 0.004, 17: 0.002, 33: 0.0006},
    {1: 0.046, 2: 0.038, 3: 0.027, 5: 0.010, 9: 0.013, 17: 0.018, 33: 0.010},
)
_COPY = (0.113, 0.075, 0.044, 0.034, 0.026)
LIKELY_NEXT = 0.36  # after a match of one token, where the last row, too, has the token among its best
STOOD_BEFORE = 0.16  # a guess of any rank, where two or three tokens with it stood before

PRIORS = (
    {(FOLLOWED, length, False): share for length, share in _FOLLOWED.items()}
    | {(FOLLOWED, length, True): max(share, LIKELY_NEXT) for length, share in _FOLLOWED.items()}
    | {(GUESS, rank, hit): share for hit, shares in enumerate(_GUESS) for rank, share in shares.items()}
    | {(GUESS, rank, hit): STOOD_BEFORE for rank in _GUESS[0] for hit in range(2, LONGEST + 1)}
    | {(COPY, rank): share for rank, share in enumerate(_COPY)}
)


def _class(value: int, lower_bounds: Mapping[int, float]) -> int:
    """The largest lower bound that a value reaches."""
    return max(bound for bound in lower_bounds if bound <= value)


MATCH_CLASS = [0, *(_class(length, _FOLLOWED) for length in range(1, LONGEST_MATCH + 1))]
RANK_CLASS = [1, *(_class(rank, _GUESS[0]) for rank in range(1, GUESSES))]  # the argmax itself is seldom a guess


class LogitSpecCost(Buyer):
    """At each node: what followed its last 3, 2 or 1 tokens, and the best tokens that were remembered for its token; at
    the root the last row's best tokens, too. Equal tokens are one node, and any of them may be followed further.

    times: T(k), as in costing.py. As many guesses are tried as nodes are nearly free by it, 64 at most; the largest
    tree is the largest k measured.
    """

    name = "logitspec-cost"

    def __init__(self, times: Mapping[int, float], keep: bool = False):
        super().__init__(times, Odds(PRIORS.__getitem__), keep)
        self.guesses = min(nearly_free(times), GUESSES)
        self.index = NGramIndex()
        self.start([])

    def start(self, prompt: list[int]) -> None:
        super().start(prompt)
        self.index.clear()
        self.best: list[int] = []  # of the row that emitted the newest token
        self.copies: dict[int, list[int]] = {}  # token: the best tokens of the row after it, when it was last scored

    def propose(self, context: DraftContext) -> DraftTree:
        self.index.sync(context.committed)
        self.tail = context.committed[-LONGEST_MATCH:]
        return super().propose(context)

    def offers(self, path: list[int]) -> Iterator[Offer]:
        ids = [*self.tail, *path]
        last, best = ids[-1], () if path else self.best
        hit = self.index.find(ids[-LONGEST:])
        if hit:
            token = self.index.ids[hit[0]]
            yield token, (FOLLOWED, MATCH_CLASS[self._matched(hit[0], ids)], token in best)
        for rank, token in enumerate(self.copies.get(last, ())):
            yield token, (COPY, rank)
        for rank, token in enumerate(best[: self.guesses]):
            if token != last:
                hit = self.index.find([*ids[1 - LONGEST :], token])
                yield token, (GUESS, RANK_CLASS[rank], hit[1] if hit else 0)

    def _matched(self, position: int, ids: list[int]) -> int:
        """How many tokens before this position of the text equal the end of ids."""
        length, text = 0, self.index.ids
        most = min(position, len(ids), LONGEST_MATCH)
        while length < most and text[position - 1 - length] == ids[-1 - length]:
            length += 1
        return length

    def observe(self, feedback: Feedback) -> None:
        super().observe(feedback)
        rows = [0, *feedback.kept]
        logits = feedback.scores.logits[rows]
        best = logits.topk(min(GUESSES, logits.shape[-1])).indices.tolist()
        self.best = best[-1]
        for node, tokens in zip(rows, best, strict=True):
            self.copies[self.basket.tokens[node]] = tokens[:COPIES]
