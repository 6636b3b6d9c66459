"""The judge's label set: files read and written, corrupted answers, and the set built for the pocket pair.
Follows specdec_lib/judge/labels.py, corrupt.py and data.py.
Left out: what is learnt from it (test_judge_train.py).
"""

import gzip
import json
import random

import pytest

from specdec_lib.decode import decode
from specdec_lib.drafters import ModelDrafter
from specdec_lib.judge import data
from specdec_lib.judge.corrupt import CLASSES, WEIGHTS, corrupted
from specdec_lib.judge.labels import LabelledAnswer, about_labels, read_labels, write_labels
from specdec_lib.pocket.checker import RIGHT, WRONG, mark
from specdec_lib.pocket.tokenizer import world_tokens
from specdec_lib.pocket.world import EOS, Problem, Step, problems, tokens_of, write_answer
from specdec_lib.verifiers import Lenience

QUESTION = "mia has 12 pens. tom gives mia 5 pens. how many pens does mia have?"
PROBLEM = Problem("gifts", "mia", "pens", 12, (Step("+", 5, ("tom",)),))
ANSWER = "first, mia has 12 pens. next, tom gives mia 5 pens, so 12 + 5 = 17. now mia has 17 pens."


def written(tmp_path, *entries):
    file = tmp_path / "labels.jsonl"
    file.write_text("".join((e if isinstance(e, str) else json.dumps(e)) + "\n" for e in entries))
    return file


# ---- files -----------------------------------------------------------------------------------------------------


def test_spans_of_characters_become_marks_of_tokens(pair, tmp_path):
    """ "17" is two tokens; a span over the 7 alone marks that token, and what follows is after an error."""
    text = "so 12 + 5 = 17. now"
    at = text.index("17")
    cases = [
        ([], "+++++++++"),
        ([[at, at + 2]], "++++++--aa"),
        ([[at + 1, at + 2]], "+++++++-aa"),
        ([[0, 2]], "-aaaaaaaaa"),
    ]
    ids = pair.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert world_tokens(pair.tokenizer, ids) == [" so", " 1", "2", " +", " 5", " =", " 1", "7", ".", " now"]
    for spans, marks in cases:
        (found,) = read_labels(written(tmp_path, {"prompt": "x", "answer": text, "wrong": spans}), pair)
        assert found.marks == (marks if spans else "+" * 10) and list(found.ids) == ids


def test_two_wrong_spans_are_both_wrong_and_what_stands_between_is_dropped(pair, tmp_path):
    (found,) = read_labels(written(tmp_path, {"prompt": "x", "answer": "so 12 + 5", "wrong": [[3, 4], [8, 9]]}), pair)
    assert found.marks == "+-aa-"


def test_what_is_written_is_read_again_compressed_or_not_and_always_the_same_bytes(pair, tmp_path):
    ids = tuple(pair.tokenizer(ANSWER + "</s>", add_special_tokens=False)["input_ids"])
    assert ids[-1] == pair.tokenizer.eos_token_id
    answers = [LabelledAnswer(QUESTION, ids, "+" * (len(ids) - 3) + "-ca", "me"), LabelledAnswer("x", ids[:4], "...+")]
    for name in ("a.jsonl", "a.jsonl.gz"):
        file = tmp_path / name
        write_labels(file, answers, pair, {"seed": 3})
        first = file.read_bytes()
        write_labels(file, answers, pair, {"seed": 3})
        assert file.read_bytes() == first
        assert read_labels(file, pair) == answers and about_labels(file) == {"seed": 3}
    assert gzip.decompress(first) == (tmp_path / "a.jsonl").read_bytes()


def test_tokens_that_their_text_does_not_give_back_are_refused(pair, tmp_path):
    unk = pair.tokenizer.unk_token_id
    digits = tuple(pair.tokenizer.convert_tokens_to_ids(["1", "\u2581so"]))  # a text's first token carries a space
    for ids in (digits, (unk, unk)):
        try:
            write_labels(tmp_path / "a.jsonl", [LabelledAnswer("x", ids, "++")], pair, {})
        except ValueError as error:
            assert "cannot be had back" in str(error)
        else:
            assert read_labels(tmp_path / "a.jsonl", pair)[0].ids == ids


