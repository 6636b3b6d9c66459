"""The experiments: rows that resume, figures computed by hand, what each run measures, and what its picture shows.

Follows specdec_lib/experiments/, cli/experiment.py and stats.paired_interval.
Left out: the rules, training, and the experiments on memories and retrieval, which have files of their own.
"""

import json
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from specdec_lib import zoo
from specdec_lib.cli import app
from specdec_lib.experiments import (
    NAMES,
    base,
    draft_lengths,
    errors,
    find,
    held_out,
    paired,
    pass_times,
    perfect_text,
    retrieval,
    swap,
    tradeoff,
    truncation,
)
from specdec_lib.experiments.base import Lab, Rows
from specdec_lib.experiments.retrieval_parts import drafters
from specdec_lib.judge.data import marked
from specdec_lib.judge.head import JudgeHead
from specdec_lib.judge.kind import Words
from specdec_lib.pocket.checker import AFTER, CORRECTED, RIGHT, WRONG, mark
from specdec_lib.pocket.tokenizer import world_ids
from specdec_lib.pocket.world import EOS, SLOTS, Style, problems, write_answer
from specdec_lib.sampling import RandomChance, SamplingSettings
from specdec_lib.scored import ScoredText, from_row, to_row
from specdec_lib.stats import paired_interval
from specdec_lib.trace import Round
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers import Scores
from specdec_lib.verifiers.judge import Judge

ORIGIN = {"arguments": {"experiment": "x", "n": 2}, "seed": 0, "checksums": {"target": "t"}}


def judge_of(pair, bias: float) -> JudgeHead:
    """A head that scores every token alike."""
    config = pair.target.model.config
    return JudgeHead(torch.zeros(config.hidden_size), bias, config.num_hidden_layers, pair.checksums["target"])


@pytest.fixture
def trusting(pair, monkeypatch, tmp_path):
    """The pair, with a judge that keeps everything as the only head there is."""
    (tmp_path / "heads").mkdir()
    judge_of(pair, 30.0).save(tmp_path / "heads" / "all.safetensors")
    monkeypatch.setattr("specdec_lib.judge.head.head_files", lambda: [*(tmp_path / "heads").glob("*.safetensors")])
    return pair


# ---- the paired interval ---------------------------------------------------------------------------------------


def test_the_paired_interval_by_hand():
    """30 gained, 10 lost, 60 alike: n 102, 30.5 and 10.5; (20 +- 1.96 sqrt(41 - 400 / 102)) / 102."""
    mine = [True] * 30 + [False] * 10 + [True] * 50 + [False] * 10
    theirs = [False] * 30 + [True] * 10 + [True] * 50 + [False] * 10
    assert paired_interval(mine, theirs) == pytest.approx((0.07907, 0.31308), abs=1e-5)
    assert paired_interval(theirs, mine) == pytest.approx((-0.31308, -0.07907), abs=1e-5)


def test_the_paired_interval_of_equal_outcomes_still_has_a_width_and_shrinks_with_n():
    few, many = (paired_interval([True] * n, [True] * n) for n in (10, 1000))
    assert few[0] < 0 < few[1] and few[1] > 10 * many[1] > 0
    assert paired_interval([True], [False])[1] <= 1


@pytest.mark.parametrize("rates", [(0.02, 0.01), (0.15, 0.03), (0.3, 0.3)])
def test_the_paired_interval_covers_the_true_difference(rates):
    """gained and lost shares as given: at least 93 % of 600 intervals hold the difference, and not 99.5 % of all."""
    rng, gained, lost = np.random.default_rng(1), *rates
    held = 0
    for _ in range(600):
        u = rng.random(400)
        mine, theirs = (u < gained) | (u > 0.7), ((u >= gained) & (u < gained + lost)) | (u > 0.7)
        low, high = paired_interval(mine, theirs)
        held += low <= gained - lost <= high
    assert 0.93 <= held / 600 <= 0.995


@pytest.mark.parametrize("pairs", [([], []), ([True], [True, False])])
def test_the_paired_interval_refuses_what_is_not_paired(pairs):
    with pytest.raises(ValueError, match="pairs"):
        paired_interval(*pairs)


# ---- rows ------------------------------------------------------------------------------------------------------


