"""Spec-Bench's format round trip, its figures by hand and its traps, and a benchmark on questions of two turns.
Follows Spec-Bench (arXiv 2401.07851), specbench.py, specbench_figures.py, conversation.py and data/prompts/.
Left out: speed.
"""

import json
from collections import Counter
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from specdec_lib.bench import bench
from specdec_lib.cli import app
from specdec_lib.conversation import as_spec_bench, prompt_of
from specdec_lib.decode import decode
from specdec_lib.presets import data_folder
from specdec_lib.specbench import GROUPS, Answer, Question, group_of, read_answers, read_questions, write_rows
from specdec_lib.specbench_figures import figures, table
from specdec_lib.speed import Call
from specdec_lib.tasks import choose_tasks, read_tasks, turns

SMALL = data_folder() / "prompts" / "spec-small.jsonl"


def test_our_questions_are_ten_of_each_group_and_round_trip(tmp_path):
    questions = read_questions(SMALL)
    assert Counter(group_of(q.category) for q in questions) == dict.fromkeys(GROUPS, 10)
    assert [q.question_id for q in questions] == list(range(1, 61))
    assert len({turn for q in questions for turn in q.turns}) == 70
    assert all(len(q.turns) == (2 if group_of(q.category) == "mt_bench" else 1) for q in questions)
    assert all(q.reference for q in questions if q.category in ("math", "math_reasoning"))
    assert max(len(" ".join(q.turns).split()) for q in questions) < 200
    write_rows(tmp_path / "again.jsonl", questions)
    assert (tmp_path / "again.jsonl").read_text(encoding="utf-8") == SMALL.read_text(encoding="utf-8")


def test_math_is_a_conversation_and_math_reasoning_a_group_of_its_own():
    assert group_of("math") == "mt_bench" and group_of("math_reasoning") == "math_reasoning"
    with pytest.raises(ValueError, match="'maths'"):
        group_of("maths")


