"""A target that never read a slip put right, beside one that did: their recipes, their figures, and what is compared.
Follows specdec_lib/judge/correction.py and CORRECTION of specdec_lib/pocket/train.py.
Left out: training the models themselves (an hour), and the other stages (test_judge_train.py).
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from specdec_lib.cli import app
from specdec_lib.experiments.base import Rows
from specdec_lib.judge import correction, stages
from specdec_lib.judge.correction import ARMS, put_right
from specdec_lib.judge.labels import LabelledAnswer, read_labels, write_labels
from specdec_lib.judge.train import auc, auc_gain_interval, auc_interval, fit_and_measure
from specdec_lib.pocket.tokenizer import build_tokenizer, world_ids, world_tokens
from specdec_lib.pocket.train import CORRECTION, documents
from specdec_lib.pocket.world import DRILL, MARKERS
from specdec_lib.zoo import data_folder

HELD_OUT = data_folder() / "judge" / "labels-pocket-validation.jsonl.gz"


def test_the_two_targets_differ_in_their_text_alone():
    for name, recipe in CORRECTION.items():
        arm, _, seed = name.rpartition("-")
        assert (recipe.style, recipe.seed, recipe.start_from) == (arm, int(seed), None)
        other = CORRECTION[f"{ARMS[1 - ARMS.index(arm)]}-{seed}"]
        assert replace(recipe, style=other.style) == other


def test_only_one_of_them_reads_slips_that_are_put_right():
    tokenizer = build_tokenizer()
    shares = {}
    for arm in ARMS:
        read = [world_tokens(tokenizer, doc.ids) for doc in documents(tokenizer, arm, 240, "seed", drill_every=2)]
        drills = [tokens for tokens in read if DRILL.split()[0] in " ".join(tokens[:3])]
        taken_back = [any(marker in tokens for marker in MARKERS) for tokens in read]
        shares[arm] = sum(taken_back) / len(read)
        assert len(drills) >= 100
    assert shares["uncorrected"] == 0 and shares["corrected"] > 0.6


def test_what_one_score_has_over_another_by_hand():
    """Four answers of a right and a wrong token each: told apart by the first score, and never by the second."""
    right, answer = [1, 0] * 4, [i // 2 for i in range(8)]
    mine, theirs = [1.0, 0.0] * 4, [0.0, 1.0] * 4
    assert auc_gain_interval(mine, theirs, right, answer) == [1.0, 1.0]
    assert auc_gain_interval(theirs, mine, right, answer) == [-1.0, -1.0]
    assert auc_gain_interval(mine, mine, right, answer) == [0.0, 0.0]
    assert auc_gain_interval([], [], [], []) is None


def test_the_gain_is_paired_and_so_less_wide_than_two_intervals_apart():
    generator = torch.Generator().manual_seed(3)
    right = (torch.rand(400, generator=generator) < 0.5).numpy()
    base = right + torch.randn(400, generator=generator).numpy()
    better, answer = base + 0.3 * right, [i // 4 for i in range(400)]
    low, high = auc_gain_interval(better, base, right, answer)
    gain = auc(better, right) - auc(base, right)
    assert 0 < low < gain < high
    assert auc_gain_interval(base, base, right, answer) == [0.0, 0.0], "the same answers are drawn for both"
    own = [auc_interval(scores, right, answer) for scores in (better, base)]
    assert own[0][0] < own[1][1], "apart, the two cannot be told from each other"


def puts_back(tokenizer, after, comma=0.5, marker=0.4):
    """A model that says a comma with a chance behind these tokens, and then each marker with another; else end."""
    comma_id, *markers = world_ids(tokenizer, [",", *MARKERS])
    after = set(world_ids(tokenizer, after))

    def model(input_ids, use_cache):
        laws = torch.full((*input_ids.shape, len(tokenizer)), 1e-12, dtype=torch.float64)
        for i, token in enumerate(input_ids[0].tolist()):
            laws[0, i, tokenizer.eos_token_id] = 1.0
            if token in after:
                laws[0, i, comma_id], laws[0, i, tokenizer.eos_token_id] = comma, 1 - comma
            elif token == comma_id:
                laws[0, i, markers], laws[0, i, tokenizer.eos_token_id] = marker, 1 - 2 * marker
        return SimpleNamespace(logits=laws.log())

    target = SimpleNamespace(model=model, device=torch.device("cpu"))
    return SimpleNamespace(target=target, tokenizer=tokenizer, prompt=lambda text: tokenizer(text)["input_ids"])


def test_how_often_a_digit_is_taken_back_by_hand():
    """After a 7, comma .5 and then one of two markers at .4 each: .4. The right 12 before it ends in 2, never 7."""
    tokenizer = build_tokenizer()

    def answer(text, wrong):
        ids = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
        marks = "".join("-" if i == wrong else "a" if wrong is not None and i > wrong else "+" for i in range(len(ids)))
        return LabelledAnswer("mia has 3 pens.", ids, marks)

    slipped = answer("so 12 + 5 = 7.", 6)
    assert tokenizer.decode([slipped.ids[6]]).strip() == "7"
    pair = puts_back(tokenizer, [" 7", "7"])
    # The last right digit that ends its number is the 5; an answer without a wrong digit counts nothing.
    assert put_right(pair, [slipped, answer("so 12 + 5 = 17.", None)]) == pytest.approx((0.4, 0.0), abs=1e-9)
    pair = puts_back(tokenizer, [" 7", "7", " 5"], comma=0.2)
    assert put_right(pair, [slipped]) == pytest.approx((0.16, 0.16), abs=1e-9)
    with pytest.raises(ValueError, match="no answer holds a wrong digit"):
        put_right(pair, [answer("so 12 + 5 = 17.", None)])


def test_an_arm_is_measured_with_its_own_weights_and_a_row_once(pair, tmp_path, monkeypatch):
    """The shipped target and draft in the arms' places."""
    monkeypatch.setattr(correction, "CORRECTION", {"corrected-7": None, "uncorrected-7": None})
    monkeypatch.setattr(correction, "greedy_accuracy", lambda model, tokenizer, n: (0.5, 0.25))
    (tmp_path / "corrected-7").mkdir()
    (tmp_path / "corrected-7" / "model").symlink_to(data_folder() / "pocket" / "target")
    file, test = tmp_path / "labels.jsonl", tmp_path / "test.jsonl"
    answers = read_labels(HELD_OUT, pair)
    for where, some in ((file, answers[:80]), (test, answers[80:160])):
        write_labels(where, some, pair, {})
    rows = Rows(tmp_path / "rows.json", {"arguments": {}, "seed": None, "checksums": None})
    with pytest.raises(FileNotFoundError, match="pocket.train uncorrected-7 --work"):
        correction.correction(tmp_path, file, test, rows)
    (tmp_path / "uncorrected-7").mkdir()
    (tmp_path / "uncorrected-7" / "model").symlink_to(data_folder() / "pocket" / "draft")
    (row,) = correction.correction(tmp_path, file, test, rows)
    assert [row[arm]["target"] for arm in ARMS] == [pair.checksums["target"], pair.checksums["draft"]]
    _, figures = fit_and_measure(pair, *(read_labels(where, pair) for where in (file, test)))
    assert row["corrected"]["auc"] == figures["auc"] and row["corrected"]["accuracy"] == 0.5
    for part in correction.PARTS:
        assert row[f"{part}_gain"] == row["corrected"][part] - row["uncorrected"][part]
        low, high = row[f"{part}_gain_interval"]
        assert low <= row[f"{part}_gain"] <= high and row[f"{part}_gain"] != 0
    monkeypatch.setattr(stages, "load_custom", lambda *models: pytest.fail("measured again"))
    assert correction.correction(tmp_path, file, test, rows) == [row]
    lines = correction.table([row]).splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["corrected-7", "uncorrected-7"]
    assert f"{row['auc_gain']:+.3f}" in lines[3]


def test_the_command_says_what_to_train_first(tmp_path):
    arguments = ["--labels", HELD_OUT, "--held-out", HELD_OUT, "--work", tmp_path, "--json", tmp_path / "c.json"]
    done = CliRunner().invoke(app, ["judge", "correction", *map(str, arguments)])
    assert done.exit_code == 2 and "specdec_lib.pocket.train corrected-21" in done.stderr
    assert not (tmp_path / "c.json").exists()
