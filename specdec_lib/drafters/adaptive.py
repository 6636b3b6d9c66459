"""Draft lengths that adapt: to the last round, to the draft's own confidence, or to the acceptance rate so far.

HeuristicLength follows transformers' num_assistant_tokens_schedule "heuristic_transient", ConfidenceStop its
assistant_confidence_threshold, LengthController Leviathan et al. 2023 (arXiv 2211.17192), section 3.5, each round.
Left out: a threshold that is fitted as the text goes on (transformers does that with scikit-learn), and trees.

All stay lossless: how long to draft is decided from earlier rounds or from tokens already in the proposal, and no
token is taken back. Each text begins anew.
"""

import torch

from specdec_lib.drafters.base import Feedback
from specdec_lib.drafters.model import ModelDrafter
from specdec_lib.model import Model
from specdec_lib.theory import best_gamma


class HeuristicLength(ModelDrafter):
    """Two tokens more after a round in which all were accepted, one fewer (but one at least) after any other.

    gamma: the first round's draft length.
    """

    name = "heuristic"

    def __init__(self, model: Model, gamma: int = 8):
        super().__init__(model, gamma)
        self.first_gamma = self.gamma

    def start(self, prompt: list[int]) -> None:
        super().start(prompt)
        self.gamma = self.first_gamma

    def observe(self, feedback: Feedback) -> None:
        super().observe(feedback)
        if feedback.tree.proposed:  # where the text had no room for a draft, nothing was learned
            all_accepted = len(feedback.verdict.path) == feedback.tree.proposed
            self.gamma = self.gamma + 2 if all_accepted else max(1, self.gamma - 1)


class ConfidenceStop(ModelDrafter):
    """Draft up to gamma tokens, and no further than the first one to which the draft gives less than `threshold`.

    The softmax of the adjusted logits is looked at, at temperature 0 too. Costs a device-to-host copy a token.
    """

    name = "confidence"

    def __init__(self, model: Model, gamma: int = 8, threshold: float = 0.4):
        super().__init__(model, gamma)
        if isinstance(threshold, bool) or not 0 <= threshold <= 1:
            raise ValueError(f"the confidence threshold must lie in [0, 1]; got {threshold!r}")
        self.threshold = threshold

    def ends_after(self, adjusted: torch.Tensor, drawn: torch.Tensor) -> bool:
        return float(torch.softmax(adjusted[0], dim=-1)[drawn[0]]) < self.threshold


class LengthController(ModelDrafter):
    """The best draft length by the formula, for alpha so far in this text and a c measured beforehand.

    c: as in theory.py; it is given, not timed here, so that the same seed gives the same text. gamma: the first
    round's draft length; later rounds draft at least one token, or nothing more could be learned. alpha: the mean of
    sum min(p, q) over tested contexts, one context of 0 and one of 1 added, so that the first few do not decide alone
    (Laplace's rule of succession).
    """

    name = "controller"

    def __init__(self, model: Model, c: float, gamma: int = 8):
        super().__init__(model, gamma)
        best_gamma(0.5, c)  # refuses a c that cannot be
        self.c, self.first_gamma = c, self.gamma

    def start(self, prompt: list[int]) -> None:
        super().start(prompt)
        self.gamma, self.overlap, self.tested = self.first_gamma, 1.0, 2

    def observe(self, feedback: Feedback) -> None:
        super().observe(feedback)
        verdict = feedback.verdict
        self.overlap += sum(verdict.overlaps[node] for node in verdict.outcomes)
        self.tested += len(verdict.outcomes)
        if verdict.outcomes:
            self.gamma = max(1, best_gamma(self.overlap / self.tested, self.c))