def test_a_stopped_run_goes_on_with_the_rows_that_are_whole(tmp_path):
    file, measured = tmp_path / "r.json", []

    def measure(name, stop=False):
        def run():
            if stop:
                raise KeyboardInterrupt
            measured.append(name)
            return {"value": name}

        return run

    rows = Rows(file, ORIGIN)
    rows.get("a", measure("a"))
    with pytest.raises(KeyboardInterrupt):
        rows.get("b", measure("b", stop=True))
    assert json.loads(file.read_text())["complete"] is False
    again = Rows(file, ORIGIN)
    assert again.get("a", measure("a again")) == {"key": "a", "value": "a"}
    assert again.get("b", measure("b"))["value"] == "b"
    assert measured == ["a", "b"]
    assert [row["key"] for row in json.loads(file.read_text())["rows"]] == ["a", "b"]


@pytest.mark.parametrize(
    "name, other", [("arguments", {"experiment": "x", "n": 3}), ("seed", 1), ("checksums", {"target": "u"})]
)
def test_a_file_of_another_run_is_refused(tmp_path, name, other):
    file = tmp_path / "r.json"
    Rows(file, ORIGIN).get("a", dict)
    with pytest.raises(ValueError, match=f"another run, its {name}"):
        Rows(file, ORIGIN | {name: other})
    assert Rows(file, ORIGIN).rows.keys() == {"a"}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": [], "provenance": {"seed": 0}}', '{"rows": 3'])
def test_a_file_that_is_no_result_is_refused_and_left_alone(tmp_path, text):
    file = tmp_path / "r.json"
    file.write_text(text)
    with pytest.raises(ValueError, match="no result of an experiment"):
        Rows(file, ORIGIN)
    assert file.read_text() == text


def test_rows_of_a_head_are_not_taken_for_those_of_another(pair):
    marks = {base.head_mark(Judge(judge_of(pair, bias))) for bias in (0.0, 0.0, 1.0)}
    assert len(marks) == 2 and all(mark.startswith("head=") for mark in marks)
    assert base.head_mark(swap.GreedyMatch()) == ""


# ---- the row of a rule -----------------------------------------------------------------------------------------


def answer(kept: list[int], right: bool, wrong: bool = False, finished: bool = True):
    """An Answer with a round for each number of kept tokens."""
    rounds = [Round([0] * 9, [], [], [], [], list(range(1, k + 1)), {}, [0] * (k + 1), "recovered") for k in kept]
    trace = SimpleNamespace(rounds=rounds, ids=[0] * sum(k + 1 for k in kept))
    return SimpleNamespace(
        trace=trace, marking=SimpleNamespace(final_right=right, any_wrong=wrong, finished=finished)
    )  # fmt: skip


def test_the_row_of_a_rule_by_hand():
    row = base.row_of([answer([8, 2], True), answer([0], False, wrong=True), answer([4, 4, 0], True, finished=False)])
    assert row["right"] == "101" and row["n"] == 3 and row["rounds"] == 6 and row["tokens"] == 24
    assert row["accuracy"] == pytest.approx(2 / 3) and row["any_wrong"] == pytest.approx(1 / 3)
    assert row["kept"] == pytest.approx(18 / 6) and row["mat"] == pytest.approx(24 / 6) and row["cut_off"] == 1
    low, high = row["kept_interval"]
    assert 0 <= low <= 3 <= high <= 5  # all of the worst problem, all of the best


def test_a_change_of_accuracy_is_over_the_same_problems():
    found = base.beside({"right": "1100"}, {"right": "1010"})
    assert found["accuracy_change"] == 0
    found = base.beside({"right": "1110"}, {"right": "1010"})
    assert found["accuracy_change"] == 0.25
    low, high = found["accuracy_change_interval"]
    assert low < 0.25 < high


def test_a_lab_needs_two_problems(pair):
    with pytest.raises(ValueError, match="2 or more; got 1"):
        Lab(pair, 1)


# ---- perfect text ----------------------------------------------------------------------------------------------


def writer(pair, problem, share=1.0, length=260, seed=0):
    made = perfect_text.PerfectWriter(problem, pair.tokenizer, length, share, random.Random(seed))
    made.start([0])
    return made


def style(share: float) -> Style:
    return Style(dict.fromkeys(SLOTS, share))


