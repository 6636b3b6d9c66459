"""Picking knobs: which row is chosen, what is said of it, what is measured and what is not measured twice.
Follows specdec_lib/knobs.py and cli/knobs.py.
Left out: the form of the file of settings (test_tuned.py), and what a method measures (test_experiments.py).
"""

import pytest
from typer.testing import CliRunner

from specdec_lib import cli, knobs, zoo
from specdec_lib.experiments import base
from specdec_lib.experiments.base import Lab
from specdec_lib.methods import METHODS
from specdec_lib.tuned import read_settings, settings_of

BASE = {"kept": 2.0, "accuracy": 0.9, "right": "1" * 9 + "0", "settings": {"gamma": 8}}


def row(kept, right, **settings):
    return {"kept": kept, "accuracy": right / 10, "right": "1" * right + "0" * (10 - right), "settings": settings}


def rows(judge, **others):
    return {"greedy": [BASE], "judge": judge, **others}


JUDGE = [row(4.0, 9, delta=0.9), row(6.0, 9, delta=0.7), row(7.0, 8, delta=0.5)]


def test_the_judge_keeps_most_among_those_that_lose_at_most_three_quarters_of_a_point():
    assert knobs.pick(rows(JUDGE))["judge"]["settings"] == {"delta": 0.7}
    better = [*JUDGE, row(6.5, 10, delta=0.6)]
    assert knobs.pick(rows(better))["judge"]["settings"] == {"delta": 0.6}


def test_where_every_delta_loses_more_the_judge_is_the_standard_rule():
    chosen = knobs.pick(rows([row(7.0, 8, delta=0.5)], topk=[row(2.4, 9, k=1), row(7.0, 7, k=2)]))
    assert chosen["judge"]["settings"] == {"delta": 1.0}
    assert chosen["topk"]["settings"] == {"k": 1}


def test_other_methods_sit_where_their_kept_comes_nearest_the_judges():
    topk = [row(2.0, 9, k=1), row(6.8, 7, k=2), row(7.2, 5, k=3)]
    lenience = [row(5.5, 8, lenience=0.1), row(6.5, 4, lenience=0.01)]
    chosen = knobs.pick(rows(JUDGE, topk=topk, lenience=lenience))
    assert chosen["topk"]["settings"] == {"k": 2}
    assert chosen["lenience"]["settings"] == {"lenience": 0.1}, "of two as near, the stricter"


def test_csd_is_picked_by_what_it_loses_and_not_by_what_the_judge_keeps():
    rate = [row(3.0, 8, tau=0.3), row(7.5, 8, tau=0.01)]
    chosen = knobs.pick(
        rows(JUDGE, csd=[row(3.0, 9, tau=0.3), row(7.2, 9, tau=0.1), row(7.5, 8, tau=0.01)], **{"csd-rate": rate})
    )
    assert chosen["csd"]["settings"] == {"tau": 0.1}
    assert chosen["csd-rate"]["settings"] == {"tau": 0.3}, "where all lose more, the strictest"


def test_what_is_written_says_how_it_was_picked(tmp_path):
    chosen = knobs.pick(rows(JUDGE, lenience=[row(5.5, 8, gamma=8, lenience=0.1)]))
    made = knobs.settings(chosen, 300, 1)
    assert made["judge"] == {
        "delta": 0.7,
        "picked": "keeps most at a loss of at most .75 points (kept 6.00, accuracy 90.0 %) "
        "on 300 validation problems, seed 1",
    }  # fmt: skip
    assert {k: v for k, v in made["lenience"].items() if k != "picked"} == {"lenience": 0.1}, "gamma is left out"
    assert made["cascade"]["alpha"] == 0.9 and (made["lossy"]["a"], made["lossy"]["b"]) == (0.1, 1.0)
    for name, table in made.items():
        assert set(table) - {"picked"} <= set(METHODS[name][1])
        assert "300 validation problems, seed 1" in table["picked"]


def test_ladders_go_from_strict_to_lax_in_knobs_that_exist():
    for name in knobs.LADDERS:
        if name in METHODS:
            for setting in knobs.LADDERS[name]:
                assert set(setting) <= set(METHODS[name][1])
    assert [setting["delta"] for setting in knobs.LADDERS["judge"]] == sorted(
        (setting["delta"] for setting in knobs.LADDERS["judge"]), reverse=True
    )


