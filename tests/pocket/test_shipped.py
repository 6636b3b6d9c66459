"""The shipped pocket models: whole, small, as good as their card says, and worth studying.

Follows data/pocket/ and specdec_lib/evaluate.py. Recorded figures are checked against what the lessons rely on, and a
few of them are measured again on other problems, within the width that so few problems allow.
Left out: times, which no test asserts.
"""

import json

import pytest

from specdec_lib.evaluate import evaluate, table
from specdec_lib.pocket.ship import card
from specdec_lib.pocket.tokenizer import build_tokenizer
from specdec_lib.zoo import data_folder, load_pair, recorded_checksum

POCKET = data_folder() / "pocket"


@pytest.fixture(scope="module")
def recorded() -> dict:
    return json.loads((POCKET / "eval.json").read_text())


@pytest.mark.parametrize("name", ["pocket", "pocket-uniform"])
def test_the_pair_loads_and_its_checksums_are_recorded(name):
    pair = load_pair(name)
    assert pair.checksums["draft"] == recorded_checksum(POCKET / "draft/model.safetensors")
    assert pair.tokenizer.get_vocab() == build_tokenizer().get_vocab()
    assert pair.target.vocab_size == len(pair.tokenizer) and pair.stops.eos_token_ids == {pair.tokenizer.eos_token_id}


def test_all_of_it_is_at_most_40_megabytes():
    assert sum(f.stat().st_size for f in POCKET.rglob("*") if f.is_file()) <= 40e6


def test_the_recorded_pair_is_worth_studying(recorded):
    target, draft = recorded["rows"]
    assert recorded["n"] == 500 and recorded["provenance"]["arguments"]["checksums"] == load_pair().checksums
    assert target["accuracy"] >= 0.98
    assert 0.60 <= draft["accuracy"] <= 0.85
    assert recorded["c"] <= 0.2
    assert 0.60 <= recorded["alpha"] <= 0.85
    assert 2.0 <= recorded["kept"] <= 2.7
    assert recorded["right_among_rejected"] >= 0.40
    assert recorded["answer_tokens"] >= 100


def test_greedy_lenience_cannot_double_kept_without_losing_five_points(recorded):
    standard = recorded["lenience_frontier"][0]
    assert standard["lenience"] == 1
    doubled = [p for p in recorded["lenience_frontier"] if p["kept"] >= 2 * standard["kept"]]
    assert doubled, "the knob was not turned far enough to see"
    assert all(p["accuracy"] < standard["accuracy"] - 0.05 for p in doubled)


def test_in_the_uniform_world_lenience_doubles_kept_and_loses_less_than_five_points():
    frontier = json.loads((POCKET / "eval-uniform.json").read_text())["lenience_frontier"]
    doubled = [p for p in frontier if p["kept"] >= 2 * frontier[0]["kept"]]
    assert max(p["accuracy"] for p in doubled) > frontier[0]["accuracy"] - 0.05


def test_a_new_measurement_on_other_problems_agrees(recorded, monkeypatch):
    monkeypatch.setattr("specdec_lib.evaluate.LENIENCES", (0.1,))
    monkeypatch.setattr("specdec_lib.evaluate.MOST_TIMED", 2)
    found = evaluate(load_pair(), 24, seed=99, progress=False)
    target, draft = found["rows"]
    assert target["accuracy"] >= 21 / 24  # below it with probability 0.001 at 98 %
    assert 0.35 <= draft["accuracy"] <= 0.95
    assert found["kept"] == pytest.approx(recorded["kept"], abs=0.35)
    assert found["alpha"] == pytest.approx(recorded["alpha"], abs=0.1)
    assert found["right_among_rejected"] == pytest.approx(recorded["right_among_rejected"], abs=0.15)
    assert found["lenience_frontier"][1]["kept"] > found["kept"]
    assert found["provenance"]["seed"] == 99 and "kept of 8" in table(found)


def test_evaluating_nothing_is_refused():
    with pytest.raises(ValueError, match="1 or more; got 0"):
        evaluate(load_pair(), 0, seed=1)


def test_the_card_is_what_was_recorded():
    assert (POCKET / "README.md").read_text() == card(POCKET)