def test_a_perfect_writer_makes_every_right_beginning_a_right_answer(pair):
    rng = random.Random(0)
    for problem in problems("test", 12, 5):
        mine, other = writer(pair, problem, 0.5), write_answer(problem, rng, style(0.5))
        for cut in range(0, len(other), 3):
            whole = [*other[:cut], *mine.rest(other[:cut])]
            marking = mark(problem, whole)
            assert marking.final_right and marking.finished and not marking.any_wrong, whole


def test_a_perfect_writer_ends_a_wording_that_was_begun_and_goes_on_in_its_own(pair):
    (problem,) = problems("test", 1, 0, ("boxes",))
    ours, theirs = (write_answer(problem, random.Random(0), style(share)) for share in (1.0, 0.0))
    mine = writer(pair, problem, 1.0)
    assert mine.rest([]) == ours
    at = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
    begun = theirs[: at + 1]  # the other wording of the first slot
    rest = mine.rest(begun)
    assert ours[-len(rest) + 1 :] == rest[1:] or ours[-len(rest) :] == rest
    assert mine.rest([*begun, " coins"]) == [] and mine.rest([*ours, EOS]) == []


def test_a_perfect_draft_is_cut_to_its_length_and_to_the_room(pair):
    (problem,) = problems("test", 1, 0)
    for length, room, proposed in ((5, 50, 5), (50, 3, 3), (50, 0, 0)):
        context = SimpleNamespace(committed=[0, 7][:1], room=room, device="cpu")
        tree = writer(pair, problem, length=length).propose(context)
        assert tree.proposed == proposed and tree.is_chain


def test_of_perfect_text_the_judge_that_trusts_keeps_all_and_the_standard_rule_what_it_would_say(trusting, monkeypatch):
    monkeypatch.setattr(perfect_text, "SHARES", (1.0,))
    monkeypatch.setattr(perfect_text, "LENGTHS", (260,))
    standard, judge = perfect_text.run(Lab(trusting, 2))["rows"]
    tasks = problems("test", 2, 0)
    answers = [write_answer(problem, random.Random(0), style(1.0)) for problem in tasks]
    assert judge["whole"] == 1.0 and judge["first_kept"] == sum(map(len, answers)) / 2 == judge["kept"]
    assert standard["whole"] == 0.0 and standard["first_kept"] < 5 < judge["first_kept"]
    assert judge["accuracy"] == standard["accuracy"] == 1.0 and standard["rounds"] > 2 * judge["rounds"]


# ---- swap, held out, draft lengths, trade-off ------------------------------------------------------------------


def test_swapped_the_text_is_the_drafts_own(pair):
    lab = Lab(pair, 2)
    forward, swapped = swap.run(lab)["rows"]
    alone = tradeoff.draft_alone(lab, lab.problems())
    target = lab.measure("autoregressive", lab.problems())
    assert swapped["right"] == alone["right"] and forward["right"] == target["right"]
    assert swapped["tokens"] == alone["tokens"] and forward["tokens"] == target["tokens"]
    assert alone["kept"] == 0 < swapped["kept"] and alone["method"] == "draft alone"


def test_a_head_is_trained_without_the_family(pair, monkeypatch, tmp_path):
    rng, labelled, seen = random.Random(0), [], []
    for problem in problems("calibration", 10, 1):
        words = write_answer(problem, rng, style(0.5))
        wrong = [*words[:9], " coins" if words[9] != " coins" else " pens"]
        labelled += [marked(pair, problem, world_ids(pair.tokenizer, text), "world") for text in (words, wrong)]
    about = {"split": "calibration", "questions": 10, "seed": 1}
    monkeypatch.setattr(held_out, "label_file", lambda name: tmp_path)
    monkeypatch.setattr(held_out, "read_labels", lambda file, pair: labelled)
    monkeypatch.setattr(held_out, "about_labels", lambda file: about)
    real = held_out.head_from
    monkeypatch.setattr(held_out, "head_from", lambda p, found, s: seen.append(found) or real(p, found, s))
    heads = held_out.heads_without(Lab(pair, 2))
    families = held_out.families_of(labelled, about)
    assert families == [p.family for p in problems("calibration", 10, 1) for _ in range(2)]
    for (family, head), found in zip(heads.items(), seen, strict=True):
        used = {families[i] for i in found.answer.tolist()}
        assert used == set(families) - {family}
        assert (head.weight != heads[""].weight).any() == (family in families)
    with pytest.raises(ValueError, match="does not say its 'seed'"):
        held_out.families_of(labelled, {"split": "calibration", "questions": 10})
    with pytest.raises(ValueError, match="its seed does not make"):
        held_out.families_of(labelled, about | {"seed": 2})


