"""What a head does in the loop, on pocket problems of a split: kept and accuracy over delta, and the delta to use.

Our own rule of choice: the delta that keeps most, among those whose accuracy on validation problems is at most three
quarters of a point below the target's.
Left out: the test split, which nothing here reads.
"""

from collections.abc import Sequence

from tqdm import tqdm

from specdec_lib.drafters import ModelDrafter
from specdec_lib.evaluate import Answer, answers
from specdec_lib.experiments.base import row_of
from specdec_lib.judge.head import JudgeHead
from specdec_lib.pocket.world import problems
from specdec_lib.stats import totals_interval
from specdec_lib.verifiers.judge import Judge
from specdec_lib.zoo import Pair

GAMMA = 8
DELTAS = (0.5, 0.6, 0.7, 0.75, 0.775, 0.8, 0.825, 0.85, 0.875, 0.9, 0.95)
ALLOWED_LOSS = 0.0075  # of accuracy, beside the target's own on the same problems


def in_the_loop(
    pair: Pair,
    head: JudgeHead,
    n: int,
    seed: int = 0,
    deltas: Sequence[float] = DELTAS,
    split: str = "validation",
    gamma: int = GAMMA,
    progress: bool = False,
) -> list[dict]:
    """A row a delta, the last one being 1: the standard rule. kept, accuracy, any_wrong, with 95 % intervals.

    accuracy_minus_target, over the same problems, with a paired interval. Greedy.
    """
    tasks = problems(split, n, seed)
    found: dict[float, list[Answer]] = {}
    for delta in tqdm([*sorted({*deltas, 1.0})], desc="delta", disable=not progress):
        found[delta] = answers(pair, pair.target, tasks, ModelDrafter(pair.draft, gamma), Judge(head, delta))
    return [_row(delta, mine, found[1.0]) for delta, mine in found.items()]


def _row(delta: float, mine: list[Answer], standard: list[Answer]) -> dict:
    found = row_of(mine)
    right = [a.marking.final_right for a in mine]
    difference = [[r - s.marking.final_right, 1] for r, s in zip(right, standard, strict=True)]
    figures = ("n", "kept", "kept_interval", "accuracy", "accuracy_interval", "any_wrong")
    return {
        "delta": delta,
        **{name: found[name] for name in figures},
        "accuracy_minus_target": sum(d for d, _ in difference) / len(difference),
        "accuracy_minus_target_interval": totals_interval(difference, lambda d, n: d / n),
    }


def most_kept(rows: Sequence[dict], change: str) -> dict | None:
    """The row that keeps most among those that lose at most ALLOWED_LOSS of accuracy; None if all lose more.

    change: the name of a row's change in accuracy.
    """
    fit = [row for row in rows if row[change] >= -ALLOWED_LOSS - 1e-9]
    return max(fit, key=lambda row: row["kept"], default=None)


def chosen_delta(rows: Sequence[dict]) -> float:
    """The delta of `most_kept` (1, the standard rule, always is one that loses little)."""
    return most_kept(rows, "accuracy_minus_target")["delta"]


def table(rows: Sequence[dict]) -> str:
    """The rows as text."""
    heads = ("delta", "kept", "accuracy %", "beside target", "95 % interval", "any wrong %")
    lines = ["".join(f"{head:>15s}" for head in heads)]
    for row in rows:
        low, high = (100 * bound for bound in row["accuracy_minus_target_interval"])
        cells = (
            f"{row['delta']:g}", f"{row['kept']:.2f}", f"{100 * row['accuracy']:.1f}",
            f"{100 * row['accuracy_minus_target']:+.1f}", f"{low:+.1f} to {high:+.1f}", f"{100 * row['any_wrong']:.1f}",
        )  # fmt: skip
        lines.append("".join(f"{cell:>15s}" for cell in cells))
    return "\n".join(lines)
