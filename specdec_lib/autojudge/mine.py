"""AutoJudge's labels: which mismatched draft tokens change the target's final answer. No right answer is needed.

Follows AutoJudge (arXiv 2504.20039): the semi-greedy search, as in its authors' public code.
Left out: code and other answers than a number, whose change would be told another way.

The text is the target's greedy answer. From left to right, where the draft would have written another token, that
token is put in and the target finishes the text greedily. Final number as before: the token is unimportant, and the
search goes on in the new text. Another number, or none: it is important, and the old text stays.
"""

import os.path
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from tqdm import tqdm

from specdec_lib.autojudge.labels import FORMAT, Mined, append, resume
from specdec_lib.pocket.world import problems
from specdec_lib.rows import RowsModel
from specdec_lib.tasks import read_tasks
from specdec_lib.whole import check_whole
from specdec_lib.zoo import Pair

SPLIT = "calibration"
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
SIDE_BY_SIDE = 32  # questions that are searched together, and the step in which a stopped run goes on


class Finisher:
    """The target's greedy end of many texts, a row of one cache each, which keeps what two texts of a row share."""

    def __init__(self, pair: Pair, texts: int):
        self.rows, self.eos = RowsModel(pair.target, texts), pair.stops.eos_token_ids
        self.held: list[list[int]] = [[] for _ in range(texts)]  # the ids that each row has read
        for _ in range(texts):
            self.rows.add()

    def finish(self, begun: dict[int, list[int]], max_new_tokens: int) -> dict[int, list[int]]:
        """The new ids behind each row's begun text: up to an end of text, max_new_tokens or the context's end."""
        found: dict[int, list[int]] = {row: [] for row in sorted(begun)}
        active = [row for row in found if begun[row][-1] not in self.eos]
        unread = []
        for row in active:
            shared = len(os.path.commonprefix([self.held[row], begun[row][:-1]]))
            self.rows.lengths[row], self.held[row] = shared, list(begun[row])
            unread.append(begun[row][shared:])
        while active:
            ids = [torch.tensor(new, device=self.rows.lm.device) for new in unread]
            best = self.rows.read(active, ids, last=True).logits[:, -1].argmax(dim=-1).tolist()
            for row, token in zip(active, best, strict=True):
                found[row].append(token)
            longest = {row: min(max_new_tokens, self.rows.lm.context - len(begun[row])) for row in active}
            active = [row for row in active if found[row][-1] not in self.eos and len(found[row]) < longest[row]]
            for row in active:
                self.held[row].append(found[row][-1])
            unread = [found[row][-1:] for row in active]
        return found


def answer_of(pair: Pair, ids: Sequence[int]) -> str | None:
    """The last number of an answer; None if it does not end, or has none."""
    numbers = NUMBER.findall(pair.text(list(ids)))
    return numbers[-1] if numbers and ids[-1] in pair.stops.eos_token_ids else None


def mine(pair: Pair, questions: Sequence[str], max_new_tokens: int) -> list[Mined]:
    """Search all the questions' answers, side by side. A question whose greedy answer has no number gives no swaps.

    ValueError for a target that a batch cannot have (rows.py).
    """
    prompts = [pair.prompt(question) for question in questions]
    finisher = Finisher(pair, len(prompts))
    texts = finisher.finish(dict(enumerate(prompts)), max_new_tokens)
    found = [Mined(question, texts[i]) for i, question in enumerate(questions)]
    answers = [answer_of(pair, one.text) for one in found]
    at = [0 if answer is not None else len(one.text) for answer, one in zip(answers, found, strict=True)]
    while True:
        swaps = {i: next_mismatch(pair, prompts[i], one.text, at[i]) for i, one in enumerate(found)}
        tried = {i: [*found[i].text[: swap[0]], swap[1]] for i, swap in swaps.items() if swap is not None}
        if not tried:
            return found
        # Each gets the whole budget anew: a swap near the end of a long answer must not cut it short.
        finished = finisher.finish({i: [*prompts[i], *begun] for i, begun in tried.items()}, max_new_tokens)
        for i, begun in tried.items():
            other = [*begun, *finished[i]]
            important = answer_of(pair, other) != answers[i]
            found[i].swaps.append((len(begun) - 1, begun[-1], important))
            found[i].text = found[i].text if important else other
            at[i] = len(begun)


def next_mismatch(pair: Pair, prompt: list[int], text: list[int], start: int) -> tuple[int, int] | None:
    """(position, draft token) of the first place from `start` on where the draft would not write the text's token."""
    if start >= len(text):
        return None
    draft = pair.draft
    draft.start()
    draft.feed([*prompt, *text[:start]][:-1])
    ids = torch.tensor([[*prompt, *text[:start]][-1], *text[start:-1]], device=draft.device)
    own = draft.score(ids, range(-1, len(ids) - 1)).logits.argmax(dim=-1).tolist()
    return next(((start + i, token) for i, token in enumerate(own) if token != text[start + i]), None)


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
    done = resume(file, header, questions)
    with tqdm(total=n, initial=len(done), desc="mine", unit="question", disable=not progress) as bar:
        for start in range(len(done), n, SIDE_BY_SIDE):
            new = mine(pair, questions[start : start + SIDE_BY_SIDE], max_new_tokens)
            append(file, new)
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