def test_without_a_label_set_nothing_is_held_out():
    with pytest.raises(ValueError, match="no label set for nothing"):
        held_out.label_file("nothing")


def test_a_rule_that_the_pair_cannot_run_is_left_out_with_the_reason(pair, monkeypatch):
    monkeypatch.setattr("specdec_lib.judge.head.head_files", list)
    monkeypatch.setattr(tradeoff, "ORDER", ("judge", "topk"))
    monkeypatch.setattr(tradeoff, "LADDERS", {"judge": [{"delta": 0.5}], "topk": [{"k": 0}]})
    result = tradeoff.run(Lab(pair, 2))
    standard, draft, topk = result["rows"]
    assert topk["method"] == "topk" and topk["right"] == standard["right"] and topk["rounds"] == standard["rounds"]
    assert "no judge head" in result["left_out"]["judge"] and "left out: judge" in tradeoff.text(result)


def test_the_curve_of_a_rule_goes_over_all_of_its_knobs_or_some_from_end_to_end():
    for name in tradeoff.ORDER:
        shown, known = tradeoff.ladder(name), tradeoff.LADDERS[name][: tradeoff.SLOW.get(name)]
        assert shown[0] == known[0] and shown[-1] == known[-1]
        assert [knobs for knobs in known if knobs in shown] == shown
        few = tradeoff.SLOW.get(name, tradeoff.POINTS)
        assert len(shown) == len(known) if name in tradeoff.WHOLE else len(shown) == few


def test_the_predicted_speed_by_hand(tmp_path):
    """MAT 3 in rounds of 4 x 1 ms + 6 ms: 300 tokens a second."""
    file = tmp_path / "t.json"
    rows = [
        {"gamma": 0, "target_s": 0.005, "draft_step_s": None},
        {"gamma": 4, "target_s": 0.006, "draft_step_s": 0.001},
    ]
    file.write_text(json.dumps({"provenance": {"checksums": {"target": "t"}}, "rows": rows}))
    times = draft_lengths.recorded_times(file, {"target": "t"})
    row = {"settings": {"gamma": 4}, "mat": 3.0}
    assert draft_lengths.predicted(row, times) == pytest.approx(300)
    assert draft_lengths.predicted({"settings": {"gamma": 5}, "mat": 3.0}, times) is None
    assert draft_lengths.recorded_times(file, {"target": "other"}) is None
    assert draft_lengths.recorded_times(tmp_path / "none.json", {}) is None
    file.write_text('{"rows": [1]}')
    with pytest.raises(ValueError, match="holds no pass times"):
        draft_lengths.recorded_times(file, {})


def test_draft_lengths_measure_each_rule_at_each_length(trusting, monkeypatch):
    monkeypatch.setattr(draft_lengths, "LENGTHS", (1, 4))
    rows = draft_lengths.run(Lab(trusting, 2))["rows"]
    assert [(r["method"], r["settings"]["gamma"]) for r in rows] == [
        ("greedy", 1), ("judge", 1), ("greedy", 4), ("judge", 4),
    ]  # fmt: skip
    assert all(row["kept"] <= row["settings"]["gamma"] for row in rows)
    assert rows[3]["kept"] > 3.5 > 1 >= rows[1]["kept"] > rows[0]["kept"] > 0  # the end of an answer cuts rounds


def test_pass_times_are_there_for_every_draft_length(pair, monkeypatch):
    monkeypatch.setattr(pass_times, "LENGTHS", (1, 3))
    rows = pass_times.run(Lab(pair, 2))["rows"]
    assert [row["gamma"] for row in rows] == [0, 1, 3] and rows[0]["draft_step_s"] is None
    assert all(row["target_s"] > (row["draft_step_s"] or 0) > 0 for row in rows[1:])


# ---- where the judge errs --------------------------------------------------------------------------------------


def scored(tokens, labels, rank, judge) -> ScoredText:
    zeros = [0.0] * len(tokens)
    return ScoredText("how <many>?", tokens, labels, list(tokens), rank, zeros, zeros, zeros, judge)


TEXT = scored(
    [" 1", " so", " 7", " wait", " 3", "."],
    [RIGHT, RIGHT, RIGHT, CORRECTED, WRONG, AFTER],
    [0, 2, 1, 0, 4, 0],
    [-9.0, 9.0, -9.0, 0.0, 9.0, 0.0],
)


