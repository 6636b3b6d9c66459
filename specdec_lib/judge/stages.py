"""More or less self-correction in the target's training: a head for each stage of it, on the same labels.

Our own; Judge Decoding (arXiv 2501.19309) assumes that a model reacts to an error because it learnt to put errors
right. The stages `fluent`, `steady` and `target` of pocket/train.py are one model before it reads text in which every
slip is put right, soon after it, and as it is shipped. In what `fluent` has read, 10 % of the answers hold a slip put
right, so no stage is without any.
Left out: a target that has read none (correction.py); and training the stages (make pocket; their folders stay under
build/pocket).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from specdec_lib.experiments.base import Rows, between
from specdec_lib.experiments.base import table as as_table
from specdec_lib.judge.labels import read_labels
from specdec_lib.judge.train import fit_and_measure
from specdec_lib.presets import data_folder
from specdec_lib.zoo import Pair, load_custom

STAGES = ("fluent", "steady", "target")


def stages(
    work: Path, labels: Path, held_out: Path, rows: Rows, names: Sequence[str] = STAGES, progress: bool = False
) -> list[dict]:
    """A row a stage: the figures of a head trained on labels and measured on held_out, that stage being the target.

    Rows that are there are not made again. FileNotFoundError where a stage has not been trained.
    """
    check_trained(work, names)
    return [rows.get(name, lambda name=name: _row(work, name, labels, held_out, progress)) for name in names]


def check_trained(work: Path, names: Iterable[str]) -> None:
    """FileNotFoundError, naming the first that is missing, unless work/name holds a finished model for each name."""
    for name in names:
        if not (work / name / "model").is_dir():
            how = f"python -m specdec_lib.pocket.train {name} --work {work}"
            raise FileNotFoundError(f"{work / name} holds no finished model; train it: {how}")


def trained_pair(work: Path, name: str) -> Pair:
    """The finished model of work/name as target, beside the shipped draft."""
    return load_custom(str(work / name / "model"), str(data_folder() / "pocket" / "draft"), "cpu")


def _row(work: Path, name: str, labels: Path, held_out: Path, progress: bool) -> dict:
    pair = trained_pair(work, name)
    sets = [read_labels(file, pair) for file in (labels, held_out)]
    _, figures = fit_and_measure(pair, *sets, progress=progress)
    figures.pop("reliability")
    return {"stage": name, "target": pair.checksums["target"], **figures}


def table(rows: Sequence[dict]) -> str:
    """The rows as text, with intervals over answers."""
    heads = ("stage", "AUC", "95 % interval", "digits", "95 % interval")
    return as_table(
        heads,
        [
            (
                row["stage"], f"{row['auc']:.3f}", between(row["auc_interval"], 1, 3),
                f"{row['auc_digits']:.3f}", between(row["auc_digits_interval"], 1, 3),
            )
            for row in rows
        ],
    )  # fmt: skip
