"""Tasks: chosen by the seed, some of every kind; files that are not lists of prompts are refused by line.
Follows specdec_lib/tasks.py and data/prompts/chat.jsonl.
Left out: answering them.
"""

import json
from collections import Counter

import pytest

from specdec_lib.pocket.world import split_of
from specdec_lib.tasks import CHAT, Task, choose_tasks, read_tasks
from specdec_lib.zoo import data_folder


def test_a_pocket_pair_gets_held_out_problems_that_can_be_checked():
    found = choose_tasks("pocket-uniform", 8, seed=2)
    assert [split_of(task.problem.question) for task in found] == ["test"] * 8
    assert all(task.prompt == task.problem.question and task.group == task.problem.family for task in found)
    assert found == choose_tasks("pocket-uniform", 8, seed=2) != choose_tasks("pocket-uniform", 8, seed=3)


def test_other_pairs_get_prompts_of_every_kind():
    found = choose_tasks("some-pair", 12, seed=0)
    assert set(Counter(task.group for task in found).values()) == {2} and len(set(found)) == 12
    assert found[:6] == choose_tasks("some-pair", 6, seed=0)
    assert found != choose_tasks("some-pair", 12, seed=1)
    assert all(task.problem is None for task in found)


def test_the_prompts_are_six_kinds_of_four_and_short():
    tasks = read_tasks(data_folder() / CHAT)
    kinds = Counter(task.group for task in tasks)
    assert kinds == dict.fromkeys(("chat", "translation", "summarization", "qa", "math_reasoning", "rag"), 4)
    assert len({task.prompt for task in tasks}) == 24
    assert max(len(task.prompt.split()) for task in tasks) < 200  # words; well below 400 tokens
    assert all("Passage 2:" in t.prompt and "Question:" in t.prompt for t in tasks if t.group == "rag")
    assert all(len(t.prompt.split()) > 100 for t in tasks if t.group == "summarization")


def test_a_file_of_ones_own_may_leave_the_group_out(tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text('{"prompt": "one"}\n\n{"prompt": "two", "group": "b"}\n')
    assert read_tasks(file) == [Task("one", "all"), Task("two", "b")]
    assert sorted(t.prompt for t in choose_tasks("pocket", 2, 0, file)) == ["one", "two"]


@pytest.mark.parametrize(
    "line, said",
    [
        ("{", "line 2, is not JSON"),
        ('"text"', "line 2: give"),
        (json.dumps({"prompt": " "}), "line 2: give"),
        (json.dumps({"prompt": "x", "group": 3}), "line 2: give"),
        (json.dumps({"question": "x"}), "line 2: give"),
    ],
)
def test_a_line_that_is_no_prompt_is_named(tmp_path, line, said):
    file = tmp_path / "mine.jsonl"
    file.write_text(f'{{"prompt": "fine"}}\n{line}\n')
    with pytest.raises(ValueError, match=said):
        read_tasks(file)


def test_too_many_too_few_and_nothing_are_refused(tmp_path):
    with pytest.raises(ValueError, match="holds 24 prompts, not 25"):
        choose_tasks("some-pair", 25, 0)
    for n in (0, -1, True, 2.5):
        with pytest.raises(ValueError, match="1 or more"):
            choose_tasks("pocket", n, 0)
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ValueError, match="holds no prompt"):
        read_tasks(tmp_path / "empty.jsonl")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not a text file"):
        read_tasks(tmp_path / "binary.jsonl")