def test_the_fate_of_each_token_up_to_the_first_wrong_one():
    kept = [errors.STANDARD, errors.RESCUED, errors.FALSE_REJECT, None, errors.FALSE_ACCEPT, None]
    assert errors.fates(TEXT, 0.5) == kept
    assert errors.fates(TEXT, 1.0) == [kept[0], kept[2], kept[2], None, errors.CAUGHT, None]
    put_right = scored([" 1", ",", " 2", "."], [WRONG, CORRECTED, CORRECTED, RIGHT], [0] * 4, [0.0] * 4)
    assert errors.fates(put_right, 0.5) == [errors.FALSE_ACCEPT, None, None, None]


def test_kinds_of_tokens():
    assert [errors.kind_of(t) for t in (" 7", "7", " so", "####", " +", ".", EOS)] == [
        "digit", "digit", "word", "mark", "mark", "mark", "end",
    ]  # fmt: skip


def test_errors_are_counted_by_writer_and_kind(trusting):
    """A judge that trusts everything rejects nothing that is right and keeps all that is wrong."""
    lab = Lab(trusting, 4, 1)
    result = errors.run(lab)
    rows = result["rows"]
    assert len(rows) == 8 and 0 < result["delta"] < 1 and len(result["texts"]) == 8
    assert sum(row["wrong"] for row in rows[4:]) == 4  # one a corrupted answer
    draft_wrong = sum(digit == "0" for digit in tradeoff.draft_alone(lab, lab.problems())["right"])
    assert sum(row["wrong"] for row in rows[:4]) >= draft_wrong > 0
    assert all(row["false_rejects"] == 0 and row["false_accepts"] == row["wrong"] for row in rows)
    assert 0 < rows[1]["standard_rejects"] < rows[1]["right"]
    shown = [from_row(row) for row in result["texts"]]
    assert [row["writer"] for row in result["texts"]] == ["corrupted"] * 4 + ["draft"] * 4
    assert all(errors.FALSE_ACCEPT in errors.fates(text, 0.5) for text in shown[:4]), "wrong tokens that were kept"


def test_texts_with_most_of_a_fate_come_first():
    caught = scored([" 1"], [WRONG], [4], [-9.0])
    assert errors.erring([caught, TEXT, caught], 0.5, errors.FALSE_ACCEPT) == [TEXT, caught, caught]
    assert errors.erring([TEXT, caught], 0.5, errors.CAUGHT)[0] == caught


def test_the_texts_are_coloured_and_escaped():
    page = errors.page({"texts": [to_row(TEXT)], "delta": 0.5})
    assert "how &lt;many&gt;?" in page and "<many>" not in page
    for fate in (errors.STANDARD, errors.RESCUED, errors.FALSE_REJECT, errors.FALSE_ACCEPT):
        assert page.count(f'title="{fate}') == 1
    assert page.count('title="not counted') == 2


# ---- truncation ------------------------------------------------------------------------------------------------


def test_what_a_top_k_verifier_samples_from_by_hand():
    """p .4 .25 .2 .1 .05, q .05 .15 .45 .25 .1, K 3: A, B, C pass, D at .4, E at .5; the rest, .2, is the residual's.

    max(p - q, 0) = .35, .1, 0, 0, 0, so A gets .05 + .2 * 7/9 and B .15 + .2 * 2/9.
    """
    by_name = {row["rule"]: row for row in truncation.run()["rows"]}
    top = by_name["top-K verifier, K = 3"]
    assert top["law"] == pytest.approx([0.05 + 0.2 * 7 / 9, 0.15 + 0.2 * 2 / 9, 0.45, 0.1, 0.05])
    assert top["truncated"] == pytest.approx([0.4 / 0.85, 0.25 / 0.85, 0.2 / 0.85, 0, 0])
    assert top["to_target"] == pytest.approx(0.25)
    assert top["to_truncated"] == pytest.approx(0.15 + 0.45 - 0.2 / 0.85)
    lossless, direct = by_name["lossless"], by_name["direct sampling, top_k = 3"]
    assert lossless["to_target"] == pytest.approx(0, abs=1e-9)
    assert direct["to_truncated"] == pytest.approx(0, abs=1e-9) and direct["to_target"] == pytest.approx(0.15)
    assert sorted(by_name["typical acceptance"]["kept"]) == [0, 1, 2, 3]
    assert by_name["typical acceptance"]["to_truncated"] > 0.1


