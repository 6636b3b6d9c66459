"""Does a model's hidden state react to a wrong word in an answer that it knows? A probe on pairs of short questions.

Our own, after the assumption of Judge Decoding (arXiv 2501.19309). The two questions of a pair exchange
their answers, so every word is once right and once wrong, and a pair is never in its own probe's training.
Left out: training a head from this; sixty answers are too few.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm

from specdec_lib.decode import Session
from specdec_lib.judge.features import features, last_layer
from specdec_lib.judge.labels import DROPPED, RIGHT, WRONG, LabelledAnswer
from specdec_lib.judge.train import Settings, auc, fit
from specdec_lib.presets import data_folder
from specdec_lib.stats import share_interval
from specdec_lib.zoo import Pair

QUESTIONS = Path("judge") / "react.jsonl"  # under data/
LONGEST = 30  # tokens of an answer, in which the known word must come
L2 = 0.1  # on standardised weights: few answers, wide states


@dataclass(frozen=True)
class Question:
    """answer: the word that a right answer holds. Two of a kind may exchange theirs: each is wrong for the other."""

    kind: str
    question: str
    answer: str


def read_questions(file: Path | None = None) -> list[Question]:
    """The bundled questions, or a file's: {"kind", "question", "answer"}, a line each. ValueError for another form."""
    file = file or data_folder() / QUESTIONS
    try:
        return [Question(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]
    except (ValueError, TypeError) as error:
        raise ValueError(f'{file} must hold {{"kind", "question", "answer"}}, a line each: {error}') from error


def react(pair: Pair, questions: Sequence[Question], progress: bool = False) -> dict:
    """rows: one a layer, and one for the target's own log-probability of the word, which knows by construction: the
    right word is what the target itself said.

    auc: right over wrong words, each scored by a probe that has not seen its pair. told_apart: share of answers in
    which the right word scores above the wrong one, with a 95 % interval. known: the questions that are used, two of
    a kind after each other; asked: how many there are. ValueError for fewer than four pairs.
    """
    said = [_beginning(pair, q) for q in tqdm(questions, desc="questions", disable=not progress)]
    pairs = in_pairs([(q, text) for q, text in zip(questions, said, strict=True) if text is not None])
    if len(pairs) < 4:
        raise ValueError(f"of these questions this model answers {len(pairs)} pairs; a probe needs at least 4")
    answers = [answer for two in pairs for answer in _answers(pair, two)]
    layers = sorted({round(last_layer(pair) * i / 6) for i in range(7)})
    found = features(pair, answers, layers)
    found = found.rows(torch.tensor([mark != DROPPED for mark in found.marks]))
    right = torch.tensor([mark == RIGHT for mark in found.marks])
    of_pair = torch.arange(len(right)) // 4
    rows = [_row("log-probability", None, found.log_probs, right)]
    for layer in layers:
        scores = torch.zeros(len(right), dtype=torch.float64)
        for i in range(len(pairs)):
            mine = of_pair == i
            weight, bias = fit(found.hidden[layer][~mine], right[~mine], Settings(l2=L2))
            scores[mine] = found.hidden[layer][mine].double() @ weight + bias
        rows.append(_row("probe", layer, scores, right))
    return {"rows": rows, "asked": len(questions), "known": [q.question for two in pairs for q, _ in two]}


def in_pairs(known: Sequence[tuple[Question, str]]) -> list[list[tuple[Question, str]]]:
    """Two of a kind, in order, each question once; one that is left over is left out."""
    kinds: dict[str, list] = {}
    for entry in known:
        kinds.setdefault(entry[0].kind, []).append(entry)
    return [members[i : i + 2] for members in kinds.values() for i in range(0, len(members) - 1, 2)]


def table(result: dict) -> str:
    """The result as text."""
    lines = [
        f"{len(result['known'])} of {result['asked']} questions known, in pairs",
        f"{'':22s} {'AUC':>6s} {'told apart':>11s}",
    ]
    for row in result["rows"]:
        name = row["what"] if row["layer"] is None else f"probe, layer {row['layer']}"
        low, high = row["told_apart_interval"]
        lines.append(f"{name:22s} {row['auc']:6.3f} {row['told_apart']:11.2f}  (95 % interval {low:.2f} to {high:.2f})")
    return "\n".join(lines)


def _row(what: str, layer: int | None, scores: torch.Tensor, right: torch.Tensor) -> dict:
    above = (scores[right] > scores[~right]).tolist()  # an answer's right word, then its wrong one
    return {
        "what": what, "layer": layer, "auc": auc(scores, right), "answers": len(above),
        "told_apart": sum(above) / len(above), "told_apart_interval": share_interval(sum(above), len(above)),
    }  # fmt: skip


def _beginning(pair: Pair, question: Question) -> str | None:
    """What the model's own greedy answer says before the known word; None if it does not say the word."""
    session, found = Session(pair.target, stops=pair.stops).start(pair.prompt(question.question)), None
    for _ in session.rounds(LONGEST):
        text = pair.text(session.trace.ids)
        found = re.search(rf"(?<!\w){re.escape(question.answer)}(?!\w)", text)
        if found and found.end() < len(text):  # the word is complete: something stands behind it
            break
    return text[: found.start()] if found else None


def _answers(pair: Pair, two: list[tuple[Question, str]]) -> list[LabelledAnswer]:
    """For each question its answer up to the right word, and up to the other's word; the last token is labelled."""
    found = []
    for (question, begun), (other, _) in zip(two, reversed(two), strict=True):
        for word, mark in ((question.answer, RIGHT), (other.answer, WRONG)):
            ids = tuple(pair.tokenizer(begun + word, add_special_tokens=False)["input_ids"])
            found.append(LabelledAnswer(question.question, ids, DROPPED * (len(ids) - 1) + mark))
    return found
