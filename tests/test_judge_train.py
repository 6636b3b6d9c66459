"""Training a judge's head and saying how good it is; ablations, the choice of delta, the probe; the shipped heads.
Follows specdec_lib/judge/train.py, ablate.py, tune.py and react.py.
Left out: the label set (test_judge_data.py) and the rule (test_judge.py).
"""

import dataclasses
import json
import math

import pytest
import torch

from specdec_lib.experiments.base import Rows
from specdec_lib.judge import ablate, react, stages, train, tune
from specdec_lib.judge.features import Features
from specdec_lib.judge.head import JudgeHead, head_of
from specdec_lib.judge.labels import LabelledAnswer, read_labels, write_labels
from specdec_lib.judge.picture import draw_training
from specdec_lib.judge.train import Settings, auc, auc_interval, calibration_error, fit, reliability, used
from specdec_lib.zoo import data_folder, load_pair

LABELS = data_folder() / "judge" / "labels-pocket.jsonl.gz"
HELD_OUT = data_folder() / "judge" / "labels-pocket-validation.jsonl.gz"


def planted(n=600, width=6, seed=0):
    """Hidden states and labels that a linear unit tells apart, but for noise."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(n, width, generator=generator) * 3 + 1
    logits = 2 * hidden[:, 0] - hidden[:, 1] + 1
    return hidden, torch.rand(n, generator=generator) < torch.sigmoid(logits)


# ---- figures by hand -------------------------------------------------------------------------------------------


def test_auc_by_hand():
    """Right .9 .4 .4, wrong .1 .4: of six pairs three are won and two are ties, so with .9 over both: 4 + 1 of 6."""
    assert auc([0.9, 0.4, 0.4, 0.1, 0.4], [1, 1, 1, 0, 0]) == pytest.approx(5 / 6)
    assert auc([1, 2], [1, 0]) == 0 and auc([2, 1], [1, 0]) == 1 and auc([1, 1], [1, 0]) == 0.5
    assert auc([3.0], [1]) is None and auc([], []) is None


def test_weights_count_tokens_as_often():
    scores, right, weights = [0.9, 0.4, 0.2, 0.5], [1, 1, 0, 0], [1, 3, 2, 0]
    repeated = [(s, r) for s, r, w in zip(scores, right, weights, strict=True) for _ in range(w)]
    assert auc(scores, right, weights) == pytest.approx(auc(*zip(*repeated, strict=True)))


def test_the_interval_draws_whole_answers():
    """Two answers, one told apart and one not: the interval is everything; many equal answers have none at all."""
    scores, right = [1.0, 0.0, 0.0, 1.0], [1, 0, 1, 0]
    assert auc_interval(scores, right, [0, 0, 1, 1]) == [0.0, 1.0]
    assert auc_interval([1.0, 0.0] * 9, [1, 0] * 9, [i // 2 for i in range(18)]) == [1.0, 1.0]
    assert auc_interval([], [], []) is None


def test_reliability_and_calibration_error_by_hand():
    rows = reliability([0.05, 0.15, 0.95, 1.0], [0, 1, 1, 1])
    assert [row["n"] for row in rows] == [1, 1, 2]
    assert [row["right"] for row in rows] == [0, 1, 1]
    assert calibration_error(rows) == pytest.approx((0.05 + 0.85 + 2 * 0.025) / 4)


def test_marks_as_labels():
    chosen, right = used("+-.ca+")
    assert chosen.tolist() == [True, True, False, False, False, True] and right.tolist() == [True, False, True]
    chosen, right = used("+-.ca", wrong="-ac")
    assert chosen.tolist() == [True, True, False, True, True] and right.tolist() == [True, False, False, False]


# ---- the fit ---------------------------------------------------------------------------------------------------


def test_without_anything_to_learn_the_bias_is_the_log_odds_of_the_weighted_classes():
    hidden, right = torch.zeros(40, 3), torch.tensor([True] * 30 + [False] * 10)
    for balance, odds in ((None, 3.0), (1.0, 1.0), (0.5, 2.0)):
        weight, bias = fit(hidden, right, Settings(balance=balance))
        assert bias == pytest.approx(math.log(odds), abs=1e-5) and not weight.any()


def test_the_fit_is_where_the_gradient_is_zero():
    hidden, right = planted()
    weight, bias = fit(hidden, right, Settings(l2=0.0, balance=None))
    wrong_by = torch.sigmoid(hidden.double() @ weight + bias) - right.double()
    assert abs(wrong_by.mean()) < 1e-5 and (wrong_by @ hidden.double() / len(right)).abs().max() < 1e-4
    assert weight[0] / weight[1] == pytest.approx(-2, abs=0.5)


def test_the_same_numbers_give_the_same_head_and_units_do_not_matter():
    hidden, right = planted()
    first, second = fit(hidden, right, Settings()), fit(hidden, right, Settings())
    assert torch.equal(first[0], second[0]) and first[1] == second[1]
    scale, shift = torch.tensor([1e3, 1e-3, 1, 1, 1, 1]), torch.tensor([5.0, 0, 0, 0, 0, -7])
    moved = hidden.double() * scale + shift
    weight, bias = fit(moved, right, Settings())
    assert torch.allclose(moved @ weight + bias, hidden.double() @ first[0] + first[1], atol=1e-4)


def test_more_l2_makes_smaller_weights_and_balance_lowers_scores():
    hidden, right = planted()
    right |= torch.rand(len(right), generator=torch.Generator().manual_seed(1)) < 0.8
    sizes = [fit(hidden, right, Settings(l2=l2))[0].norm() for l2 in (0.0, 0.1, 10.0)]
    assert sizes[0] > sizes[1] > sizes[2]
    means = [(hidden.double() @ w + b).mean() for w, b in (fit(hidden, right, Settings(balance=x)) for x in (None, 1))]
    assert means[0] > means[1]


@pytest.mark.parametrize("right", [torch.ones(9, dtype=torch.bool), torch.zeros(9, dtype=torch.bool)])
def test_one_class_alone_is_refused(right):
    with pytest.raises(ValueError, match="right and from wrong"):
        fit(torch.randn(9, 2), right, Settings())


def labelled(pair, n):
    """Sums with a wrong digit in every second one, as labelled answers."""
    found = []
    for i in range(n):
        said = (12 + i % 60) + (i % 2)
        ids = pair.tokenizer(f"so {10 + i % 60} + 2 = {said}.", add_special_tokens=False)["input_ids"]
        marks = "+" * len(ids) if i % 2 == 0 else "+" * (len(ids) - 2) + "-a"
        found.append(LabelledAnswer(f"mia has {i} pens. how many pens does mia have?", tuple(ids), marks))
    return found


def test_what_is_measured_was_not_trained_on(pair, monkeypatch):
    answers, seen = labelled(pair, 24), []
    fitted = train.fit

    def noting(hidden, right, settings):
        seen.append(len(right))
        return fitted(hidden, right, settings)

    monkeypatch.setattr(train, "fit", noting)
    held = [a for a in answers if train.is_held_out(a.prompt)]
    counts = [sum(mark in "+-" for a in part for mark in a.marks) for part in (answers, held)]
    head, figures = train.fit_and_measure(pair, answers, made={"labels": "here"})
    assert 0 < counts[1] < counts[0]
    assert figures["tokens"] == counts[1] and seen == [counts[0] - counts[1], counts[0]]
    assert figures["trained_on"] == counts[0] and head.made["labels"] == "here"
    assert head.layer == 12 and head.width == 192 and head.target == pair.checksums["target"]
    assert f"trained on {counts[0]} tokens" in train.described(figures)
    again, figures = train.fit_and_measure(pair, answers, test=held)
    assert torch.equal(again.weight, head.weight) and figures["tokens"] == counts[1]
    assert json.loads(json.dumps(head.made)) == head.made


def test_layer_0_is_layer_0_and_no_layer_the_last(pair):
    answers = labelled(pair, 4)
    for layer, read in ((0, 0), (None, 12)):
        head, _ = train.fit_and_measure(pair, answers, answers, settings=Settings(layer=layer))
        assert head.layer == read


def test_about_a_fifth_of_all_prompts_is_held_out():
    share = sum(train.is_held_out(f"question {i}") for i in range(2000)) / 2000
    assert abs(share - 0.2) < 0.03


# ---- ablations -------------------------------------------------------------------------------------------------


@pytest.fixture
def made_up(pair):
    """A bench whose hidden states are drawn: layer 12 tells right from wrong, the others do not."""

    def features(seed):
        generator = torch.Generator().manual_seed(seed)
        n, marks = 400, "+++-"
        hidden = {layer: torch.randn(n, 5, generator=generator) for layer in (4, 12)}
        right = torch.tensor([mark == "+" for mark in marks * 100])
        hidden[12][:, 0] += 3.0 * right
        ids = torch.tensor(pair.tokenizer.convert_tokens_to_ids(["1", "\u2581so"])).repeat(200)
        return Features(hidden, marks * 99 + "+-ca", torch.arange(n) // 4, ids, torch.zeros(n))

    prompts = [f"question {i // 2}" for i in range(100)]
    return ablate.Bench(pair, features(0), features(1), prompts, ["draft", "world"] * 50)


def test_every_ablation_has_a_row_and_those_that_are_there_are_not_made_again(made_up, tmp_path):
    file, origin = tmp_path / "rows.json", {"arguments": {}, "seed": None, "checksums": {}}
    rows = ablate.run(made_up, Rows(file, origin))
    by = {(row["changed"], row["to"]): row for row in rows}
    plain = by["as trained", ""]
    assert plain["auc"] > 0.95 > 0.7 > by["layer", "4 of 12"]["auc"]
    assert by["head", "MLP, 32 units"]["auc"] > 0.9
    assert by["questions", "50"]["trained_on"] == by["as trained", ""]["trained_on"] == 398
    assert by["writer left out", "draft"]["trained_on"] == 198
    assert by["tokens after an error", "wrong"]["wrong_trained_on"] == plain["wrong_trained_on"] + 2
    assert by["tokens after an error", "right"]["trained_on"] == 400
    assert len(by) == len(rows) and len(ablate.table(rows).splitlines()) == len(rows) + 1
    made_up.linear = lambda *a, **k: pytest.fail("measured again")
    kept = json.loads(file.read_text())["rows"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ablate, "_mlp", made_up.linear)
        assert ablate.run(made_up, Rows(file, origin)) == kept


def test_right_tokens_kept_where_one_wrong_in_twenty_is():
    logits = torch.tensor([*range(20), 18.5, 10.0, 100.0])
    marks = "-" * 20 + "+++"
    assert ablate.right_kept(logits, marks) == pytest.approx(2 / 3)  # 18.05 is exceeded by one wrong token of twenty


def test_the_picture_has_a_mark_an_ablation_and_kind_of_token_and_a_point_a_bin():
    row = {"changed": "L2", "to": "0", "auc": 0.8, "auc_interval": [0.7, 0.9]}
    row |= {"auc_digits": 0.7, "auc_digits_interval": [0.6, 0.8]}
    rows = [row, row | {"auc": 0.9, "auc_digits": None}, row | {"changed": "writer left out"}]
    bins = [{"n": 9, "score": 0.1, "right": 0.5}, {"n": 1, "score": 0.9, "right": 1.0}]
    left, right = draw_training(rows, {"reliability": bins, "calibration_error": 0.37}).axes
    assert [c.lines[0].get_xdata()[0] for c in left.containers] == [0.8, 0.9, 0.7]
    assert [c.lines[0].get_ydata()[0] for c in left.containers] == [0, 1, 0.3] and len(left.get_yticks()) == 2
    (ends,) = left.containers[0].lines[2]
    assert ends.get_segments()[0][:, 0].tolist() == pytest.approx([0.7, 0.9])
    (head,) = [line for line in right.get_lines() if line.get_label() == "the head"]
    assert head.get_xydata().tolist() == [[0.1, 0.5], [0.9, 1.0]] and "0.37" in right.get_title()


# ---- stages ----------------------------------------------------------------------------------------------------


def test_a_stage_is_measured_with_its_own_weights_and_once(pair, tmp_path):
    """Two stages: the shipped target, and the draft in its place. A third one is missing, and nothing is measured."""
    for name, weights in (("early", "draft"), ("late", "target")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model").symlink_to(data_folder() / "pocket" / weights)
    file = tmp_path / "labels.jsonl"
    write_labels(file, labelled(pair, 24), pair, {})
    answers = read_labels(file, pair)
    rows = Rows(tmp_path / "rows.json", {"arguments": {}, "seed": None, "checksums": None})
    with pytest.raises(FileNotFoundError, match="later.*holds no finished model; train it"):
        stages.stages(tmp_path, file, file, rows, ("early", "later"))
    assert not rows.rows
    early, late = stages.stages(tmp_path, file, file, rows, ("early", "late"))
    assert (early["stage"], early["target"]) == ("early", pair.checksums["draft"])
    assert (late["stage"], late["target"]) == ("late", pair.checksums["target"])
    _, figures = train.fit_and_measure(pair, answers, answers)
    del figures["reliability"]
    assert {name: late[name] for name in figures} == figures != {name: early[name] for name in figures}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stages, "load_custom", lambda *models: pytest.fail("measured again"))
        assert stages.stages(tmp_path, file, file, rows, ("early", "late")) == [early, late]
    assert stages.table([early, late]).splitlines()[2].split()[0] == "late"


# ---- delta -----------------------------------------------------------------------------------------------------


def test_the_delta_chosen_keeps_most_among_those_that_lose_at_most_three_quarters_of_a_point():
    def row(delta, kept, loss):
        return {"delta": delta, "kept": kept, "accuracy_minus_target": -loss}

    rows = [row(0.3, 7.5, 0.02), row(0.5, 7.2, 0.0075), row(0.9, 6.0, 0.0), row(1.0, 2.3, 0.0)]
    assert tune.chosen_delta(rows) == 0.5
    assert tune.chosen_delta([rows[0], rows[3]]) == 1.0


def test_delta_in_the_loop_ends_with_the_standard_rule_and_less_is_kept_as_it_grows(pair):
    head = JudgeHead(torch.zeros(192), 0.0, 12, pair.checksums["target"])  # score .5 for everything
    low, standard = tune.in_the_loop(pair, head, 3, deltas=[0.4])
    assert (low["delta"], standard["delta"]) == (0.4, 1.0)
    assert low["kept"] > 2 * standard["kept"] and standard["accuracy_minus_target"] == 0
    assert low["kept_interval"][0] <= low["kept"] <= low["kept_interval"][1]
    assert len(tune.table([low, standard]).splitlines()) == 3


# ---- the probe -------------------------------------------------------------------------------------------------


def test_bundled_questions_come_in_kinds_whose_answers_differ():
    questions = react.read_questions()
    assert len({q.question for q in questions}) == len(questions) >= 40
    for kind in {q.kind for q in questions}:
        answers = [q.answer for q in questions if q.kind == kind]
        assert len(set(answers)) == len(answers) >= 2, kind


def test_two_of_a_kind_are_paired_and_one_left_over_is_left_out():
    known = [(react.Question(kind, str(i), str(i)), "") for i, kind in enumerate("abaab")]
    assert [[q.question for q, _ in two] for two in react.in_pairs(known)] == [["0", "2"], ["1", "4"]]


def test_the_probe_labels_the_exchanged_word_and_never_trains_on_its_own_pair(pair, monkeypatch):
    questions = [react.Question("sum", f"mia has {i} pens. how many?", str(i)) for i in range(1, 9)]
    monkeypatch.setattr(react, "_beginning", lambda pair, question: "so")
    sizes = []
    fitted = react.fit

    def noting(hidden, right, settings):
        sizes.append((len(right), int(right.sum())))
        return fitted(hidden, right, settings)

    monkeypatch.setattr(react, "fit", noting)
    result = react.react(pair, questions)
    assert set(sizes) == {(12, 6)} and result["known"] == [q.question for q in questions]
    assert [row["layer"] for row in result["rows"]] == [None, 0, 2, 4, 6, 8, 10, 12]
    assert result["rows"][1]["told_apart"] == 0  # the embedding of a word does not know its question
    assert all(row["answers"] == 8 for row in result["rows"])
    two = react._answers(pair, [(questions[0], "so "), (questions[1], "so ")])
    assert [(pair.text(a.ids).strip(), a.marks) for a in two] == [
        ("so 1", ".+"), ("so 2", ".-"), ("so 2", ".+"), ("so 1", ".-"),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="at least 4"):
        react.react(pair, questions[:6])


def test_questions_of_another_form_are_refused(tmp_path):
    (tmp_path / "q.jsonl").write_text('{"question": "x"}\n')
    with pytest.raises(ValueError, match=r"q\.jsonl"):
        react.read_questions(tmp_path / "q.jsonl")


# ---- the shipped heads -----------------------------------------------------------------------------------------


def test_the_shipped_head_s_quality_is_had_again_from_the_shipped_labels(pair):
    """On every third held-out answer; the interval of an AUC reaches some .02 to either side there."""
    head = head_of(pair)
    answers = read_labels(HELD_OUT, pair)[::3]
    figures = train.measured(pair, head, answers)
    assert figures["wrong"] >= 100
    assert figures["auc"] == pytest.approx(head.made["quality"]["auc"], abs=0.03)
    assert head.made["label_set"]["checksums"]["target"] == pair.checksums["target"]


@pytest.mark.parametrize("name", ["pocket", "pocket-uniform"])
def test_both_pocket_pairs_have_a_head_in_data_with_its_sum(name):
    models = load_pair(name)
    file = data_folder() / "pocket" / ("judge.safetensors" if name == "pocket" else "judge-uniform.safetensors")
    head = JudgeHead.load(file)
    assert head.target == models.checksums["target"]
    assert file.name in (data_folder() / "pocket" / "SHA256SUMS").read_text()
    assert dataclasses.asdict(Settings()).keys() == head.made["settings"].keys()


def test_the_shipped_judge_keeps_more_than_twice_the_standard_rule_s_tokens(pair):
    """20 validation problems at the pair's delta: a small check that the file does its work, not a measurement."""
    from specdec_lib.methods import build_method

    delta = build_method("judge", pair).knobs["delta"]
    judged, standard = tune.in_the_loop(pair, head_of(pair), 20, deltas=[delta])
    assert judged["kept"] > 2 * standard["kept"]
    assert judged["accuracy_minus_target"] >= -0.1
