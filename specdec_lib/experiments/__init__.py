"""Experiments: one a file. Each has WHAT it shows, run(lab) -> result, text(result) and figure(result).

Our own versions, at the pocket world's scale, of what papers report; each file says which. Read base.py first.
Left out: benchmarks of speed (bench.py), and the training of judges (judge/).
"""

from importlib import import_module
from types import ModuleType

NAMES = (
    "paired",
    "tradeoff",
    "perfect-text",
    "swap",
    "held-out",
    "draft-lengths",
    "pass-times",
    "errors",
    "truncation",
    "calibration",
    "csd-filling",
    "csd-ablation",
    "csd-tradeoff",
    "csd-sweep",
    "csd-learning",
    "csd-transfer",
    "csd-remedies",
    "csd-soft",
    "csd-patterns",
    "csd-rescues",
    "csd-precision",
    "csd-overhead",
    "next-next",
    "float-texts",
    "retrieval",
    "index-cost",
    "drafting-cost",
)


def experiments() -> dict[str, ModuleType]:
    """All experiments by name."""
    return {name: find(name) for name in NAMES}


def find(name: str) -> ModuleType:
    """One experiment. ValueError for an unknown name, with the known ones."""
    if name not in NAMES:
        raise ValueError(f"unknown experiment {name!r}; choose one of {', '.join(NAMES)}")
    return import_module(f"specdec_lib.experiments.{name.replace('-', '_')}")
