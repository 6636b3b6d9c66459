"""Whole texts scored once by the target: what the rules need to know of each token, small enough to keep in a file.

Our own. One pass a text: the row before a token says what the target would have written there, the token's own row what
it makes of it. `specdec scored` records the draft's answers to pocket problems; lesson 05's slider reads the record.
Left out: the rules (knob.py), and decoding, where the draft goes on from the target's own tokens.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from specdec_lib.evaluate import Answer, answers
from specdec_lib.model import CausalLM
from specdec_lib.pocket.checker import AFTER, CORRECTED, RIGHT, WRONG
from specdec_lib.pocket.tokenizer import prompt_ids, world_tokens
from specdec_lib.pocket.world import Problem
from specdec_lib.verifiers import LosslessRejection
from specdec_lib.verifiers.soft import entropies, rank_in
from specdec_lib.zoo import Pair

LABELS = {"r": RIGHT, "w": WRONG, "c": CORRECTED, "a": AFTER}  # a letter a token in the file
NUMBERS = ("rank", "log_prob", "log_max", "entropy", "judge")


@dataclass(frozen=True)
class ScoredText:
    """An answer, token by token; every list has an entry a token.

    labels: the checker's. best: what the target would have written there. rank: of the token in the target's law, 0 the
    argmax. log_prob, log_max: log p of the token and of the argmax; entropy: of the law; in nats, at temperature 1.
    judge: the judge head's logit at the token's own row.
    """

    question: str
    tokens: list[str]
    labels: list[str]
    best: list[str]
    rank: list[int]
    log_prob: list[float]
    log_max: list[float]
    entropy: list[float]
    judge: list[float]

    @property
    def first_wrong(self) -> int | None:
        """The place of the first wrong token; None if there is none."""
        return self.labels.index(WRONG) if WRONG in self.labels else None


def read_answer(target: CausalLM, prompt: Sequence[int], answer: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """One pass over a text: logits (tokens, vocabulary) and hidden states (tokens, width) for each answer token.

    Row i of the logits is what the target says in place of answer token i: it stands before that token. Row i of the
    hidden states is the token's own, before the final norm. The model's cache is started anew.
    """
    target.start()
    target.feed(prompt[:-1])
    ids = torch.tensor([prompt[-1], *answer], device=target.device)
    output = target.score(ids, range(-1, len(ids) - 1), frozenset({"hidden"}))
    target.start()
    return output.logits[:-1], output.hidden[1:]


def score_answer(
    pair: Pair, problem: Problem, answer: Sequence[int], labels: Sequence[str], judge: Callable
) -> ScoredText:
    """What the target makes of an answer's ids. judge: hidden states (tokens, width) to logits (tokens,)."""
    logits, hidden = read_answer(pair.target, prompt_ids(pair.tokenizer, problem.question), answer)
    laws = logits.double().log_softmax(dim=-1)
    ids = torch.tensor(answer, device=laws.device)
    return ScoredText(
        problem.question,
        world_tokens(pair.tokenizer, list(answer)),
        list(labels),
        world_tokens(pair.tokenizer, laws.argmax(dim=-1).tolist()),
        rank_in(laws, ids).tolist(),
        laws.gather(1, ids[:, None])[:, 0].tolist(),
        laws.amax(dim=-1).tolist(),
        entropies(laws.exp()).tolist(),
        judge(hidden).tolist(),
    )


def draft_answers(pair: Pair, tasks: Sequence[Problem]) -> list[Answer]:
    """The draft's own greedy answers, marked by the checker."""
    return answers(pair, pair.draft, tasks, None, LosslessRejection())


def score_drafts(pair: Pair, tasks: Sequence[Problem], judge: Callable) -> list[ScoredText]:
    """The draft's own greedy answers to pocket problems, each scored once by the target."""
    return [
        score_answer(pair, found.problem, found.trace.ids, found.marking.labels, judge)
        for found in draft_answers(pair, tasks)
    ]


def to_row(text: ScoredText) -> dict:
    """A text as a row of a results file: each list as one line, numbers with 4 decimals."""
    letters = {label: letter for letter, label in LABELS.items()}
    row = {"question": text.question, "tokens": "|".join(text.tokens), "best": "|".join(text.best)}
    row["labels"] = "".join(letters[label] for label in text.labels)
    for name in NUMBERS:
        row[name] = " ".join(str(v) if isinstance(v, int) else f"{v:.4f}" for v in getattr(text, name))
    return row


def from_row(row: dict) -> ScoredText:
    """ValueError if the row is not one of to_row's."""
    try:
        numbers = {name: [float(number) for number in row[name].split()] for name in NUMBERS}
        numbers["rank"] = [int(rank) for rank in numbers["rank"]]
        text = ScoredText(
            row["question"],
            row["tokens"].split("|"),
            [LABELS[letter] for letter in row["labels"]],
            row["best"].split("|"),
            **numbers,
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"a scored text is missing a field, or holds what does not belong there: {error!r}") from error
    lengths = {len(text.tokens), len(text.labels), len(text.best), *(len(getattr(text, name)) for name in NUMBERS)}
    finite = all(math.isfinite(number) for name in NUMBERS for number in numbers[name])
    if len(lengths) != 1 or not finite:
        raise ValueError(f"a scored text's lists differ in length or are not finite: {text.question!r}")
    return text


def load_scored(file: Path | str) -> list[ScoredText]:
    """The texts of a file that `specdec scored` wrote. ValueError for anything else."""
    try:
        texts = [from_row(row) for row in json.loads(Path(file).read_text())["rows"]]
        if not texts:
            raise ValueError("it holds no text")
        return texts
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is not a file of scored texts ({error}); specdec scored makes one") from error
