"""AutoJudge's labels: which mismatched draft tokens change the target's final answer. No right answer is needed.

Follows AutoJudge (arXiv 2504.20039): the semi-greedy search, as in its authors' public code.
Left out: code and other answers than a number, whose change would be told another way.

The text is the target's greedy answer. From left to right, where the draft would have written another token, that
token is put in and the target finishes the text greedily. Final number as before: the token is unimportant, and the
search goes on in the new text. Another number, or none: it is important, and the old text stays.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from tqdm import tqdm

from specdec_lib.batch import decode_batch
from specdec_lib.decode import EOS
from specdec_lib.pocket.world import problems
from specdec_lib.tasks import read_tasks
from specdec_lib.trace import Trace
from specdec_lib.whole import check_whole
from specdec_lib.zoo import Pair

FORMAT = "specdec autojudge labels 1"
SPLIT = "calibration"
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
SIDE_BY_SIDE = 64  # questions that are searched together, and the step in which a stopped run goes on


@dataclass
class Mined:
    """One question. text: the answer's ids after all swaps. swaps: (position in the answer, draft token, important).

    The prefix of a swap is text[:position]; an unimportant one's token stands in the text.
    """

    question: str
    text: list[int]
    swaps: list[tuple[int, int, bool]] = field(default_factory=list)


def answer_of(pair: Pair, trace: Trace, begun: Sequence[int] = ()) -> str | None:
    """The last number of an answer (ids begun, then those of the trace); None if it does not end, or has none."""
    if trace.reason != EOS:
        return None
    numbers = NUMBER.findall(pair.text([*begun, *trace.ids]))
    return numbers[-1] if numbers else None


def mine(pair: Pair, questions: Sequence[str], max_new_tokens: int) -> list[Mined]:
    """Search all the questions' answers, side by side. A question whose greedy answer has no number gives no swaps."""
    prompts = [pair.prompt(question) for question in questions]
    first = decode_batch(pair.target, prompts, max_new_tokens, stops=pair.stops, size=SIDE_BY_SIDE)
    found = [Mined(question, trace.ids) for question, trace in zip(questions, first, strict=True)]
    answers = [answer_of(pair, trace) for trace in first]
    at = [0 if answer is not None else len(trace.ids) for answer, trace in zip(answers, first, strict=True)]
    while True:
        tried = []
        for i, one in enumerate(found):
            swap = next_mismatch(pair, prompts[i], one.text, at[i])
            if swap is not None:
                tried.append((i, *swap))
        if not tried:
            return found
        begun = [[*found[i].text[:position], token] for i, position, token in tried]
        finished = _finish(pair, [prompts[i] for i, *_ in tried], begun, max_new_tokens)
        for (i, position, token), start, trace in zip(tried, begun, finished, strict=True):
            important = answer_of(pair, trace, start) != answers[i]
            found[i].swaps.append((position, token, important))
            if not important:
                found[i].text = [*start, *trace.ids]
            at[i] = position + 1


def next_mismatch(pair: Pair, prompt: list[int], text: list[int], start: int) -> tuple[int, int] | None:
    """(position, draft token) of the first place from `start` on where the draft would not write the text's token."""
    if start >= len(text):
        return None
    draft = pair.draft
    draft.start()
    draft.feed([*prompt[:-1]])
    ids = torch.tensor([prompt[-1], *text[:-1]], device=draft.device)
    own = draft.score(ids, range(-1, len(ids) - 1)).logits.argmax(dim=-1).tolist()
    return next(((i, own[i]) for i in range(start, len(text)) if own[i] != text[i]), None)


def _finish(pair: Pair, prompts: list[list[int]], begun: list[list[int]], max_new_tokens: int) -> list[Trace]:
    """The target's greedy traces after prompt and begun answer; nothing is added after an end of text."""
    ended = [start[-1] in pair.stops.eos_token_ids for start in begun]
    open_ones = [i for i, over in enumerate(ended) if not over]
    # Every text gets the whole budget anew: a swap near the end of a long answer must not cut it short.
    texts = [[*prompts[i], *begun[i]] for i in open_ones]
    found = decode_batch(pair.target, texts, max_new_tokens, stops=pair.stops, size=SIDE_BY_SIDE)
    traces = [Trace([], "", True, reason=EOS) for _ in begun]
    for i, trace in zip(open_ones, found, strict=True):
        traces[i] = trace
    return traces


# ---- the file --------------------------------------------------------------------------------------------------


def mine_to(
    file: Path, pair: Pair, n: int, seed: int, max_new_tokens: int, tasks: Path | None = None, progress: bool = True
) -> list[Mined]:
    """Mine n questions into a JSONL file, going on where it was stopped; a line a question, after a header.

    Questions: a pocket pair's calibration problems, else the prompts of `tasks`. ValueError for a file that was made
    with other models or arguments, or is damaged.
    """
    check_whole("n, the number of questions,", n, 1)
    check_whole("max_new_tokens", max_new_tokens, 1)
    questions = _questions(pair, n, seed, tasks)
    header = {
        "format": FORMAT, "pair": pair.name, "checksums": pair.checksums, "n": n, "seed": seed,
        "max_new_tokens": max_new_tokens, "tasks": tasks.name if tasks else SPLIT,
    }  # fmt: skip
    done = _resume(file, header)
    with tqdm(total=n, initial=len(done), desc="mine", unit="question", disable=not progress) as bar:
        for start in range(len(done), n, SIDE_BY_SIDE):
            new = mine(pair, questions[start : start + SIDE_BY_SIDE], max_new_tokens)
            with file.open("a") as opened:
                opened.writelines(json.dumps(asdict(one)) + "\n" for one in new)
            done += new
            bar.update(len(new))
    return done


def _questions(pair: Pair, n: int, seed: int, tasks: Path | None) -> list[str]:
    if tasks is None:
        if not pair.name.startswith("pocket"):
            raise ValueError(f"{pair.name} is no pocket pair: give --tasks FILE, a file of questions with a number")
        return [problem.question for problem in problems(SPLIT, n, seed)]
    found = [task.prompt for task in read_tasks(tasks)]
    if len(found) < n:
        raise ValueError(f"{tasks} holds {len(found)} questions, not {n}; ask for at most {len(found)}")
    return found[:n]


def _resume(file: Path, header: dict) -> list[Mined]:
    """What an earlier run has mined; a half-written last line is cut off. A new file gets its header."""
    if not file.is_file():
        file.write_text(json.dumps(header) + "\n")
        return []
    text = file.read_text()
    whole = text[: text.rfind("\n") + 1]
    found, done = read_labels(file, whole)
    if found != header:
        differs = next(key for key in header if found.get(key) != header[key])
        raise ValueError(
            f"{file} was made with {differs} = {found.get(differs)!r}, not {header[differs]!r}; choose another file "
            "name, or delete it"
        )
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


def labels_of(mined: Sequence[Mined]) -> Iterator[bool]:
    """All swaps' labels in order: important or not."""
    return (important for one in mined for *_, important in one.swaps)
