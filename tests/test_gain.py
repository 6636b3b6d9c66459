"""The gain of block verification: the paired figure equals the enumerated one, and the pocket pair gains.
Follows specdec_lib/gain.py.
Left out: the rule itself (test_block.py).
"""

import json
import random

import pytest
from laws import near
from test_block import BLOCK, TOKEN, mean_kept
from typer.testing import CliRunner

from specdec_lib import zoo
from specdec_lib.cli import app
from specdec_lib.decode import Stops
from specdec_lib.drafters import ModelDrafter
from specdec_lib.gain import block_gain
from specdec_lib.model import TableModel
from specdec_lib.pocket.tokenizer import prompt_ids
from specdec_lib.pocket.world import problems
from specdec_lib.stats import ratio_interval
from specdec_lib.zoo import Pair


def test_the_means_are_the_enumerated_ones():
    """Constant laws, so that every round is alike: 10/9 and 11/9 kept in the paper's example."""
    p, q = [1 / 3, 2 / 3], [2 / 3, 1 / 3]
    pair = Pair("toy", TableModel.constant(p), TableModel.constant(q), None, Stops(), {})
    found = block_gain(pair, [[0]] * 40, gamma=2, max_new_tokens=60)
    assert found["kept_lossless"] == pytest.approx(10 / 9, abs=0.06)
    assert found["kept_block"] == pytest.approx(11 / 9, abs=0.06)
    assert found["gain_interval"][0] < 0.1 < found["gain_interval"][1]
    drafter = ModelDrafter(TableModel.constant(q), 2)
    by_rule = [mean_kept(TableModel.constant(p), drafter, rule) for rule in (BLOCK, TOKEN)]
    assert by_rule[0] / by_rule[1] - 1 == pytest.approx(0.1)


def test_the_pocket_pair_does_not_lose(pair):
    """A few texts at temperature 1: the gain is small, so its interval may reach below 0, but not lie there."""
    prompts = [prompt_ids(pair.tokenizer, problem.question) for problem in problems("test", 5, seed=3)]
    found = block_gain(pair, prompts, gamma=8, max_new_tokens=60)
    assert found["rounds"] >= 5 * 60 / 9
    assert 0 < found["kept_lossless"] < 8 and 0 < found["kept_block"] < 8
    low, high = found["gain_interval"]
    assert low <= found["gain"] == pytest.approx(found["kept_block"] / found["kept_lossless"] - 1)
    assert 0 < high < 0.5


def test_temperature_0_and_too_few_texts_are_refused():
    target = TableModel.random(4, 1)
    pair = Pair("toy", target, near(target, 2), None, Stops(), {})
    with pytest.raises(ValueError, match="temperature"):
        block_gain(pair, [[0]], 2, 10, temperature=0)
    with pytest.raises(ValueError, match="two or more pairs"):
        block_gain(pair, [[0]], 2, 10)


def test_the_interval_of_a_ratio_covers_it():
    """Paired items: 95 % of the intervals hold the true ratio, give or take four standard errors of 200 trials."""
    rng = random.Random(0)
    held = 0
    for trial in range(200):
        below = [rng.uniform(1, 3) for _ in range(40)]
        above = [b * rng.uniform(0.8, 1.6) for b in below]
        low, high = ratio_interval(above, below, seed=trial, resamples=400)
        held += low <= 1.2 <= high
    assert 0.88 <= held / 200 <= 1.0
    assert ratio_interval([2.0, 4.0], [1.0, 2.0]) == (2.0, 2.0)


def test_the_command_prints_and_writes_the_figures(pair, monkeypatch, tmp_path):
    monkeypatch.setattr(zoo, "load_pair", lambda name: pair)
    file = tmp_path / "gain.json"
    done = CliRunner().invoke(
        app, ["gain", "--n", "2", "--gamma", "4", "--max-new-tokens", "20", "--json", str(file)]
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    written = json.loads(file.read_text())
    kept = {row["method"]: row["kept"] for row in written["rows"]}
    assert kept.keys() == {"lossless", "block"}
    assert written["gain"] == pytest.approx(kept["block"] / kept["lossless"] - 1)
    assert written["provenance"]["arguments"]["gamma"] == 4
    assert f"{kept['block']:.3f} kept of 4 drafts" in done.stdout
    low, high = written["gain_interval"]
    assert f"{100 * low:+.1f} to {100 * high:+.1f} %" in done.stdout
