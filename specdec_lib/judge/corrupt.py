"""Plausible wrong tokens put into right answers of the pocket world: more negatives than its writers make.

Our own; the paper (arXiv 2501.19309) had people mark the errors of real models instead.
Left out: what the text would say after the error. A corrupted answer ends with its wrong token.
"""

import random

from specdec_lib.pocket.checker import WRONG, mark_next
from specdec_lib.pocket.world import (
    COLOURS,
    DAYS,
    EOS,
    ITEMS,
    NAMES,
    SLOTS,
    Problem,
    answer_parts,
    number,
    slip,
    tokens_of,
)

# Words that may stand in each other's place: a wrong one is grammatical, and wrong by its meaning alone.
CLASSES = [
    [f" {word}" for word in words] for words in (NAMES, [*ITEMS, "miles", "dollars", "boxes"], COLOURS, DAYS)
] + [
    [tokens_of(wording)[0] for slot in slots for wording in SLOTS[slot]]
    for slots in (("plus", "minus", "times"), ("gives", "takes"), ("adds", "removes"))
]
RESULT, DIGIT, WORD, END = "result", "digit", "word", "end"
WEIGHTS = {RESULT: 4, DIGIT: 4, WORD: 3, END: 1}  # how often each kind is tried


def corrupted(problem: Problem, right: list[str], rng: random.Random) -> list[str]:
    """The beginning of a right answer (the world's tokens) and, as its last token, one that is wrong there."""
    while True:
        (kind,) = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
        found = {RESULT: _wrong_result, DIGIT: _wrong_digit, WORD: _wrong_word, END: _early_end}[kind](
            problem, right, rng
        )
        if found is not None and mark_next(problem, right[: found[0]], found[1]) == WRONG:
            return [*right[: found[0]], found[1]]


def _wrong_result(problem: Problem, right: list[str], rng: random.Random) -> tuple[int, str] | None:
    """A result that is off by one or by ten, or with its digits swapped: the first digit that differs."""
    step = rng.randrange(len(problem.steps))
    at = _result_at(problem, right, step)
    value = problem.values[step + 1]
    said, wrong = tokens_of(number(value)), tokens_of(number(slip(rng, value)))
    for i, (ours, theirs) in enumerate(zip(said, wrong, strict=False)):
        if ours != theirs:
            return at + i, theirs
    return (at + len(said), wrong[len(said)]) if len(wrong) > len(said) else None


def _result_at(problem: Problem, right: list[str], step: int) -> int:
    """Where a step's result stands: the world's parts, walked along the wordings that this answer took."""
    at = 0
    for part in answer_parts(problem):
        if part.step == step:
            return at
        at += next(len(option) for option in part.options if tuple(right[at : at + len(option)]) == option)
    raise ValueError(f"the problem has no step {step}")


def _wrong_digit(problem: Problem, right: list[str], rng: random.Random) -> tuple[int, str] | None:
    """Any digit, also of a number that is copied."""
    at = rng.choice([i for i, token in enumerate(right) if token.strip().isdigit()])
    space = right[at][: -len(right[at].strip())]
    return at, space + rng.choice("0123456789")


def _wrong_word(problem: Problem, right: list[str], rng: random.Random) -> tuple[int, str] | None:
    """A name, thing, colour, day, operator or deed in another one's place."""
    places = [(i, words) for i, token in enumerate(right) for words in CLASSES if token in words]
    at, words = rng.choice(places)
    return at, rng.choice(words)


def _early_end(problem: Problem, right: list[str], rng: random.Random) -> tuple[int, str] | None:
    """The answer ends before its number is said."""
    return rng.choice([i + 1 for i, token in enumerate(right[:-1]) if token == "." or rng.random() < 0.1]), EOS