# ---- the claim -------------------------------------------------------------------------------------------------


def made_row(method, kept, right, settings=None, n=100):
    """A row of a rule on n problems, of which the first `right` are right; answers alike, so that kept is exact."""
    row = base.row_of([answer([1], i < right) for i in range(n)])
    row |= {
        "method": method,
        "settings": settings or {"gamma": 8},
        "kept": kept,
        "kept_interval": [kept - 0.1, kept + 0.1],
    }
    return row


def must_show(judge_kept=7.0, judge=99, topk=80, lenience=70):
    rows = [
        made_row("autoregressive", 0.0, 99, {}),
        made_row("greedy", 2.3, 99),
        made_row("judge", judge_kept, judge, {"gamma": 8, "delta": 0.9}),
        made_row("topk", 7.0, topk, {"gamma": 8, "k": 2}),
        made_row("lenience", 7.0, lenience, {"gamma": 8, "lenience": 0.001}),
        made_row("greedy", 2.4, 99, {"gamma": 25}),
        made_row("judge", 15.0, 98, {"gamma": 25, "delta": 0.9}),
        made_row("words", 7.5, 95),
    ]
    for row in rows:
        row |= base.beside(row, rows[0])
    return {"rows": rows, "claims": paired.claims(rows)}


def test_what_is_no_digit_passes_and_digits_go_by_the_standard_rule(pair):
    ids = pair.tokenizer.convert_tokens_to_ids(["\u2581so", "\u2581wait", "\u25817", "\u25814", "\u25812"])
    logits = torch.full((6, pair.target.vocab_size), -9.0)
    for row, best in enumerate([ids[1], ids[1], ids[2], ids[3], ids[3], ids[0]]):
        logits[row, best] = 9.0
    tree = DraftTree.chain([ids[0], *ids])  # so: another word was due; wait, 7, 4: due; 2: another digit was
    scores = Scores(logits, SamplingSettings().adjuster(), lambda i: ())
    verdict = Words(pair).verify(tree, scores, RandomChance(torch.Generator()))
    assert (len(verdict.path), verdict.token) == (4, ids[3]) and not Words(pair).lossless


def test_the_control_stands_in_the_paired_table_and_leaves_the_rows_that_are_there(trusting, monkeypatch, tmp_path):
    monkeypatch.setattr(paired, "RULES", ("greedy", "judge"))
    monkeypatch.setattr(paired, "claims", lambda rows: [])
    file = tmp_path / "paired.json"
    lab = Lab(trusting, 2, 1, Rows(file, ORIGIN))
    lab.measure("greedy", lab.problems())
    before = json.loads(file.read_text())["rows"]
    rows = paired.run(Lab(trusting, 2, 1, Rows(file, ORIGIN)))["rows"]
    assert [row["method"] for row in rows] == ["autoregressive", "greedy", "judge", "words"]
    assert json.loads(file.read_text())["rows"][0]["key"] == before[0]["key"] and rows[1]["kept"] == before[0]["kept"]
    assert rows[1]["kept"] < rows[3]["kept"] <= 8 and "words" in paired.text({"rows": rows, "claims": []})


def test_the_claims_hold_where_the_figures_say_so_and_fail_where_not():
    assert [claim["holds"] for claim in must_show()["claims"]] == [True] * 5
    assert [claim["holds"] for claim in must_show(judge_kept=5.0)["claims"]] == [False, True, True, True, True]
    assert [claim["holds"] for claim in must_show(judge=97)["claims"]] == [True, False, True, True, True]
    assert [claim["holds"] for claim in must_show(topk=92, lenience=88)["claims"]] == [True, True, False, False, True]
    sure = [claim["sure"] for claim in must_show()["claims"]]
    assert sure == [True, False, True, True, True]  # of 100 problems the interval of 0 is wider than a point
    said = paired.text(must_show(judge=97))
    assert "FAILS: judge loses at most 1 point (-2.00)" in said and "holds for sure: judge keeps at least" in said


# ---- pictures --------------------------------------------------------------------------------------------------


