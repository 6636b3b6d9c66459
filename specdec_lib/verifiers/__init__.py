"""Verifiers: one rule a file. Read base.py, greedy.py, lossless.py, block.py; then the lossy ones from lenience.py on.

Judge and AutoJudge, whose heads are trained, and reflective verification are imported from their own files.
"""

from specdec_lib.verifiers.base import Scores, Verdict, Verifier
from specdec_lib.verifiers.block import BlockVerification
from specdec_lib.verifiers.cascade import Cascade
from specdec_lib.verifiers.ensemble import Ensemble
from specdec_lib.verifiers.fly import FLy, FLyCode
from specdec_lib.verifiers.greedy import GreedyMatch
from specdec_lib.verifiers.kl import KL
from specdec_lib.verifiers.lenience import Lenience
from specdec_lib.verifiers.lossless import LosslessRejection
from specdec_lib.verifiers.lossy import Lossy
from specdec_lib.verifiers.topk import TopK
from specdec_lib.verifiers.typical import Typical

__all__ = [
    "BlockVerification", "Cascade", "Ensemble", "FLy", "FLyCode", "GreedyMatch", "KL", "Lenience", "LosslessRejection",
    "Lossy", "Scores", "TopK", "Typical", "Verdict", "Verifier",
]  # fmt: skip
