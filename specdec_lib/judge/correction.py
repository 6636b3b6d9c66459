"""With and without self-correction in a target's training text: two small targets alike but for it, a head for each.

Our own; Judge Decoding (arXiv 2501.19309) assumes that a model reacts to an error because it learnt to put errors
right. `corrected` and `uncorrected` of pocket/train.py share shape, schedule, seed and the share of slips that nobody
puts right; only one of them ever read a slip that is put right.
Left out: training them (pocket/train.py), and the shipped target's own stages (stages.py).
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from specdec_lib.experiments.base import Rows, between, percent
from specdec_lib.experiments.base import table as as_table
from specdec_lib.judge.features import features
from specdec_lib.judge.labels import RIGHT, WRONG, LabelledAnswer, read_labels
from specdec_lib.judge.stages import check_trained, trained_pair
from specdec_lib.judge.train import Settings, auc_gain_interval, counted, head_from, is_digit, quality
from specdec_lib.pocket.tokenizer import world_ids
from specdec_lib.pocket.train import CORRECTION, greedy_accuracy
from specdec_lib.pocket.world import MARKERS
from specdec_lib.zoo import Pair

ARMS = ("corrected", "uncorrected")
PROBLEMS = 500  # of the split validation, for a target's own accuracy
PARTS = ("auc", "auc_digits")


def correction(work: Path, labels: Path, held_out: Path, rows: Rows, progress: bool = False) -> list[dict]:
    """A row a seed: each arm's figures, and what `corrected` has over `uncorrected`, paired on the same tokens.

    An arm has the figures of `quality`, its answers' accuracy, and put_right: see there. FileNotFoundError where a
    model has not been trained. Rows that are there are not made again.
    """
    seeds = sorted({int(name.rpartition("-")[2]) for name in CORRECTION})
    check_trained(work, CORRECTION)
    return [rows.get(str(seed), lambda seed=seed: _row(work, seed, labels, held_out, progress)) for seed in seeds]


def _row(work: Path, seed: int, labels: Path, held_out: Path, progress: bool) -> dict:
    row: dict = {"seed": seed}
    scores = {}
    for arm in ARMS:
        pair = trained_pair(work, f"{arm}-{seed}")
        answers, test = (read_labels(file, pair) for file in (labels, held_out))
        head = head_from(pair, features(pair, answers, progress=progress), Settings())
        found = features(pair, test, progress=progress)
        said = head.scores(found.hidden[head.layer])
        scores[arm], figures = said.numpy(), quality(said, found, pair)
        figures.pop("reliability")
        accuracy, _ = greedy_accuracy(pair.target.model, pair.tokenizer, PROBLEMS)
        behind_wrong, behind_right = put_right(pair, test)
        row[arm] = {"target": pair.checksums["target"], "accuracy": accuracy, **figures}
        row[arm] |= {"put_right": behind_wrong, "put_right_if_right": behind_right}
    right = np.asarray([mark == RIGHT for mark in found.marks])  # the arms read the same tokens
    for part, chosen in counted(found, pair).items():
        sides = [scores[arm][chosen] for arm in ARMS]
        row[f"{part}_gain"] = row[ARMS[0]][part] - row[ARMS[1]][part]
        row[f"{part}_gain_interval"] = auc_gain_interval(*sides, right[chosen], found.answer.numpy()[chosen])
    return row


@torch.inference_mode()
def put_right(pair: Pair, answers: Sequence[LabelledAnswer]) -> tuple[float, float]:
    """The mean chance that the target takes a digit back at once (", wait" or ", no"): a wrong one, and a right one.

    Of an answer with a wrong digit that digit counts, and the last right one before it that ends its number. ValueError
    where no answer has both.
    """
    model, (comma, *markers) = pair.target.model, world_ids(pair.tokenizer, [",", *MARKERS])
    chances: dict[str, list[float]] = {WRONG: [], RIGHT: []}
    for answer in answers:
        digit = [is_digit(pair.tokenizer.decode([token])) for token in answer.ids]
        wrong = next((i for i, mark in enumerate(answer.marks) if mark == WRONG and digit[i]), None)
        ends = [i for i in range((wrong or 0) - 1) if answer.marks[i] == RIGHT and digit[i] and not digit[i + 1]]
        if wrong is None or not ends:
            continue
        prompt = pair.prompt(answer.prompt)
        for mark, place in ((WRONG, wrong), (RIGHT, ends[-1])):
            ids = torch.tensor([[*prompt, *answer.ids[: place + 1], comma]], device=pair.target.device)
            laws = model(input_ids=ids, use_cache=False).logits[0, -2:].double().softmax(dim=1)
            chances[mark].append(float(laws[0, comma] * laws[1, markers].sum()))
    if not chances[WRONG]:
        raise ValueError("no answer holds a wrong digit and a right one before it")
    return tuple(sum(found) / len(found) for found in (chances[WRONG], chances[RIGHT]))


def table(rows: Sequence[dict]) -> str:
    """The rows as text: a line a target, and what the one has over the other, with intervals over answers."""
    heads = ("target", "right %", "takes back a wrong digit %", "a right one %", "AUC", "95 % interval", "digits",
             "95 % interval")  # fmt: skip
    lines = []
    for row in rows:
        for arm in ARMS:
            own = row[arm]
            lines.append(
                (f"{arm}-{row['seed']}", *(percent(own[k]) for k in ("accuracy", "put_right", "put_right_if_right")),
                 *_figures(own, PARTS, ".3f"))
            )  # fmt: skip
        gains = [f"{part}_gain" for part in PARTS]
        lines.append(("  the first over the second", None, None, None, *_figures(row, gains, "+.3f")))
    return as_table(heads, lines)


def _figures(row: dict, names: Sequence[str], form: str) -> list[str]:
    return [cell for name in names for cell in (format(row[name], form), between(row[f"{name}_interval"], 1, 3))]
