"""Judge Decoding's head: labels.py, features.py, train.py make it, head.py keeps it; data.py labels the pocket world.

Read in that order, then verifiers/judge.py. `head_of(pair)` finds the head that a pair's target has. kind.py is what it
must beat.
"""

from specdec_lib.judge.head import HeadError, JudgeHead, head_of

__all__ = ["HeadError", "JudgeHead", "head_of"]
