"""Spec-Bench's files: its rows of questions and of answers, and its six groups.

Follows Spec-Bench (Xia et al. 2024, arXiv 2401.07851).
Left out: its 480 questions (data/prompts/spec-small.jsonl has sixty of our own), several answers to one question, and
the figures (specbench_figures.py).
"""

import json
import time
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from specdec_lib.text_file import read_text

CONVERSATION = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
GROUPS = ("mt_bench", "translation", "summarization", "qa", "math_reasoning", "rag")


def group_of(category: str) -> str:
    """The group of a category: eight of them are MT-bench's ("math" among them); the others are groups themselves."""
    if category in CONVERSATION:
        return GROUPS[0]
    if category not in GROUPS[1:]:
        raise ValueError(f"unknown category {category!r}; Spec-Bench has {', '.join((*CONVERSATION, *GROUPS[1:]))}")
    return category


@dataclass(frozen=True)
class Question:
    """One row. turns: what the user says, one text a turn. reference: right answers, where there are any."""

    question_id: int
    category: str
    turns: tuple[str, ...]
    reference: tuple[str, ...] | None = None

    @classmethod
    def of(cls, row: dict) -> "Question":
        """ValueError, naming the field, for a row that is no question."""
        for name, kind in (("question_id", int), ("category", str), ("turns", list)):
            if not isinstance(row.get(name), kind) or isinstance(row.get(name), bool):
                raise ValueError(f"a question needs {name}, {kind.__name__}; got {row.get(name)!r}")
        turns, reference = row["turns"], row.get("reference")
        if not turns or any(not isinstance(turn, str) or not turn.strip() for turn in turns):
            raise ValueError(f"turns must be texts, one or more; got {turns!r}")
        group_of(row["category"])
        return cls(row["question_id"], row["category"], tuple(turns), None if reference is None else tuple(reference))

    @property
    def row(self) -> dict:
        found = {"question_id": self.question_id, "category": self.category, "turns": list(self.turns)}
        return found if self.reference is None else found | {"reference": list(self.reference)}


@dataclass
class Answer:
    """One row of an answers file, its first choice. Lists have an entry a turn, but accept_lengths has one a round.

    new_tokens: EOS included. wall_time: seconds of the whole turn, prefill included. accept_lengths: ids emitted by
    each round of all turns. decoding_steps: rounds; empty, like accept_lengths, where they cannot be seen.
    """

    question_id: int
    category: str
    model_id: str
    turns: list[str]
    decoding_steps: list[int]
    new_tokens: list[int]
    wall_time: list[float]
    accept_lengths: list[int]
    answer_id: str = field(default_factory=lambda: uuid.uuid4().hex[:22])
    tstamp: float = field(default_factory=time.time)

    CHOICE = ("turns", "decoding_steps", "new_tokens", "wall_time", "accept_lengths")

    @classmethod
    def of(cls, row: dict) -> "Answer":
        """ValueError for a row that is no answer. Of several choices the first one counts, as in Spec-Bench."""
        try:
            choice = row["choices"][0]
            found = cls(
                row["question_id"], row["category"], row["model_id"], **{name: choice[name] for name in cls.CHOICE},
                answer_id=row["answer_id"], tstamp=row["tstamp"],
            )  # fmt: skip
            sound = all(isinstance(getattr(found, name), list) for name in cls.CHOICE)
            sound = sound and len(found.turns) == len(found.new_tokens) == len(found.wall_time) > 0
            sound = sound and all(n >= 0 for n in found.new_tokens) and all(s > 0 for s in found.wall_time)
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(f"an answer lacks {error}") from error
        if not sound:
            raise ValueError("an answer needs turns, new_tokens and wall_time above 0, an entry each for every turn")
        group_of(found.category)
        return found

    @property
    def row(self) -> dict:
        values = asdict(self)
        choice = {"index": 0, **{name: values.pop(name) for name in self.CHOICE}}
        answer_id, tstamp = values.pop("answer_id"), values.pop("tstamp")
        question = {name: values[name] for name in ("question_id", "category")}
        return {**question, "answer_id": answer_id, "model_id": self.model_id, "choices": [choice], "tstamp": tstamp}


def read_questions(file: Path | str) -> list[Question]:
    return _read(file, Question)


def read_answers(file: Path | str) -> list[Answer]:
    return _read(file, Answer)


def write_rows(file: Path | str, rows: Iterable[Question | Answer]) -> None:
    """Write questions or answers, a line each, in Spec-Bench's format."""
    Path(file).write_text("".join(json.dumps(row.row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def _read(file: Path | str, kind):
    found = []
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        if line.strip():
            try:
                found.append(kind.of(json.loads(line)))
            except (ValueError, AttributeError) as error:
                raise ValueError(f"{file}, line {number}, is no Spec-Bench {kind.__name__.lower()}: {error}") from error
    if not found:
        raise ValueError(f"{file} holds no {kind.__name__.lower()}")
    if len({row.question_id for row in found}) < len(found):
        raise ValueError(f"{file} has a question_id twice")
    return found
