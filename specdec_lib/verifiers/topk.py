"""Top-K: a draft token passes if it is among the target's K likeliest, whatever its probability.

Follows the baseline of Judge Decoding (Bachmann et al. 2025, arXiv 2501.19309); seen in summaries only.
Left out: K that depends on the law.
"""

from specdec_lib.sampling import Chance
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import Scores, Verdict
from specdec_lib.verifiers.lossless import standard_or
from specdec_lib.verifiers.soft import ranks
from specdec_lib.whole import check_whole


class TopK:
    """Accept x iff the standard rule does, or x is in topK(p). On trees and at any temperature; ours where it says so.

    k = 0 is the lossless rule. k = 1 is it too at temperature 0, and no more above, where it keeps every argmax. Of
    equal logits the lower id ranks first (ours). Above temperature 0 a rejected token leaves the standard residual
    (ours), and what is emitted is not the target truncated to its top k: arXiv 2607.26627 warns of taking one for the
    other (experiments/truncation.py sets them side by side). ValueError for a k that is no whole number from 0 on.
    """

    name, needs = "topk", frozenset()

    def __init__(self, k: int = 2):
        self.k = check_whole("k of topk", k, 0)
        self.lossless = self.k == 0

    def verify(self, tree: DraftTree, scores: Scores, chance: Chance) -> Verdict:
        return standard_or(tree, scores, chance, None if self.lossless else ranks(tree, scores) < self.k)
