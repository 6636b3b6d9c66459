"""Tasks to benchmark on: the pocket world's problems, or prompts from a file, some of every kind.

Our own; the six kinds in data/prompts/ are those of Spec-Bench (Xia et al. 2024, arXiv 2401.07851), whose
question files can be read too (specbench.py).
Left out: turning a prompt into ids (zoo.Pair.prompt).
"""

import json
import random
from dataclasses import dataclass
from pathlib import Path

from specdec_lib.pocket.world import Problem, problems
from specdec_lib.specbench import Question, group_of
from specdec_lib.text_file import read_text
from specdec_lib.whole import check_whole
from specdec_lib.zoo import data_folder

CHAT = Path("prompts") / "chat.jsonl"  # under data/: the prompts for models that read plain English
SPEC = Path("prompts") / "spec-small.jsonl"  # under data/: the same of six kinds, some of two turns


@dataclass(frozen=True)
class Task:
    """A prompt, the kind it is of, and for a pocket pair the problem, which can be checked.

    question: the row of Spec-Bench's format that it comes from; it is then one turn of it, after the turns `before`.
    """

    prompt: str
    group: str
    problem: Problem | None = None
    question: Question | None = None
    before: tuple[str, ...] = ()


def choose_tasks(pair: str, n: int, seed: int, file: Path | None = None) -> list[Task]:
    """n tasks, chosen by the seed: a pocket pair's held-out problems, or prompts of a file (data/prompts/chat.jsonl
    unless given), the groups taking turns. A question of several turns is chosen as one, and gives a task a turn.

    ValueError for n below 1, for more than the file holds, and for a file that is not a list of prompts.
    """
    check_whole("n, the number of prompts,", n, 1)
    if file is None and pair.startswith("pocket"):
        return [Task(problem.question, problem.family, problem) for problem in problems("test", n, seed)]
    file = file or data_folder() / CHAT
    found = read_tasks(file)
    first = [task for task in found if not task.before]
    if n > len(first):
        raise ValueError(f"{file} holds {len(first)} prompts, not {n}; ask for at most {len(first)}, or add some")
    chosen = _in_turns(first, seed)[:n]
    return [turn for task in chosen for turn in (turns(task.question) if task.question else [task])]


def turns(question: Question) -> list[Task]:
    """A task a turn."""
    group = group_of(question.category)
    return [Task(text, group, None, question, question.turns[:i]) for i, text in enumerate(question.turns)]


def read_tasks(file: Path) -> list[Task]:
    """The prompts of a JSONL file: {"prompt": "...", "group": "..."}, a line each; the group may be left out. A line
    with "turns" is a question of Spec-Bench's format, and gives a task a turn.
    """
    found = []
    for number, line in enumerate(read_text(file).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{file}, line {number}, is not JSON: {error}") from error
        if isinstance(entry, dict) and "turns" in entry:
            try:
                found += turns(Question.of(entry))
            except ValueError as error:
                raise ValueError(f"{file}, line {number}: {error}") from error
            continue
        prompt = entry.get("prompt") if isinstance(entry, dict) else None
        group = entry.get("group", "all") if isinstance(entry, dict) else None
        if not isinstance(prompt, str) or not prompt.strip() or not isinstance(group, str):
            raise ValueError(f'{file}, line {number}: give {{"prompt": "...", "group": "..."}}, both texts')
        found.append(Task(prompt, group))
    if not found:
        raise ValueError(f"{file} holds no prompt")
    return found


def _in_turns(tasks: list[Task], seed: int) -> list[Task]:
    """Shuffled within each group; one of every group, then a second one of every group, and so on."""
    rng, groups = random.Random(seed), {}
    for task in tasks:
        groups.setdefault(task.group, []).append(task)
    for members in groups.values():
        rng.shuffle(members)
    ranked = [(rank, task) for members in groups.values() for rank, task in enumerate(members)]
    return [task for _, task in sorted(ranked, key=lambda pair: pair[0])]
