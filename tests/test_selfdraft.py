"""A model as its own draft: all its layers agree with it, fewer agree less; predictions follow from what is measured.
Follows specdec_lib/selfdraft.py.
Left out: quantised drafts (test_quantise.py) and how fast anything is.
"""

import json

import pytest
from test_zoo import TEMPLATE, save
from tiny import llama
from typer.testing import CliRunner

from specdec_lib import cli, selfdraft
from specdec_lib.tasks import Task

PRESETS = """
tokens = 64
[pairs.tiny]
what = "a tiny model"
target = { model = "tiny" }
draft = { model = "tiny", layers = 1 }
device = "cpu"
[models.tiny]
folder = "tiny"
dtype = "float32"
licence = "none"
note = "made up"
"""


@pytest.fixture
def data(tmp_path, monkeypatch):
    (tmp_path / "presets.toml").write_text(PRESETS)
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts/chat.jsonl").write_text('{"prompt": "a b"}\n{"prompt": "c d e"}\n{"prompt": "f"}\n')
    save(tmp_path / "tiny", llama(seed=1, vocab=12, spread=0.1), template=TEMPLATE)
    monkeypatch.setenv("SPECDEC_DATA", str(tmp_path))
    return tmp_path


def test_all_layers_agree_and_one_layer_agrees_less(data):
    tasks = [Task(text, "all") for text in ("a b", "c d e", "f")]
    found = selfdraft.selfdraft("tiny", tasks, 0, 24, ["layers=2", "layers=1"], progress=False)
    every, one = found["rows"]
    assert every["alpha"] == pytest.approx(1, abs=1e-5) and every["greedy_accepted_over_tested"] == 1
    assert 0 < one["alpha"] < 1
    assert one["draft_bytes"] < every["draft_bytes"] and one["added_bytes"] == every["added_bytes"] == 0
    assert set(one["pass_s"]) == {str(k) for k in range(1, selfdraft.GAMMA + 2)}
    assert found["provenance"]["note"] == "made up" and found["provenance"]["arguments"]["pair"] == "tiny"


def test_predictions_are_theory_s_on_the_measured_times(data, monkeypatch):
    monkeypatch.setattr(selfdraft, "pass_times", lambda model, ks, *rest: {k: 1.0 for k in ks})
    monkeypatch.setattr(selfdraft, "draft_step_s", lambda *a: 0.1)
    (row,) = selfdraft.selfdraft("tiny", [Task("a b", "all")], 0, 19, ["layers=2"], progress=False)["rows"]
    assert row["best_gamma"] == row["greedy_best_gamma"] == selfdraft.GAMMA == 8
    assert row["predicted_speedup"] == pytest.approx(9 / (8 * 0.1 + 1), abs=1e-4)
    monkeypatch.setattr(selfdraft, "draft_step_s", lambda *a: 2.0)
    (row,) = selfdraft.selfdraft("tiny", [Task("a b", "all")], 0, 19, ["layers=2"], progress=False)["rows"]
    assert (row["best_gamma"], row["predicted_speedup"]) == (0, 1.0)  # a draft dearer than its target never pays


def test_the_drafts_unless_given_are_both_quantisations_and_three_depths(data):
    assert selfdraft._drafts("tiny") == ["nf4", "int8", "layers=1", "layers=2"]


def test_the_command_prints_a_line_a_draft_and_writes_rows(data, monkeypatch):
    monkeypatch.setattr(selfdraft, "_drafts", lambda name: ["layers=1"])
    file = data / "selfdraft.json"
    arguments = ["selfdraft", "--pair", "tiny", "--n", "2", "--max-new-tokens", "8", "--json", str(file)]
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 0, done.stderr
    assert "layers=1" in done.stdout and "made up" in done.stdout
    written = json.loads(file.read_text())
    assert [row["draft"] for row in written["rows"]] == ["layers=1"] and written["provenance"]["seed"] == 0


def test_an_unknown_draft_is_refused(data):
    with pytest.raises(ValueError, match="unknown self-draft 'half'; choose nf4, int8 or layers=N"):
        selfdraft.selfdraft("tiny", [Task("a", "all")], drafts=["half"], progress=False)
