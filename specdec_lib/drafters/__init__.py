"""Drafters: one a file. Read base.py, then model.py, adaptive.py."""

from specdec_lib.drafters.adaptive import ConfidenceStop, HeuristicLength, LengthController
from specdec_lib.drafters.base import DraftContext, Drafter, Feedback, NoDrafter
from specdec_lib.drafters.model import ModelDrafter

__all__ = [
    "ConfidenceStop",
    "DraftContext",
    "Drafter",
    "Feedback",
    "HeuristicLength",
    "LengthController",
    "ModelDrafter",
    "NoDrafter",
]
