"""Drafters: one a file. Read base.py, then model.py."""

from specdec_lib.drafters.base import DraftContext, Drafter, Feedback, NoDrafter
from specdec_lib.drafters.model import ModelDrafter

__all__ = ["DraftContext", "Drafter", "Feedback", "ModelDrafter", "NoDrafter"]