def replayed_rows() -> dict:
    row = {
        "mat": 1.5, "mat_interval": [1.4, 1.6], "nothing": 0.4, "nodes": 5.0, "emitted": {"1": 0.7},
        "over_pld": {"mat": 1.3, "interval": [1.2, 1.4]}, "over_whole": {"mat": 1.4, "interval": [1.3, 1.5]},
        "speedup_by_t": 1.3, "speedup_interval": [1.2, 1.4], "groups": {"qa": {"mat": 1.5, "speedup_by_t": 1.3}},
        "retrieved": 0.6, "apart_by_t": 1.2, "over_all": None,
    }  # fmt: skip
    gpus = {"A100": {"speedup": 1.5, "mat": 1.5, "nodes": 5.0}}
    names = drafters({1: 1.0, 64: 1.0})
    rows = [row | {"drafter": name, "gpus": gpus if name in retrieval.ON_GPUS else {}} for name in names]
    return {"rows": rows, "times": {"1": 0.04, "64": 0.1}, "gpus_flat_to": {"A100": 153.0}}


def pictures() -> dict[str, dict]:
    """A result of each experiment, made up."""
    perfect = [
        made_row(rule, 5.0, 100, {"delta": 0.9}) | {
            "share": share, "length": length, "first_kept": kept, "first_kept_interval": [kept, kept + 1], "whole": 0.5
        }
        for length in perfect_text.LENGTHS for share in perfect_text.SHARES
        for rule, kept in (("greedy", 2.0), ("judge", 90.0))
    ]  # fmt: skip
    lengths = [
        made_row(rule, 2.0, 99, {"gamma": gamma}) | {"predicted_tok_per_s": 100.0 + gamma, "mat": 3.0}
        for gamma in draft_lengths.LENGTHS for rule in draft_lengths.RULES
    ]  # fmt: skip
    families = [
        {"family": family, "arm": arm, **made_row("judge", 3.0, 90)}
        for family in held_out.FAMILIES for arm in held_out.ARMS
    ]  # fmt: skip
    erring = {
        "right": 50, "standard_rejects": 20, "false_rejects": 2, "false_reject_interval": [0.01, 0.1], "wrong": 10,
        "false_accepts": 1, "false_accept_interval": [0.01, 0.3],
    }  # fmt: skip
    none = erring | {"wrong": 0, "false_accepts": 0, "false_accept_interval": None}
    kinds = [
        {"writer": "draft", "kind": k, **(none if k == "end" else erring)} for k in ("digit", "word", "mark", "end")
    ]
    curve = [made_row("greedy", 2.3, 99), made_row("draft alone", 0.0, 65, {})]
    curve += [
        made_row("judge", k, r, {"gamma": 8, "delta": d}) for k, r, d in ((4, 99, 0.9), (7, 99, 0.5), (7.5, 90, 0.1))
    ]
    return {
        "paired": must_show(),
        "tradeoff": {"rows": curve, "left_out": {"kl": "no reason"}},
        "perfect-text": {"rows": perfect},
        "swap": {"rows": [{"way": way} | made_row("greedy", 2.5, 90) for way in swap.WAYS]},
        "held-out": {"rows": families},
        "draft-lengths": {"rows": lengths, "plain_tok_per_s": 90.0},
        "pass-times": {
            "rows": [{"gamma": g, "target_s": 0.006, "draft_step_s": 0.001 if g else None} for g in (0, 4, 8)],
        },
        "errors": {"rows": kinds, "delta": 0.5, "texts": []},
        "truncation": truncation.run(),
        "next-next": {
            "ks": [1, 60],
            "rows": [
                {"group": group, "steps": 9, "share": {"1": 0.1, "60": 0.4}, "top_60_interval": [0.3, 0.5]}
                for group in ("qa", "all")
            ],
        },
        "retrieval": replayed_rows(),
        "index-cost": {"rows": [{"length": n, "add_us": 2.0, "find_us": 1.0, "keys": 3 * n} for n in (1_000, 4_000)]},
        "drafting-cost": {
            "rows": [{"method": "pld", "length": n, "round_us": 20.0, "start_us": 1.0} for n in (1_000, 4_000)],
        },
    }  # fmt: skip


HERE = (
    "paired", "tradeoff", "perfect-text", "swap", "held-out", "draft-lengths", "pass-times", "errors", "truncation",
)  # fmt: skip


