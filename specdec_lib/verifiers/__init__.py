"""Verifiers: one rule a file. Read base.py, then greedy.py, lossless.py, block.py, lenience.py."""

from specdec_lib.verifiers.base import Scores, Verdict, Verifier
from specdec_lib.verifiers.block import BlockVerification
from specdec_lib.verifiers.greedy import GreedyMatch
from specdec_lib.verifiers.lenience import Lenience
from specdec_lib.verifiers.lossless import LosslessRejection

__all__ = ["BlockVerification", "GreedyMatch", "Lenience", "LosslessRejection", "Scores", "Verdict", "Verifier"]