@pytest.mark.parametrize(
    "entry, words",
    [
        ("{", "not JSON"),
        ([1, 2], "an object"),
        ({"prompt": "x"}, "texts"),
        ({"prompt": "x", "answer": ""}, "texts"),
        ({"prompt": "x", "answer": "so", "marks": "+", "writer": 3}, "texts"),
        ({"prompt": "x", "answer": "so"}, "either"),
        ({"prompt": "x", "answer": "so", "marks": "+", "wrong": []}, "either"),
        ({"prompt": "x", "answer": "so", "marks": ["+"]}, "a text"),
        ({"prompt": "x", "answer": "so", "marks": "++"}, "2 marks for 1 tokens"),
        ({"prompt": "x", "answer": "so", "marks": "y"}, "unknown mark 'y'"),
        ({"prompt": "x", "answer": "so", "wrong": [[0, 3]]}, "spans"),
        ({"prompt": "x", "answer": "so", "wrong": [[1, 1]]}, "spans"),
        ({"prompt": "x", "answer": "so", "wrong": [[False, True]]}, "spans"),
        ({"prompt": "x", "answer": "so", "wrong": "so"}, "spans"),
    ],
)
def test_a_line_of_another_form_is_named(pair, tmp_path, entry, words):
    good = {"prompt": "x", "answer": "so", "marks": "+"}
    file = written(tmp_path, good, entry)
    with pytest.raises(ValueError, match=rf"labels\.jsonl, line 2.*{words}"):
        read_labels(file, pair)


def test_empty_damaged_and_missing_files_are_refused(pair, tmp_path):
    (tmp_path / "empty.jsonl").write_text('{"about": {}}\n')
    with pytest.raises(ValueError, match="no labelled answer"):
        read_labels(tmp_path / "empty.jsonl", pair)
    whole = gzip.compress(json.dumps({"prompt": "x", "answer": "so", "marks": "+"}).encode() * 50)
    for name, content in (("cut.jsonl.gz", whole[:-20]), ("plain.jsonl.gz", b"{}"), ("latin.jsonl", b"\xff\xfe\n")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=name):
            read_labels(tmp_path / name, pair)
    with pytest.raises(FileNotFoundError):
        read_labels(tmp_path / "none.jsonl", pair)


# ---- corrupted answers -----------------------------------------------------------------------------------------


def test_a_corrupted_answer_is_right_up_to_its_last_token_which_is_wrong():
    last = []
    for i, problem in enumerate(problems("calibration", 60, 5)):
        rng = random.Random(i)
        for _ in range(3):
            tokens = corrupted(problem, write_answer(problem, rng, data.any_wording(rng)), rng)
            labels = mark(problem, tokens).labels
            assert labels == (RIGHT,) * (len(tokens) - 1) + (WRONG,)
            last.append(tokens[-1])
    digits = sum(token.strip().isdigit() for token in last)
    words = sum(token in words for token in last for words in CLASSES)
    assert EOS in last and words > 20 and len(last) / 2 < digits < len(last)
    assert digits + words + last.count(EOS) >= len(last) and set(WEIGHTS) == {"result", "digit", "word", "end"}


def test_the_same_seed_corrupts_the_same_way():
    right = tokens_of(" " + write(PROBLEM))
    found = [[corrupted(PROBLEM, right, random.Random(seed)) for seed in range(9)] for _ in range(2)]
    assert found[0] == found[1] and len({tuple(tokens) for tokens in found[0]}) > 4


def write(problem):
    return "".join(write_answer(problem, random.Random(0), data.any_wording(random.Random(0)))).strip()


# ---- the set ---------------------------------------------------------------------------------------------------


def test_marks_of_a_slip_put_right_of_one_that_is_not_and_of_a_right_answer(pair):
    begun = "first, mia has 12 pens. next, tom gives mia 5 pens, so 12 + 5 ="
    for said, marks in (
        (" 17.", "+++"), (" 18, wait, 17.", "+-ccccc+"), (" 18. now", "+-aa"),
    ):  # fmt: skip
        ids = pair.tokenizer(begun + said, add_special_tokens=False)["input_ids"]
        assert data.marked(pair, PROBLEM, ids, "me").marks.endswith("+" + marks), said


