"""Two targets that differ in one thing: whether slips in their training text are put right ("wait"). For an ablation.

Our own; Judge Decoding (Bachmann et al. 2025, arXiv 2501.19309) supposes that a model reacts to an error because such
text taught it to. `python -m specdec_lib.judge.selfcorrection` trains both, resumable.
Left out: training from nothing. Both go on from one model that has seen noticed slips, so the difference is a lower
bound.
"""

import signal
from pathlib import Path

from specdec_lib.pocket.train import STOP, Recipe, train

_SHAPE = {"layers": 4, "width": 192, "inner": 512, "heads": 6, "bfloat16": True, "start_from": "second"}
_SCHEDULE = {"steps": 200, "learning_rate": 6e-4, "seed": 7, "warmup": 20, "eval_every": 200}
# The same problems in the same order; 22 % of the answers hold a slip in both.
RECIPES = {
    "silent": Recipe("silent", **_SHAPE, **_SCHEDULE),  # never put right
    "corrects": Recipe("target", **_SHAPE, **_SCHEDULE),  # 10 % put right at once, 12 % not
}
WORK = Path("build/pocket")


def trained(work: Path = WORK) -> dict[str, Path]:
    """The folders of the two finished models; they are trained where they are not there yet."""
    return {name: train(name, work, recipe=recipe) for name, recipe in RECIPES.items()}


if __name__ == "__main__":
    for sign in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sign, lambda *_: STOP.set())
    trained()
