"""CSD: a mismatch passes if the target has often wanted that very word for the draft's, and finds the draft's likely.

Follows Calibrated Speculative Decoding (Zhou et al. 2026, arXiv 2604.13634), known to us from digests alone: correction
memory and consistency gate. What they leave open, and temperatures above 0, are ours.
Left out: the memory (csd/memory.py), and the threshold on a pair's rate (csd_rate.py).
"""

import math
from collections.abc import Collection

import torch

from specdec_lib.csd.memory import CorrectionMemory
from specdec_lib.drafters.base import Feedback
from specdec_lib.sampling import Chance
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import Scores, Verdict, parents_of
from specdec_lib.verifiers.lossless import standard_or


class CSD:
    """Keep x iff the standard rule does, or count(x, t*) > lambda_ and z[x] - z[t*] >= log tau on the raw logits z.

    t*: argmax of p, so of the adjusted logits. memory None: the gate alone (at temperature 0, Lenience(tau)); tau 0:
    the memory alone; tau 1 rescues ties alone; lambda_ inf is the standard rule exactly. Above temperature 0 the p/q
    test comes first, and what is emitted in place of a token not rescued stays a draw from the residual; t* itself,
    rejected by chance, is not rescued.
    The memory is read as it stood when the round began, and taught when it is committed; on a chain this changes no
    decision, since the first of two equal pairs in a round was rescued, so had its count already. A frozen memory, or
    none, makes the verdict independent of other texts.
    never: ids that are never rescued (EOS and special tokens, in the methods by name). What the settings forbid is not
    either (base.walk). ValueError unless lambda_ >= 0 and 0 <= tau <= 1.
    """

    needs = frozenset()

    def __init__(
        self, memory: CorrectionMemory | None, lambda_: float = 6.0, tau: float = 0.01, never: Collection[int] = (),
        name: str = "csd",
    ):  # fmt: skip
        if isinstance(lambda_, bool) or not lambda_ >= 0:
            raise ValueError(f"lambda of {name}, the count that a pair must exceed, must be 0 or more; got {lambda_!r}")
        if isinstance(tau, bool) or not 0 <= tau <= 1:
            raise ValueError(f"tau of {name}, the probability ratio of the gate, must be between 0 and 1; got {tau!r}")
        self.memory, self.lambda_, self.tau, self.never, self.name = memory, lambda_, tau, frozenset(never), name
        self.log_tau = math.log(tau) if tau > 0 else -math.inf
        self.lossless = memory is not None and math.isinf(lambda_)

    @property
    def learns(self) -> bool:
        return self.memory is not None and not self.memory.frozen

    def verify(self, tree: DraftTree, scores: Scores, chance: Chance) -> Verdict:
        if self.lossless or len(tree) == 1:
            return standard_or(tree, scores, chance)
        return standard_or(tree, scores, chance, self.gate(tree, scores), self.trusts)

    def gate(self, tree: DraftTree, scores: Scores) -> torch.Tensor:
        """(nodes,) bool: the gap of the raw logits. Two numbers a node are read; no law is made."""
        parents = parents_of(tree)
        tokens = tree.tokens.clamp_max(scores.logits.shape[-1] - 1)  # an id beyond is refused in the walk
        drafted, wanted = (scores.logits[parents, ids].float() for ids in (tokens, scores.best[parents]))
        return drafted - wanted >= self.log_tau

    def trusts(self, x: int, best: int) -> bool:
        """Is this pair remembered as often as it must be?"""
        return x != best and x not in self.never and self.remembers(x, best)

    def remembers(self, x: int, best: int) -> bool:
        return self.memory is None or self.memory.count(x, best) > self.lambda_

    def learn(self, feedback: Feedback) -> None:
        """Teach the memory a committed round, unless it is frozen."""
        if self.learns:
            verdict = feedback.verdict
            self.memory.teach(
                verdict.tokens, feedback.tree.parents, verdict.outcomes, verdict.best, feedback.committed,
                len(feedback.kept) + 1,
            )  # fmt: skip

    def rescue_set(self, scores: Scores, rows: torch.Tensor) -> torch.Tensor:
        """(len(rows), vocabulary) bool: every token that would be rescued behind these rows, if it were drafted and
        rejected. For the meter (exactness.py); the rule itself never looks at a whole vocabulary.
        """
        raw, adjusted, best = scores.logits[rows].float(), scores.adjusted[rows], scores.best[rows]
        passes = raw - raw.gather(1, best[:, None]) >= self.log_tau
        trusted = torch.zeros_like(passes)
        every = range(raw.shape[-1])
        for i, wanted in enumerate([] if self.lossless else best.tolist()):
            pairs = ((x, wanted) for x in every) if self.memory is None else self.memory.pairs
            trusted[i, [x for x, t in pairs if t == wanted and self.trusts(x, wanted)]] = True
        return passes & trusted & (adjusted > -math.inf)