@pytest.fixture
def quick(monkeypatch):
    """Two questions a chunk, and a world's writer in place of the models."""
    monkeypatch.setattr(data, "CHUNK", 2)

    def by_world(pair, writer, tasks, seed):
        return [data._by_world(pair, task, 7, seed) for task in tasks]

    monkeypatch.setattr(data, "_decoded", by_world)


def test_a_run_that_was_stopped_goes_on_to_the_very_same_file(pair, tmp_path, monkeypatch, quick):
    data.build(pair, tmp_path / "whole.jsonl.gz", 5)
    made, calls = data._chunk, []

    def stopping(pair, tasks, start, seed):
        calls.append(start)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return made(pair, tasks, start, seed)

    monkeypatch.setattr(data, "_chunk", stopping)
    with pytest.raises(KeyboardInterrupt):
        data.build(pair, tmp_path / "again.jsonl.gz", 5)
    part = tmp_path / "again.jsonl.gz.part"
    with part.open("a") as file:
        file.write('[3, "a line that was cut')
    data.build(pair, tmp_path / "again.jsonl.gz", 5)
    assert calls == [0, 2, 2, 4] and not part.exists()
    assert (tmp_path / "again.jsonl.gz").read_bytes() == (tmp_path / "whole.jsonl.gz").read_bytes()


def test_a_part_of_another_set_is_refused(pair, tmp_path, quick):
    file = tmp_path / "a.jsonl"
    (tmp_path / "a.jsonl.part").write_text('{"about": {"seed": 9}}\n')
    with pytest.raises(ValueError, match="another label set"):
        data.build(pair, file, 3)
    assert (tmp_path / "a.jsonl.part").read_text() == '{"about": {"seed": 9}}\n'


def test_only_a_pocket_pair_s_answers_can_be_marked(pair, tmp_path):
    import dataclasses

    with pytest.raises(ValueError, match="labels of your own"):
        data.build(dataclasses.replace(pair, name="smollm2"), tmp_path / "a.jsonl", 3)
    assert not (tmp_path / "a.jsonl.part").exists()


def test_both_models_together_write_what_a_lax_rule_lets_through(pair):
    tasks = problems("calibration", 3, 1)
    both = data._decoded(pair, "both", tasks, 1)
    rule = (ModelDrafter(pair.draft, data.GAMMA), Lenience(data.LAX))
    for task, ids in zip(tasks, both, strict=True):
        assert ids == decode(pair.target, pair.prompt(task.question), data.MAX_NEW_TOKENS, *rule, stops=pair.stops).ids
    assert both != data._decoded(pair, "target", tasks, 1) and both != data._decoded(pair, "draft", tasks, 1)


def test_the_models_write_their_turns_and_corrupted_answers_bring_wrong_tokens_only(pair, tmp_path):
    answers = data.build(pair, tmp_path / "a.jsonl", 5)
    assert read_labels(tmp_path / "a.jsonl", pair) == answers
    full = [a for a in answers if a.writer in data.FULL]
    assert [a.writer for a in full] == list(data.FULL)
    wrong_only = [a for a in answers if a.writer not in data.FULL]
    assert sum(a.writer == "corrupted" for a in wrong_only) == 5 * data.CORRUPTED
    assert {a.writer for a in wrong_only} - {"corrupted"} <= {f"{writer}'s slips" for writer in data.SLIPS}
    assert any(a.writer == "draft-sampled's slips" for a in wrong_only)
    for a in wrong_only:
        assert a.marks == "." * (len(a.ids) - 1) + "-"
    assert all("." not in a.marks for a in full)
    greedy, drafted = full[0], full[2]
    assert greedy.ids[-1] == pair.tokenizer.eos_token_id and "-" not in full[4].marks
    assert drafted.ids != greedy.ids
    assert about_labels(tmp_path / "a.jsonl")["checksums"] == pair.checksums
    text = data.counted(answers)
    assert "corrupted" in text and text.splitlines()[-1].split()[:2] == ["all", str(len(answers))]
