"""Build the judge's label set for a pocket pair: questions, answers by several writers, marked by the checker.

Follows Judge Decoding (arXiv 2501.19309): 500 questions, right and wrong answers, about 30k tokens. Its
people are replaced by checker.py, and part of its wrong answers by corrupt.py.
Left out: other pairs (give labels of your own, docs/judge.md).
"""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from specdec_lib.batch import decode_batch
from specdec_lib.drafters import ModelDrafter
from specdec_lib.judge.corrupt import corrupted
from specdec_lib.judge.labels import AFTER, CORRECTED, DROPPED, RIGHT, WRONG, LabelledAnswer, write_labels
from specdec_lib.pocket import checker
from specdec_lib.pocket.tokenizer import world_ids, world_tokens
from specdec_lib.pocket.world import SLOTS, Problem, Style, problems, write_answer
from specdec_lib.sampling import SamplingSettings
from specdec_lib.verifiers import Lenience
from specdec_lib.zoo import Pair

MAX_NEW_TOKENS = 260
QUESTIONS, SEED, SPLIT = 500, 1, "calibration"
CHUNK = 100  # questions that are saved together
SLIPS_SEED = 10**6  # so that a sampled answer that is searched for slips is not the one that is written whole
CORRUPTED = 1  # corrupted answers a question
FULL = ("target", "target-sampled", "draft", "draft-sampled", "world")  # write whole answers, taking turns
# Of every question so many answers, the wrong token alone. "both": what speculative decoding with a lax rule writes, by
# turns the draft's words and the target's. A judge meets such text, so it brings about half of the wrong tokens.
SLIPS = {"draft": 1, "draft-sampled": 1, "both": 1, "both-sampled": 4}
GAMMA, LAX = 8, 0.003  # draft length and lenience of "both"
WRITERS = (*FULL, *(f"{writer}'s slips" for writer in SLIPS), "corrupted")
_MARKS = {checker.RIGHT: RIGHT, checker.WRONG: WRONG, checker.CORRECTED: CORRECTED, checker.AFTER: AFTER}


def build(
    pair: Pair, file: Path, questions: int = QUESTIONS, seed: int = SEED, split: str = SPLIT, progress: bool = False
) -> list[LabelledAnswer]:
    """Write the label set to file (.jsonl or .jsonl.gz), going on with FILE.part where that holds the same set.

    ValueError for a pair that does not speak the pocket world's tokens, and for a part file of another set.
    """
    if not pair.name.startswith("pocket"):
        raise ValueError(f"the checker marks answers of the pocket world only; {pair.name} needs labels of your own")
    about = {
        "what": "judge label set", "pair": pair.name, "checksums": pair.checksums, "split": split, "seed": seed,
        "questions": questions,
    }  # fmt: skip
    part = Path(f"{file}.part")
    found = _read_part(part, about)
    tasks = problems(split, questions, seed)
    done = found[-1][0] + 1 if found else 0
    with (
        part.open("a") as opened,
        tqdm(total=questions, initial=done, desc="answers", unit="question", disable=not progress) as bar,
    ):
        if not part.stat().st_size:
            print(json.dumps({"about": about}), file=opened)
        for start in range(done, questions, CHUNK):
            chunk = tasks[start : start + CHUNK]
            answers = _chunk(pair, chunk, start, seed)
            lines = [json.dumps([start + len(chunk) - 1, a.prompt, a.ids, a.marks, a.writer]) for a in answers]
            opened.write("\n".join(lines) + "\n" + json.dumps("whole") + "\n")  # a chunk counts when it is whole
            opened.flush()
            found += [(start + len(chunk) - 1, a) for a in answers]
            bar.update(len(chunk))
    answers = [answer for _, answer in found]
    write_labels(file, answers, pair, about)
    part.unlink()
    return answers


def _read_part(part: Path, about: dict) -> list[tuple[int, LabelledAnswer]]:
    """What is whole in a part file, which is cut back to it: (number of its chunk's last question, answer)."""
    if not part.is_file():
        return []
    lines = part.read_text().splitlines(keepends=True)
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line) if line.endswith("\n") else None)
        except json.JSONDecodeError:
            rows.append(None)
    if rows and rows[0] != {"about": about}:
        raise ValueError(f"{part} belongs to another label set; remove it, or give its own arguments to go on with it")
    whole = max((i for i, row in enumerate(rows) if row == "whole"), default=0)
    part.write_text("".join(lines[: whole + 1]))
    found = []
    for row in rows[1 : whole + 1]:
        if row != "whole":
            number, prompt, ids, marks, writer = row
            found.append((number, LabelledAnswer(prompt, tuple(ids), marks, writer)))
    return found


