"""Mined labels: which draft tokens were put into an answer, and which of them changed its final number. A JSONL file.

Our own form; the labels are those of AutoJudge (arXiv 2504.20039).
Left out: how they are found (mine.py) and what is learnt from them (train.py).
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

FORMAT = "specdec autojudge labels 1"


@dataclass
class Mined:
    """One question. text: the answer's ids after all swaps. swaps: (position in the answer, draft token, important).

    The prefix of a swap is text[:position]; an unimportant one's token stands in the text.
    """

    question: str
    text: list[int]
    swaps: list[tuple[int, int, bool]] = field(default_factory=list)


def append(file: Path, new: Sequence[Mined]) -> None:
    """Write questions behind those that are there, a line each."""
    with file.open("a") as opened:
        opened.writelines(json.dumps(asdict(one)) + "\n" for one in new)


def resume(file: Path, header: dict, questions: Sequence[str]) -> list[Mined]:
    """What an earlier run has mined; a half-written last line is cut off. A new file gets its header.

    ValueError for a file that was made with another header or other questions.
    """
    if not file.is_file():
        file.write_text(json.dumps(header) + "\n")
        return []
    text = file.read_text()
    whole = text[: text.rfind("\n") + 1]
    found, done = read_labels(file, whole)
    if found != header:
        differs = next(key for key in {**found, **header} if found.get(key) != header.get(key))
        raise ValueError(
            f"{file} was made with {differs} = {found.get(differs)!r}, not {header.get(differs)!r}; choose another "
            "file name, or delete it"
        )
    if [one.question for one in done] != list(questions[: len(done)]):
        raise ValueError(f"{file} holds answers to other questions; choose another file name, or delete it")
    if whole != text:
        file.write_text(whole)
    return done


def read_labels(file: Path, text: str | None = None) -> tuple[dict, list[Mined]]:
    """(header, questions) of a file of labels. ValueError, with the line, for one that is damaged or of another kind.

    text: what the file holds, if it has been read.
    """
    lines = (file.read_text() if text is None else text).splitlines()
    found: list[Mined] = []
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            if number == 1:
                header = entry
                if header["format"] != FORMAT:
                    raise ValueError(f"format {header['format']!r}")
            else:
                found.append(_checked(Mined(**entry)))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file}, line {number}, is not part of a file of autojudge labels: {error}") from error
    if not lines:
        raise ValueError(f"{file} is empty; delete it, or mine again")
    return header, found


def _checked(one: Mined) -> Mined:
    one.swaps = [(position, token, important) for position, token, important in one.swaps]
    last = -1
    for position, token, important in one.swaps:
        if not last < position <= len(one.text) or type(important) is not bool or type(token) is not int:
            raise ValueError(f"swap {(position, token, important)} does not fit the text")
        if not important and (position == len(one.text) or one.text[position] != token):
            raise ValueError(f"unimportant swap {(position, token)} is not in the text")
        last = position
    return one
