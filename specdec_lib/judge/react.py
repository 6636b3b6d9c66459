"""Does a model's hidden state react to a wrong word in an answer that it knows? A probe on pairs of short questions.

Our own, after the supposition of Judge Decoding (arXiv 2501.19309), section 4. The two questions of a pair exchange
their answers, so every word is once right and once wrong, and a pair is never in its own probe's training.
Left out: training a head from this; sixty answers are too few.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import torch
from tqdm import tqdm

from specdec_lib.decode import decode
from specdec_lib.judge.features import features, last_layer
from specdec_lib.judge.labels import DROPPED, RIGHT, WRONG, LabelledAnswer
from specdec_lib.judge.train import Settings, auc, fit
from specdec_lib.presets import data_folder
from specdec_lib.stats import share_interval
from specdec_lib.zoo import Pair

QUESTIONS = Path("judge") / "react.jsonl"  # under data/
LONGEST = 40  # tokens of an answer in which the known word must come
L2 = 0.1  # on standardised weights: few answers, wide states


@dataclass(frozen=True)
class Question:
    question: str
    answer: str


def read_questions(file: Path | None = None) -> list[tuple[Question, Question]]:
    """Pairs of questions whose answers may be exchanged. ValueError for a file of another form."""
    file = file or data_folder() / QUESTIONS
    try:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        return [(Question(**first), Question(**second)) for first, second in rows]
    except (ValueError, TypeError) as error:
        raise ValueError(f'{file} must hold [{{"question", "answer"}}, the same again] a line: {error}') from error


def react(pair: Pair, questions: list[tuple[Question, Question]], progress: bool = False) -> dict:
    """rows: one a layer, and one for the target's own log-probability of the word.

    auc: right over wrong words, each scored by a probe that has not seen its pair. told_apart: share of answers in
    which the right word scores above the wrong one, with a 95 % interval over answers. pairs: how many the model
    knows both answers of; known, asked: questions. ValueError where it knows fewer than four pairs.
    """
    known = []
    asked = tqdm(questions, desc="questions", disable=not progress)
    for two in asked:
        begun = [_beginning(pair, question) for question in two]
        if None not in begun:
            known.append([(q, text) for q, text in zip(two, begun, strict=True)])
    if len(known) < 4:
        raise ValueError(f"this model knows both answers of {len(known)} pairs only; a probe needs at least 4")
    answers = [answer for two in known for answer in _answers(pair, two)]
    layers = sorted({round(last_layer(pair) * i / 6) for i in range(7)})
    found = features(pair, answers, layers)
    chosen = torch.tensor([mark != DROPPED for mark in found.marks])
    found = found.rows(chosen)
    right = torch.tensor([mark == RIGHT for mark in found.marks])
    of_pair = torch.arange(len(right)) // 4
    rows = [_row("log-probability", None, found.log_probs, right)]
    for layer in tqdm(layers, desc="layers", disable=not progress):
        scores = torch.zeros(len(right), dtype=torch.float64)
        for i in of_pair.unique():
            mine = of_pair == i
            weight, bias = fit(found.hidden[layer][~mine], right[~mine], Settings(l2=L2))
            scores[mine] = found.hidden[layer][mine].double() @ weight + bias
        rows.append(_row("probe", layer, scores, right))
    return {"rows": rows, "pairs": len(known), "known": [q.question for two in known for q, _ in two]}


def _row(what: str, layer: int | None, scores: torch.Tensor, right: torch.Tensor) -> dict:
    above = (scores[right] > scores[~right]).tolist()  # an answer's right word, then its wrong one
    return {
        "what": what, "layer": layer, "auc": auc(scores, right), "answers": len(above),
        "told_apart": sum(above) / len(above), "told_apart_interval": share_interval(sum(above), len(above)),
    }  # fmt: skip


def _beginning(pair: Pair, question: Question) -> str | None:
    """What the model's own greedy answer says before the known word; None if it does not say the word."""
    trace = decode(pair.target, pair.prompt(question.question), LONGEST, stops=pair.stops)
    text = pair.text(trace.ids)
    found = re.search(rf"(?<!\w){re.escape(question.answer)}(?!\w)", text)
    return text[: found.start()] if found else None


def _answers(pair: Pair, two: list[tuple[Question, str]]) -> list[LabelledAnswer]:
    """For each question its answer up to the right word, and up to the other's word; the last token is labelled."""
    found = []
    for (question, begun), (other, _) in zip(two, reversed(two), strict=True):
        for word, mark in ((question.answer, RIGHT), (other.answer, WRONG)):
            ids = tuple(pair.tokenizer(begun + word, add_special_tokens=False)["input_ids"])
            found.append(LabelledAnswer(question.question, ids, DROPPED * (len(ids) - 1) + mark))
    return found