def answer(number, seconds, tokens, lengths, text="a b c", category="qa", turns=1):
    each = [[value] * turns for value in (text, len(lengths) // turns, tokens, seconds)]
    return Answer(number, category, "m", *each, lengths)


def test_answers_have_their_rows_and_round_trip(tmp_path):
    answers = [answer(1, 2.0, 4, [3, 1]), answer(2, 1.0, 3, [2, 1, 1, 2], "é", "math", turns=2)]
    write_rows(tmp_path / "a.jsonl", answers)
    assert read_answers(tmp_path / "a.jsonl") == answers
    row = json.loads((tmp_path / "a.jsonl").read_text().splitlines()[1])
    assert list(row) == ["question_id", "category", "answer_id", "model_id", "choices", "tstamp"]
    assert row["choices"] == [
        {
            "index": 0,
            "turns": ["é", "é"],
            "decoding_steps": [2, 2],
            "new_tokens": [3, 3],
            "wall_time": [1.0, 1.0],
            "accept_lengths": [2, 1, 1, 2],
        }
    ]


def count(text):
    return len(text.split())


MINE = [answer(1, 1.0, 4, [3, 1]), answer(2, 1.0, 20, [5, 5, 5, 5], category="rag")]
BASE = [answer(1, 2.0, 4, [1] * 4), answer(2, 2.0, 20, [1] * 20, " ".join("a" * 19), "rag")]


def test_both_ways_of_counting_by_hand():
    """Their baseline misses EOS (3 of 4, 19 of 20 tokens); they average rates, we divide totals."""
    found = figures(MINE, BASE, count)
    assert list(found) == ["overall", "qa", "rag"]
    overall = found["overall"]
    assert overall["theirs"] == {"mat": 4.0, "tok_per_s": 12.0, "base_tok_per_s": (1.5 + 9.5) / 2, "speedup": 12 / 5.5}
    assert overall["ours"] == {"mat": 4.0, "tok_per_s": 12.0, "base_tok_per_s": 6.0, "speedup": 2.0}
    assert overall["counted_alike"] == 12 / 6 and overall["base_tokens_lost"] == pytest.approx(2 / 24)
    assert overall["unseen"] == 0
    assert found["qa"]["theirs"]["speedup"] == pytest.approx(4 / 1.5) and found["qa"]["ours"]["speedup"] == 2.0
    text = table({"pld": found})
    assert "pld, overall" in text and "2.18" in text and "8.3 %" in text


def test_the_mean_of_rates_and_the_ratio_of_totals_differ():
    """H14: one question four times as fast with few tokens, one as slow as before with many."""
    mine = [answer(1, 1.0, 8, [8]), answer(2, 10.0, 100, [1] * 100)]
    base = [answer(1, 4.0, 8, [1] * 8, "a " * 8), answer(2, 10.0, 100, [1] * 100, "a " * 100)]
    found = figures(mine, base, count)["overall"]
    assert found["theirs"]["speedup"] == pytest.approx(9 / 6) and found["ours"]["speedup"] == pytest.approx(14 / 11)


def test_a_token_that_no_round_accounts_for_is_seen():
    mine = [answer(1, 1.0, 5, [3, 1]), answer(2, 1.0, 21, [5, 5, 5, 5], category="rag")]
    assert figures(mine, BASE, count)["overall"]["unseen"] == 1
    unknown = [answer(1, 1.0, 5, []), answer(2, 1.0, 21, [], category="rag")]
    found = figures(unknown, BASE, count)["overall"]
    assert found["unseen"] is None and found["ours"]["mat"] is None
    assert "-" in table({"hf": {"overall": found}})


def test_different_questions_are_not_compared():
    with pytest.raises(ValueError, match="different questions"):
        figures(MINE[:1], BASE, count)


GOOD = {"question_id": 1, "category": "qa", "turns": ["x"]}


@pytest.mark.parametrize(
    "change, said",
    [
        ({"question_id": "1"}, "question_id"),
        ({"question_id": True}, "question_id"),
        ({"turns": []}, "turns"),
        ({"turns": ["x", " "]}, "turns"),
        ({"turns": "x"}, "turns"),
        ({"category": "none"}, "'none'"),
    ],
)
def test_a_row_that_is_no_question_is_named(tmp_path, change, said):
    file = tmp_path / "q.jsonl"
    file.write_text(json.dumps(GOOD) + "\n" + json.dumps(GOOD | {"question_id": 2} | change) + "\n")
    for read in (read_questions, read_tasks):
        with pytest.raises(ValueError, match=f"line 2.*{said}"):
            read(file)


@pytest.mark.parametrize("text, said", [("{", "line 1"), ("[]", "line 1"), ("", "holds no"), ("\n\n", "holds no")])
def test_files_that_hold_something_else_are_refused(tmp_path, text, said):
    (tmp_path / "x.jsonl").write_text(text)
    for read in (read_questions, read_answers):
        with pytest.raises(ValueError, match=said):
            read(tmp_path / "x.jsonl")
    (tmp_path / "x.jsonl").write_text(json.dumps(GOOD) + "\n" + json.dumps(GOOD) + "\n")
    with pytest.raises(ValueError, match="twice"):
        read_questions(tmp_path / "x.jsonl")


@pytest.mark.parametrize(
    "change", [{"wall_time": [0.0]}, {"new_tokens": [4, 4]}, {"turns": "x"}, {"accept_lengths": 3}]
)
def test_a_damaged_answer_is_refused(tmp_path, change):
    row = MINE[0].row
    row["choices"][0] |= change
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    with pytest.raises(ValueError, match="line 1"):
        read_answers(tmp_path / "a.jsonl")


def test_tasks_take_whole_questions_in_turns():
    tasks = choose_tasks("some-pair", 12, 0, SMALL)
    assert Counter(task.group for task in tasks) == {**dict.fromkeys(GROUPS, 2), "mt_bench": 4}
    later = [(task, earlier) for earlier, task in zip(tasks, tasks[1:], strict=False) if task.before]
    assert len(later) == 2
    assert all(task.before == (earlier.prompt,) and task.question == earlier.question for task, earlier in later)
    assert len(choose_tasks("some-pair", 60, 0, SMALL)) == 70
    with pytest.raises(ValueError, match="holds 60 prompts, not 61"):
        choose_tasks("some-pair", 61, 0, SMALL)


TWO = Question(7, "math", ("Sam buys 3 pens. How many pens has Sam?", "Sam buys 2 pens. How many pens has Sam?"))
ONE = Question(8, "qa", ("Ann has 4 apples. How many apples has Ann?",))


def test_a_second_turn_follows_plain_decodings_answer(pair):
    first, second = turns(TWO)
    ids = decode(pair.target, pair.prompt(first.prompt), 12, stops=pair.stops).ids
    said = pair.tokenizer.decode(ids, skip_special_tokens=True).strip()
    roles = ("user", "assistant", "user")
    chat = [{"role": r, "content": t} for r, t in zip(roles, (first.prompt, said, second.prompt), strict=True)]
    known = {}
    assert prompt_of(pair, second, known, 12) == pair.chat(chat) and known == {TWO.turns[:1]: ids}
    assert prompt_of(pair, first, {}, 12) == pair.prompt(first.prompt)


def test_a_benchmark_gives_answers_in_the_format_and_both_figures(pair):
    tasks = [task for question in (TWO, ONE) for task in turns(question)]
    found = bench(pair, tasks, "pld,hf-generate", max_new_tokens=12, repeats=1, progress=False)
    label = next(name for name in found["answers"] if name.startswith("pld"))
    assert list(found["answers"]) == ["autoregressive", label, "hf-generate"]
    for name, rows in found["answers"].items():
        assert [(a.question_id, len(a.turns), a.model_id) for a in rows] == [
            (7, 2, f"pocket {name}"),
            (8, 1, f"pocket {name}"),
        ]
        assert [a.turns for a in rows] == [a.turns for a in found["answers"]["autoregressive"]]
    drafted = found["answers"][label][0]
    assert sum(drafted.accept_lengths) == sum(drafted.new_tokens) and len(drafted.accept_lengths) == sum(
        drafted.decoding_steps
    )
    both = found["specbench"][label]
    assert list(both) == ["overall", "mt_bench", "qa"] and both["overall"]["unseen"] == 0
    row = next(row for row in found["rows"] if row["method"] == "pld")
    assert both["overall"]["ours"]["speedup"] == pytest.approx(row["speedup"])
    assert both["overall"]["theirs"]["mat"] == pytest.approx(row["mat"])


def test_answers_are_the_first_repeats(pair):
    tasks = [task for question in (TWO, ONE) for task in turns(question)]
    arms = [SimpleNamespace(name=name, knobs={}) for name in ("autoregressive", "pld")]
    calls = [
        Call(arm, repeat, prompt, 1.0 + repeat, [5 + prompt] * (2 + repeat), None)
        for repeat in (0, 1) for arm in (0, 1) for prompt in (2, 1, 0)
    ]  # fmt: skip
    found = as_spec_bench(arms, calls, tasks, pair)["answers"]["pld"]
    assert [(a.question_id, a.new_tokens, a.wall_time) for a in found] == [(7, [2, 2], [1.0, 1.0]), (8, [2], [1.0])]
    assert found[0].turns == [pair.tokenizer.decode([5 + prompt] * 2).strip() for prompt in (0, 1)]


def test_the_command_writes_answers_and_refuses_what_it_cannot(tmp_path):
    write_rows(tmp_path / "q.jsonl", [ONE])
    arguments = ["bench", "--tasks", str(tmp_path / "q.jsonl"), "--n", "1", "--methods", "pld", "--repeats", "1"]
    arguments += ["--max-new-tokens", "6", "--answers"]
    done = CliRunner().invoke(app, [*arguments, str(tmp_path), "--json", str(tmp_path / "b.json")])
    assert done.exit_code == 0, done.output
    assert len(read_answers(tmp_path / "autoregressive.jsonl")) == 1
    assert len(read_answers(next(tmp_path.glob("pld-*.jsonl")))) == 1
    assert "Spec-Bench" in done.stdout
    written = json.loads((tmp_path / "b.json").read_text())
    assert "answers" not in written and written["specbench"]
    assert CliRunner().invoke(app, [*arguments, str(tmp_path / "none")]).exit_code == 2
    done = CliRunner().invoke(app, ["bench", "--n", "1", "--answers", str(tmp_path)])
    assert done.exit_code == 2 and "--tasks" in done.output
