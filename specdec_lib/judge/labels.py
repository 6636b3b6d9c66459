"""The label set: answers with a mark for every token, right, wrong or dropped. Read and written as JSONL.

Follows Judge Decoding (arXiv 2501.19309): tokens before the first error positive, wrong tokens negative;
that what comes after an error is dropped is ours.
Left out: who marks the answers (data.py for the pocket world, people for anything else).
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from specdec_lib.zoo import Pair

RIGHT, WRONG, DROPPED, CORRECTED, AFTER = "+", "-", ".", "c", "a"
MARKS = (RIGHT, WRONG, DROPPED, CORRECTED, AFTER)


@dataclass(frozen=True)
class LabelledAnswer:
    """prompt: what was asked. ids: the answer's token ids. marks: one of + - . c a for each id.

    + right, - wrong, . dropped; c (part of an error that is put right) and a (after an error) are dropped as well,
    unless an ablation wants them. writer: who wrote the answer.
    """

    prompt: str
    ids: tuple[int, ...]
    marks: str
    writer: str = ""

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.marks):
            raise ValueError(f"{len(self.marks)} marks for {len(self.ids)} tokens")
        unknown = set(self.marks) - set(MARKS)
        if unknown:
            raise ValueError(f"unknown mark {min(unknown)!r}; a mark is one of {' '.join(MARKS)}")


def read_labels(file: Path | str, pair: Pair) -> list[LabelledAnswer]:
    """The answers of a .jsonl or .jsonl.gz file, in the tokens of this pair.

    A line is {"prompt", "answer", "marks"} with a mark a token, or {"prompt", "answer", "wrong": [[start, end], ...]}
    with spans of characters that are wrong: tokens that touch one are wrong, what follows the first is dropped. An
    empty list marks a right answer. "writer" may be added. A line {"about": ...} is skipped. ValueError, naming file
    and line, for anything else.
    """
    found = []
    for number, entry in enumerate(_lines(Path(file)), start=1):
        try:
            if not isinstance(entry, dict):
                raise ValueError("give an object with prompt, answer, and marks or wrong")
            if "about" not in entry:
                found.append(_answer(entry, pair.tokenizer))
        except ValueError as error:
            raise ValueError(f"{file}, line {number}: {error}") from error
    if not found:
        raise ValueError(f"{file} holds no labelled answer")
    return found


def about_labels(file: Path | str) -> dict:
    """What the file says of itself: the "about" of its first line; empty where there is none."""
    first = next(_lines(Path(file)), None)
    return first.get("about", {}) if isinstance(first, dict) else {}


def write_labels(file: Path | str, answers: Iterable[LabelledAnswer], pair: Pair, about: dict) -> None:
    """Write answers as text and marks, compressed if the name ends in .gz; the same bytes for the same answers.

    ValueError for an answer whose text does not give back its tokens.
    """
    lines = [json.dumps({"about": about}), *(as_line(answer, pair.tokenizer) for answer in answers)]
    text = "".join(line + "\n" for line in lines).encode()
    Path(file).write_bytes(gzip.compress(text, mtime=0) if Path(file).suffix == ".gz" else text)


def as_line(answer: LabelledAnswer, tokenizer: PreTrainedTokenizerBase) -> str:
    text = tokenizer.decode(answer.ids, clean_up_tokenization_spaces=False)
    if _ids(text, tokenizer) != answer.ids:
        raise ValueError(f"the tokens of this answer cannot be had back from its text: {text[:60]!r}")
    entry = {"prompt": answer.prompt, "answer": text, "marks": answer.marks, "writer": answer.writer}
    return json.dumps(entry, ensure_ascii=False)


def _lines(file: Path) -> Iterator[object]:
    opened = gzip.open if file.suffix == ".gz" else open
    try:
        with opened(file, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _json(line, f"{file}, line {number},")
    except (UnicodeDecodeError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{file} is not a whole text file ({error})") from error


def _json(line: str, where: str) -> object:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} is not JSON: {error}") from error


def _answer(entry: dict, tokenizer: PreTrainedTokenizerBase) -> LabelledAnswer:
    texts = [entry.get(key) for key in ("prompt", "answer")]
    if not all(isinstance(text, str) and text for text in texts) or not isinstance(entry.get("writer", ""), str):
        raise ValueError("prompt and answer must be texts, and writer, where it is given, too")
    if ("marks" in entry) == ("wrong" in entry):
        raise ValueError('give either "marks" (one a token) or "wrong" (spans of characters)')
    prompt, text = texts
    ids = _ids(text, tokenizer)
    marks = entry["marks"] if "marks" in entry else _marks(text, entry["wrong"], tokenizer)
    if not isinstance(marks, str):
        raise ValueError("marks must be a text with a character a token")
    return LabelledAnswer(prompt, ids, marks, entry.get("writer", ""))


def _ids(text: str, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def _marks(text: str, spans: object, tokenizer: PreTrainedTokenizerBase) -> str:
    """Marks from spans of wrong characters."""
    whole = isinstance(spans, list) and all(
        isinstance(s, list) and len(s) == 2 and all(type(x) is int for x in s) and 0 <= s[0] < s[1] <= len(text)
        for s in spans
    )
    if not whole:
        raise ValueError(f"wrong must list spans [start, end] of characters within the answer; got {spans!r}")
    if not tokenizer.is_fast:
        raise ValueError("spans need a tokenizer that knows where its tokens stand (a fast one); give marks instead")
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    marks = ""
    for start, end in offsets:
        touched = any(start < wrong_end and wrong_start < end for wrong_start, wrong_end in spans)
        marks += WRONG if touched else AFTER if WRONG in marks else RIGHT
    return marks