def _chunk(pair: Pair, tasks: Sequence[Problem], start: int, seed: int) -> list[LabelledAnswer]:
    """The answers to these problems, the first of which has the number start."""
    turns = [FULL[(start + i) % len(FULL)] for i in range(len(tasks))]
    written = {i: _by_world(pair, tasks[i], start + i, seed) for i, writer in enumerate(turns) if writer == "world"}
    for writer in FULL[:-1]:
        mine = [i for i, turn in enumerate(turns) if turn == writer]
        written |= dict(zip(mine, _decoded(pair, writer, [tasks[i] for i in mine], seed + start), strict=True))
    slips = [
        (f"{writer}'s slips", _decoded(pair, writer, tasks, seed + start + SLIPS_SEED * (draw + 1)))
        for writer, draws in SLIPS.items()
        for draw in range(draws)
    ]
    found = []
    for i, problem in enumerate(tasks):
        found.append(marked(pair, problem, written[i], turns[i]))
        for name, answers in slips:
            slip = marked(pair, problem, answers[i], name)
            if WRONG in slip.marks:
                end = slip.marks.index(WRONG) + 1
                found.append(wrong_token_only(replace(slip, ids=slip.ids[:end], marks=slip.marks[:end])))
        rng = random.Random(f"corrupted-{seed}-{start + i}")
        for _ in range(CORRUPTED):
            wrong = _ids(pair, corrupted(problem, write_answer(problem, rng, any_wording(rng)), rng))
            found.append(wrong_token_only(marked(pair, problem, wrong, WRITERS[-1])))
    return found


def wrong_token_only(answer: LabelledAnswer) -> LabelledAnswer:
    """The answer with its right tokens dropped: whole answers bring enough of those."""
    return LabelledAnswer(answer.prompt, answer.ids, answer.marks.replace(RIGHT, DROPPED), answer.writer)


def any_wording(rng: random.Random) -> Style:
    """A style whose share of wording B is anything from 0 to 1, the same in all slots."""
    return Style(dict.fromkeys(SLOTS, rng.random()))


def _by_world(pair: Pair, problem: Problem, number: int, seed: int) -> list[int]:
    rng = random.Random(f"world-{seed}-{number}")
    return _ids(pair, write_answer(problem, rng, any_wording(rng)))


def _ids(pair: Pair, tokens: list[str]) -> list[int]:
    return world_ids(pair.tokenizer, tokens)


def _decoded(pair: Pair, writer: str, tasks: list[Problem], seed: int) -> list[list[int]]:
    """Answers of the target or the draft, greedy or sampled at temperature 1, or of both."""
    model = pair.draft if writer.startswith("draft") else pair.target
    settings = SamplingSettings(1.0 if writer.endswith("sampled") else 0.0)
    rule = (ModelDrafter(pair.draft, GAMMA), Lenience(LAX)) if writer.startswith("both") else (None, None)
    prompts = [pair.prompt(problem.question) for problem in tasks]
    traces = decode_batch(model, prompts, MAX_NEW_TOKENS, *rule, settings, pair.stops, seed)
    return [trace.ids for trace in traces]


def marked(pair: Pair, problem: Problem, ids: Sequence[int], writer: str) -> LabelledAnswer:
    """An answer with the checker's marks."""
    labels = checker.mark(problem, world_tokens(pair.tokenizer, list(ids))).labels
    return LabelledAnswer(problem.question, tuple(ids), "".join(_MARKS[label] for label in labels), writer)


def counted(answers: Sequence[LabelledAnswer]) -> str:
    """How many answers and marks of each writer, as text."""
    lines = [f"{'writer':16s} {'answers':>8s} {'right':>8s} {'wrong':>6s} {'dropped':>8s}"]
    for writer in [*sorted({a.writer for a in answers}), "all"]:
        mine = [a.marks for a in answers if writer in (a.writer, "all")]
        right, wrong = (sum(marks.count(mark) for marks in mine) for mark in (RIGHT, WRONG))
        dropped = sum(map(len, mine)) - right - wrong
        lines.append(f"{writer:16s} {len(mine):8d} {right:8d} {wrong:6d} {dropped:8d}")
    return "\n".join(lines)
