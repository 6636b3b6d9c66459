"""Texts for a datastore: files of text, a text a line of JSON, or answers in the pocket world's own words.

Our own.
Left out: what is made of the ids (datastore.py).
"""

import json
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from specdec_lib.pocket.tokenizer import prompt_ids, world_ids
from specdec_lib.pocket.world import STYLES, problems, write_answer

LINES = 200  # of a plain text, read and turned into ids together


def file_ids(files: Sequence[Path], tokenizer, field: str = "text") -> Iterator[tuple[list[int], int]]:
    """(ids, bytes read) of each text. A file that ends in .jsonl has a text a line, in `field`; any other is one text.

    ValueError, with file and line, for what is neither.
    """
    for file in files:
        try:
            if file.suffix == ".jsonl":
                yield from _json_lines(file, tokenizer, field)
            else:
                yield _plain(file, tokenizer)
        except UnicodeDecodeError as error:
            raise ValueError(f"{file} is not a text file (UTF-8)") from error


def _plain(file: Path, tokenizer) -> tuple[list[int], int]:
    ids: list[int] = []
    with file.open(encoding="utf-8") as lines:
        while some := "".join(islice(lines, LINES)):
            ids += tokenizer(some, add_special_tokens=False)["input_ids"]
    return ids, file.stat().st_size


def _json_lines(file: Path, tokenizer, field: str) -> Iterator[tuple[list[int], int]]:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                text = json.loads(line)[field]
            except (json.JSONDecodeError, KeyError, TypeError):
                text = None
            if not isinstance(text, str):
                raise ValueError(f'{file}, line {number}: give {{"{field}": "..."}}, or name another --field')
            yield tokenizer(text, add_special_tokens=False)["input_ids"], len(line.encode())


def pocket_ids(n: int, tokenizer, seed: int = 0) -> Iterator[tuple[list[int], int]]:
    """(ids, 1) of n questions of the training split with an answer each, in the wording that the target was taught."""
    rng = random.Random(f"datastore-{seed}")
    for problem in problems("train", n, seed):
        answer = world_ids(tokenizer, write_answer(problem, rng, STYLES["target"]))
        yield [*prompt_ids(tokenizer, problem.question), *answer], 1
