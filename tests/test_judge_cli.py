"""`specdec judge`: from marked spans to a head that is found and used; what is refused; the label set's command.

Follows specdec_lib/cli/judge.py.
Left out: what the commands compute (test_judge_data.py, test_judge_train.py).
"""

import json

import pytest
from typer.testing import CliRunner

from specdec_lib import zoo
from specdec_lib.cli import app
from specdec_lib.judge import data
from specdec_lib.judge import head as head_file
from specdec_lib.judge.head import JudgeHead, head_of
from specdec_lib.judge.labels import read_labels
from specdec_lib.methods import build_method


@pytest.fixture
def run(pair, monkeypatch, tmp_path):
    """The command, on the pocket pair, with an empty cache and no shipped head."""
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(head_file, "data_folder", lambda: tmp_path / "nothing")
    monkeypatch.setattr(zoo, "load_pair", lambda name: pair)
    return lambda *arguments: CliRunner().invoke(app, ["judge", *map(str, arguments)])


@pytest.fixture
def spans(tmp_path):
    """Sums of which every second one ends with a wrong digit, marked as a span."""
    lines = []
    for i in range(24):
        said = f"so {10 + i} + 2 = {12 + i + i % 2}."
        wrong = [[len(said) - 2, len(said) - 1]] if i % 2 else []
        lines.append({"prompt": f"mia has {i} pens. how many?", "answer": said, "wrong": wrong})
    file = tmp_path / "own.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_marked_spans_become_a_head_that_is_found_and_used(run, spans, pair, tmp_path):
    with pytest.raises(ValueError, match="no judge head"):
        build_method("judge", pair)
    quality = tmp_path / "quality.json"
    done = run("train", "--labels", spans, "--held-out", spans, "--json", quality)
    assert done.exit_code == 0 and "12 of them wrong" in done.stdout and "wrote " in done.stderr, done.stderr
    (row,) = json.loads(quality.read_text())["rows"]
    assert row["wrong_trained_on"] == 12 and row["wrong"] == 12
    rule = build_method("judge", pair).verifier
    assert rule.head.weight.tolist() == head_of(pair).weight.tolist() and rule.head.made["labels"] == "own.jsonl"
    measured = run("eval", "--labels", spans)
    assert measured.exit_code == 0 and f"AUC, all tokens    {row['auc']:.3f}" in measured.stdout


def test_a_foreign_head_and_nothing_to_measure_are_refused(run, spans, pair, tmp_path):
    foreign = tmp_path / "foreign.safetensors"
    JudgeHead(pair.target.model.model.norm.weight.detach().clone(), 0.0, 12, "another").save(foreign)
    done = run("eval", "--head", foreign, "--labels", spans)
    assert done.exit_code != 0 and "made for another target" in done.stderr and done.stdout == ""
    done = run("eval")
    assert done.exit_code == 2 and "nothing to measure" in done.stderr


def test_the_label_set_s_command_writes_what_can_be_read_again(run, pair, tmp_path, monkeypatch):
    monkeypatch.setattr(
        data, "_decoded", lambda pair, writer, tasks, seed: [data._by_world(pair, task, 7, seed) for task in tasks]
    )
    file = tmp_path / "set.jsonl.gz"
    done = run("data", file, "--questions", 2)
    assert done.exit_code == 0, done.stderr
    answers = read_labels(file, pair)
    assert "corrupted" in done.stdout and done.stdout.splitlines()[-1].split()[1] == str(len(answers))