# ---- measured, on two problems ---------------------------------------------------------------------------------


def test_rows_are_of_validation_problems_and_are_not_measured_twice(pair, monkeypatch):
    asked = []
    monkeypatch.setattr(knobs, "LADDERS", {"topk": [{"k": 0}, {"k": 2}], "fly": [{"threshold": 0.0, "window": 0}]})
    monkeypatch.setattr(knobs, "problems", lambda *which: asked.append(which) or base.problems(*which))
    lab = Lab(pair, 2, 7)
    found, left_out = knobs.measure(lab, ["topk"])
    assert asked == [("validation", 2, 7)] and left_out == {}
    assert {name: [r["settings"] for r in rows] for name, rows in found.items()} == {
        "greedy": [{"gamma": 8}],
        "topk": [{"gamma": 8, "k": 0}, {"gamma": 8, "k": 2}],
    }
    assert found["topk"][0]["kept"] == found["greedy"][0]["kept"] < found["topk"][1]["kept"]
    monkeypatch.setattr(base, "answers", None)
    assert knobs.measure(lab, ["topk"])[0] == found


def test_a_method_without_a_ladder_is_named(pair):
    with pytest.raises(ValueError, match="nothing to pick for 'block'; choose among"):
        knobs.measure(Lab(pair, 2), ["topk", "block"])


def test_without_a_judge_there_is_nothing_to_compare_with(pair, monkeypatch):
    def built(text, pair):
        raise ValueError("no head for " + text.partition(":")[0])

    real = knobs.build_method
    monkeypatch.setattr(knobs, "build_method", lambda text, p: (built if "judge" in text else real)(text, p))
    with pytest.raises(ValueError, match="no head for judge"):
        knobs.measure(Lab(pair, 2))


# ---- the command -----------------------------------------------------------------------------------------------


@pytest.fixture
def run(pair, monkeypatch):
    monkeypatch.setattr(zoo, "load_pair", lambda name: zoo.pair_sources(name) and pair)
    return lambda *arguments: CliRunner().invoke(cli.app, ["knobs", *map(str, arguments)])


def test_the_command_writes_one_pairs_settings_and_leaves_the_others(run, monkeypatch, tmp_path):
    file = tmp_path / "knobs.toml"
    file.write_text(
        '[pocket.topk]\nk = 9\npicked = "x"\n[pocket.kl]\ntau = 3.0\npicked = "y"\n[other.topk]\nk = 4\npicked = "z"\n'
    )
    monkeypatch.setattr(knobs, "measure", lambda lab, asked: (rows(JUDGE, topk=[row(6.0, 7, gamma=8, k=3)]), {}))
    monkeypatch.setattr(knobs, "rules_table", lambda rows: "a table")
    result = run("--n", 10, "--seed", 3, "--settings", file)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "a table\npicked:\njudge:delta=0.7\ntopk:gamma=8,k=3\n"
    found = read_settings(file)
    assert found["other"] == {"topk": {"k": 4, "picked": "z"}}
    assert found["pocket"]["kl"] == {"tau": 3.0, "picked": "y"}
    assert found["pocket"]["topk"]["k"] == 3 and "10 validation problems, seed 3" in found["pocket"]["topk"]["picked"]
    assert settings_of("pocket", {name: entry[1] for name, entry in METHODS.items()}, file)["judge"] == {"delta": 0.7}


def test_bad_input_is_refused_before_anything_is_measured(run, monkeypatch, tmp_path):
    monkeypatch.setattr(knobs, "measure", None)
    (tmp_path / "broken.toml").write_text("[")
    for arguments, message in [
        (["--pair", "smollm2"], "takes a pocket pair; got smollm2"),
        (["--settings", tmp_path / "broken.toml"], "is not TOML"),
        (["--settings", tmp_path / "no" / "knobs.toml"], "its folder is not there"),
    ]:
        result = run(*arguments)
        assert result.exit_code == 2 and message in result.stderr, result.stderr
