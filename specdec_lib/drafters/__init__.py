"""Drafters: one a file. Read base.py, then model.py, adaptive.py; without a model lookup.py, rest.py, lookahead.py,
recycling.py, suffix.py, logitspec.py, costing.py, logitspec_cost.py."""

from specdec_lib.drafters.adaptive import ConfidenceStop, HeuristicLength, LengthController
from specdec_lib.drafters.base import DraftContext, Drafter, Feedback, NoDrafter
from specdec_lib.drafters.costing import CostAware
from specdec_lib.drafters.logitspec import LogitSpec
from specdec_lib.drafters.logitspec_cost import LogitSpecCost
from specdec_lib.drafters.lookahead import Lookahead
from specdec_lib.drafters.lookup import PromptLookup
from specdec_lib.drafters.model import ModelDrafter
from specdec_lib.drafters.recycling import TokenRecycling
from specdec_lib.drafters.rest import Rest
from specdec_lib.drafters.suffix import SuffixDrafter

__all__ = [
    "ConfidenceStop",
    "CostAware",
    "DraftContext",
    "Drafter",
    "Feedback",
    "HeuristicLength",
    "LengthController",
    "LogitSpec",
    "LogitSpecCost",
    "Lookahead",
    "ModelDrafter",
    "NoDrafter",
    "PromptLookup",
    "Rest",
    "SuffixDrafter",
    "TokenRecycling",
]