@pytest.mark.parametrize("name", HERE)
def test_a_picture_has_a_claim_axes_and_marks_and_the_table_a_line_a_row(name, tmp_path):
    module, result = find(name), pictures()[name]
    fig = module.figure(json.loads(json.dumps(result)))  # as read back from a file
    fig.savefig(tmp_path / "f.png")
    titles = [ax.get_title() for ax in fig.axes] + [fig.get_suptitle()]
    assert any(any(c.isdigit() for c in title) for title in titles), titles
    assert all(ax.get_xlabel() or ax.get_xticklabels() for ax in fig.axes) and fig.axes[0].get_ylabel()
    legends = [t.get_text() for ax in fig.axes if ax.get_legend() for t in ax.get_legend().get_texts()]
    legends += [ax.get_legend().get_title().get_text() for ax in fig.axes if ax.get_legend()]
    if name not in ("pass-times", "truncation", "index-cost", "drafting-cost"):
        assert any("95 %" in text for text in legends), legends
    if name in ("perfect-text", "swap", "draft-lengths"):
        assert any("paper" in text for text in legends), legends
    if name == "held-out":
        assert any("paper [S]" in tick.get_text() for tick in fig.axes[0].get_xticklabels())
    assert len(module.text(result).splitlines()) >= len(result["rows"]) + 1


def test_titles_say_what_was_measured():
    results = pictures()
    said = tradeoff.figure(results["tradeoff"]).axes[0].get_title()
    assert "100 problems" in said and "within 4.4 points near" in said and "9.7 near" in said
    assert "7.0 times" not in paired.figure(results["paired"]).axes[0].get_title()
    assert (
        "3.0 times the standard rule's tokens at +0.00 points" in paired.figure(results["paired"]).axes[0].get_title()
    )
    untimed = [row | {"predicted_tok_per_s": None} for row in results["draft-lengths"]["rows"]]
    without = {"rows": untimed, "plain_tok_per_s": None}
    assert len(draft_lengths.figure(without).axes) == 1 and "No predicted speeds" in draft_lengths.text(without)


# ---- the command -----------------------------------------------------------------------------------------------


@pytest.fixture
def run(pair, monkeypatch):
    monkeypatch.setattr(zoo, "load_pair", lambda name: zoo.pair_sources(name) and pair)
    return lambda *arguments: CliRunner().invoke(app, ["experiment", *map(str, arguments)])


def test_the_command_lists_the_experiments_and_refuses_what_it_does_not_know(run, tmp_path):
    listed = run()
    assert listed.exit_code == 0 and [line.split()[0] for line in listed.stdout.splitlines()] == list(NAMES)
    for arguments, words in (
        (["telepathy"], "choose one of paired"),
        (["swap", "--pair", "smollm2"], "need a pocket pair; got smollm2"),
        (["swap", "--n", 1], "2 or more; got 1"),
        (["swap", "--figure", tmp_path / "f.html"], "must end in one of .png"),
        (["swap", "--json", tmp_path / "none" / "f.json"], "its folder is not there"),
    ):
        done = run(*arguments)
        assert done.exit_code == 2 and words in done.stderr and done.stdout == "", done.stderr


def test_the_command_prints_the_table_and_writes_result_and_picture(run, tmp_path):
    file, picture = tmp_path / "t.json", tmp_path / "t.png"
    for _ in range(2):  # the second time over the first one's files
        done = run("truncation", "--json", file, "--figure", picture)
        assert done.exit_code == 0, done.output
    assert "top-K verifier, K = 3" in done.stdout and picture.stat().st_size > 10_000
    found = json.loads(file.read_text())
    assert found["complete"] is True and found["provenance"]["arguments"]["experiment"] == "truncation"
    assert len(found["rows"]) == 4 and found["p"] == list(truncation.TARGET)


def test_ctrl_c_keeps_the_rows_that_are_whole_and_the_same_command_goes_on(run, pair, monkeypatch, tmp_path):
    file, real, calls = tmp_path / "s.json", base.answers_by, []

    def stops(pair, method, tasks, **more):
        calls.append(more)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(pair, method, tasks, **more)

    monkeypatch.setattr(base, "answers_by", stops)
    done = run("swap", "--n", 2, "--json", file)
    assert done.exit_code == 130 and f"1 rows are kept in {file}" in done.stderr
    done = run("swap", "--n", 2, "--json", file)
    assert done.exit_code == 0 and len(calls) == 3
    assert json.loads(file.read_text())["complete"] is True
