"""CSD's experiments: memories that nest, which rule is asked on which memory, figures worked by hand, pictures.
Follows specdec_lib/experiments/: memories, calibration and csd_*.
Left out: the rules (test_csd.py), and what is measured on real problems (data/experiments/).
"""

import copy
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from test_csd import remembered
from test_experiments import answer, style

from specdec_lib.csd.memory import CorrectionMemory
from specdec_lib.experiments import (
    calibration,
    csd_ablation,
    csd_learning,
    csd_overhead,
    csd_patterns,
    csd_precision,
    csd_remedies,
    csd_rescues,
    csd_soft,
    csd_sweep,
    csd_tradeoff,
    csd_transfer,
    find,
    memories,
    tradeoff,
)
from specdec_lib.experiments.base import Lab
from specdec_lib.methods import METHODS, parse_method
from specdec_lib.pocket.checker import mark
from specdec_lib.pocket.tokenizer import world_ids
from specdec_lib.pocket.world import FAMILIES, problems, write_answer
from specdec_lib.sampling import SamplingSettings
from specdec_lib.trace import Round, Trace
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers import Scores


@pytest.fixture
def lab(pair, monkeypatch, tmp_path):
    """Two problems, two short calibrations, and rows that are not measured but say which rule was asked for."""
    monkeypatch.setattr(calibration, "LENGTHS", (1, 2))
    monkeypatch.setattr(memories, "MAX_NEW_TOKENS", 30)
    monkeypatch.setattr(memories, "cache_folder", lambda: tmp_path)
    asked = []

    def measure(self, method, tasks, key="", **more):
        asked.append((method, key))
        kept = 2.0 if method == "greedy" else 3.0 + len(asked) / 100
        name, knobs = parse_method(method) if isinstance(method, str) else (method.name, method.knobs)
        return {
            "method": name, "settings": knobs, "kept": kept, "kept_interval": [kept - 0.1, kept + 0.1],
            "accuracy": 0.5, "accuracy_interval": [0.4, 0.6], "any_wrong": 0.5,
            "right": ("10" * len(tasks))[: len(tasks)], "n": len(tasks),
        }  # fmt: skip

    monkeypatch.setattr(Lab, "measure", measure)
    return Lab(pair, 2, 3), asked


def test_memories_nest_in_any_order_and_are_made_once(lab, monkeypatch):
    lab, _ = lab
    short, long = (memories.memory_after(lab, n) for n in (1, 3))
    between = memories.memory_after(lab, 2)
    assert [m.texts for m in (short, between, long)] == [1, 2, 3] and short.frozen and long.frozen
    for less, more in ((short, between), (between, long)):
        assert all(more.count(x, best) >= less.count(x, best) for x, best in less.pairs)
        assert sum(more.drafted.values()) > sum(less.drafted.values())
    assert memories.memory_after(lab, 0).pairs == {}
    boxes = memories.memory_after(lab, 1, ("boxes",))
    assert boxes.made["prompts"].endswith("-boxes") and boxes.drafted != short.drafted
    monkeypatch.setattr(memories, "calibrate", lambda *a, **k: 1 / 0)
    assert memories.memory_after(lab, 1) == short and memories.memory_after(lab, 1, ("boxes",)) == boxes
    other = replace(lab.pair, checksums={"target": "other", "draft": "other"})
    with pytest.raises(ZeroDivisionError):  # other weights, another file
        memories.memory_after(Lab(other, 2, 3), 1)


def test_a_row_a_length_and_rule_each_with_a_frozen_memory_of_that_length(lab):
    lab, asked = lab
    assert find("calibration") is calibration
    result = calibration.run(lab)
    plain, *rows = result["rows"]
    assert plain["method"] == "greedy"
    assert [(row["method"], row["texts"]) for row in rows] == [
        (name, length) for length in (1, 2) for name in ("csd", "csd", "csd", "csd", "csd-rate")
    ]
    for (method, key), row in zip(asked[1:], rows, strict=True):
        assert method.verifier.memory.texts == row["texts"] and method.verifier.memory.frozen
        assert key == f"after {row['texts']}" and row["kept_ratio"] == row["kept"] / 2
        assert method.verifier.never and row["trusted"] <= row["pairs"]
    assert [row["settings"]["tau"] for row in rows[:4]] == [0.1, 0.01, 0.001, 0.0]
    assert "after" not in calibration.text(result) and "csd-rate" in calibration.text(result)
    assert [claim["holds"] for claim in result["claims"]] == [False, True]
    kept, accuracy = calibration.figure(result).axes
    assert len(kept.containers) == len(accuracy.containers) == 5
    assert list(kept.containers[0][0].get_xdata()) == [1, 2]
    assert list(kept.containers[4][0].get_ydata()) == [row["kept"] for row in rows if row["method"] == "csd-rate"]


def test_the_claims_on_lengths_are_about_the_worst_one():
    rows = [ablation_row("greedy", 2.0, 0.97, 0.0), ablation_row("csd", 3.0, 0.7, -0.27)]
    rows += [ablation_row("csd-rate", kept, 0.97, change) for kept, change in ((6.0, -0.009), (5.9, 0.0))]
    kept, loss = calibration.claims(rows)
    assert (kept["figure"], kept["holds"], kept["sure"]) == (2.95, True, True)
    assert (round(loss["figure"], 2), loss["holds"], loss["sure"]) == (-0.9, True, True)
    rows.append(ablation_row("csd-rate", 4.0, 0.95, -0.02))
    kept, loss = calibration.claims(rows)
    assert (kept["holds"], loss["holds"]) == (False, False)
    rows[-1] = ablation_row("csd-rate", 5.1, 0.95, -0.009, 0.005)
    assert [(c["holds"], c["sure"]) for c in calibration.claims(rows)] == [(True, False), (True, False)]


def test_several_seeds_are_put_together_rule_by_rule_and_length_by_length():
    def result(*changes):
        rows = [ablation_row("greedy", 2.0, 0.97, 0.0)]
        rows += [
            ablation_row("csd-rate", 5.0 + length, 0.9, change, 0.02) | {"texts": length, "kept_ratio": 2.5 + length}
            for length, change in enumerate(changes, start=1)
        ]
        return {"rows": rows}

    _, *lines, _, over_all = calibration.seeds_text([result(-0.01, -0.3, 0.0), result(0.02, 0.0, -0.05)]).splitlines()
    assert [line.split()[1:] for line in lines] == [  # the middle length is left to the sentence
        ["1", "2", "3.50", "-1.00", "2.00", "-3.00"], ["3", "2", "5.50", "-5.00", "0.00", "-7.00"]
    ]  # fmt: skip
    assert over_all.endswith("at least 3.50 times the kept, -30.0 points at worst")


# ---- which rule is asked, on which memory ----------------------------------------------------------------------


def test_a_rule_on_a_memory_has_the_pairs_knobs_but_for_those_given_and_never_rescues_an_end(pair):
    memory = CorrectionMemory().freeze()
    for name in ("csd", "csd-rate", "csd-memory"):
        method = memories.rule_on(pair, memory, name, {"lambda": 3.0})
        assert method.verifier.memory is memory and method.verifier.lambda_ == 3 and method.verifier.name == name
        assert method.verifier.never == {pair.tokenizer.eos_token_id, *pair.tokenizer.all_special_ids}
        assert "online" not in method.knobs and set(method.knobs) == set(METHODS[name][1]) - {"online"}
    assert memories.rule_on(pair, memory, "csd-memory").verifier.tau == 0
    assert memories.rule_on(pair, memory, "csd-rate", {"rate": 0.7}).verifier.rate == 0.7


def test_the_ablation_takes_one_lambda_and_one_tau_for_all_but_csd_rate(monkeypatch):
    monkeypatch.setattr(csd_ablation, "tuned_knobs", lambda pair: {"csd": {"lambda": 4.0, "tau": 0.003}})
    asked = [parse_method(rule) for rule in csd_ablation.rules("pocket")]
    assert [name for name, _ in asked] == ["greedy", "csd-memory", "csd-gate", "csd", "csd-rate"]
    assert [knobs.get("lambda") for _, knobs in asked] == [None, 4, None, 4, 6]
    assert [knobs.get("tau") for _, knobs in asked] == [None, None, 0.003, 0.003, 0.01]


def ablation_row(method, kept, accuracy, change, width=0.001, right=None):
    """right: of 1000 problems, so many from the first; else as many as the accuracy says."""
    intervals = {
        "kept_interval": (kept - 0.1, kept + 0.1), "accuracy_interval": (accuracy - 0.01, accuracy + 0.01),
        "accuracy_change_interval": (change - width, change + width),
    }  # fmt: skip
    return {
        "method": method, "settings": {"gamma": 8}, "kept": kept, "accuracy": accuracy, "any_wrong": 0.1,
        "kept_ratio": kept / 2, "accuracy_change": change, "n": 1000,
        "right": right or "1" * round(1000 * accuracy) + "0" * (1000 - round(1000 * accuracy)), **intervals,
    }  # fmt: skip


def test_the_ablations_claims_are_read_off_the_rows():
    rows = [
        ablation_row("greedy", 2.0, 0.97, 0.0), ablation_row("csd-memory", 6.0, 0.9, -0.07),
        ablation_row("csd-gate", 3.0, 0.97, 0.0), ablation_row("csd", 4.0, 0.965, -0.005),
        ablation_row("csd-rate", 4.9, 0.95, -0.02),
    ]  # fmt: skip
    found = csd_ablation.claims(rows)
    # csd 2.0 times, by the near ends 3.9 / 2.1; csd-rate 2.45 times, and 2 points lost; each part alone worse for sure
    assert [(c["holds"], c["sure"]) for c in found] == [
        (True, True), (True, True), (False, False), (False, False), (True, True), (True, True),
    ]  # fmt: skip
    result = {"rows": [row | {"parts": part} for row, part in zip(rows, csd_ablation.PARTS, strict=True)]}
    result["claims"] = found
    shown = csd_ablation.text(result)
    assert "rate, own knobs" in shown and shown.count("FAILS") == 2 and shown.count("for sure") == 4
    (axes,) = csd_ablation.figure(result).axes
    assert [c[0].get_xdata()[0] for c in axes.containers] == [2.0, 6.0, 3.0, 4.0, 4.9]
    few = "1" * 963 + "0" * 37  # two fewer than both parts, all of the others the same: not told apart from none
    near = csd_ablation.claims([rows[0], ablation_row("csd-memory", 6.0, 0.963, -0.007, right=few), *rows[2:]])
    assert (round(near[-2]["figure"], 2), near[-2]["holds"], near[-2]["sure"]) == (-0.2, True, False)
    apart = "1" * 955 + "0" * 45  # ten fewer: one interval of a share alone would hide it
    sure = csd_ablation.claims([rows[0], ablation_row("csd-memory", 6.0, 0.955, -0.015, right=apart), *rows[2:]])
    assert (round(sure[-2]["figure"], 2), sure[-2]["sure"]) == (-1.0, True)
    even = csd_ablation.claims([*rows[:2], ablation_row("csd-gate", 4.0, 0.965, 0.0), *rows[3:]])
    assert (even[-1]["holds"], even[-1]["sure"]) == (False, False)


def test_the_sweep_puts_every_row_into_its_place(lab, monkeypatch):
    lab, asked = lab
    monkeypatch.setattr(csd_sweep, "LENGTH", 1)
    monkeypatch.setattr(csd_sweep, "LAMBDAS", (0, 6))
    monkeypatch.setattr(csd_sweep, "TAUS", (0.1, 0.01, 0.0))
    result = csd_sweep.run(lab)
    counts, taus, kept = csd_sweep.grid(result, "kept")
    assert (counts, taus, kept.shape) == ([0, 6], [0.1, 0.01, 0.0], (2, 3))
    for row in result["rows"][1:]:
        assert kept[counts.index(row["settings"]["lambda"]), taus.index(row["settings"]["tau"])] == row["kept"]
    assert {(m.verifier.lambda_, m.verifier.tau) for m, _ in asked[1:]} == {(c, t) for c in (0, 6) for t in taus}
    assert {m.verifier.memory.texts for m, _ in asked[1:]} == {1}
    lines = csd_sweep.text(result).splitlines()
    assert (
        lines[1].split()[:3] == ["lambda", "tau", "0.1"]
        and lines[-1].startswith("6")
        and f"{kept[1, 2]:.2f}" in lines[-1]
    )
    assert len(csd_sweep.figure(result).axes[0].texts) == 6


def test_the_learning_curve_starts_with_nothing_and_the_run_that_learns_is_cut_into_blocks(lab, monkeypatch):
    lab, asked = lab
    lab = replace(lab, n=5)
    monkeypatch.setattr(csd_learning, "LENGTHS", (0, 2))
    monkeypatch.setattr(csd_learning, "memory_after", lambda lab, n: CorrectionMemory(texts=n).freeze())
    online = []

    def answers(pair, method, tasks):
        online.append((method, method.verifier.memory.snapshot()))
        return [answer([kept], kept > 2) for kept, _ in enumerate(tasks)]

    monkeypatch.setattr(csd_learning, "answers_by", answers)
    monkeypatch.setattr(csd_learning, "BLOCKS", 2)
    plain, *rows = csd_learning.run(lab)["rows"]
    assert [(row["method"], row["texts"], row["memory_now"]) for row in rows] == [
        ("csd", 0, "frozen"), ("csd-rate", 0, "frozen"), ("csd", 2, "frozen"), ("csd-rate", 2, "frozen"),
        ("csd", 0, "online"), ("csd", 2, "online"),
    ]  # fmt: skip
    assert [m.verifier.memory.texts for m, _ in asked[1:]] == [0, 0, 2, 2]
    ((method, before),) = online  # one run for all blocks
    assert method.verifier.learns and before.pairs == {} and method.verifier.never
    assert [row["kept"] for row in rows[-2:]] == [(0 + 1) / 2, (2 + 3 + 4) / 3]
    assert [row["right"] for row in rows[-2:]] == ["00", "011"]


def test_blocks_cover_all_problems_and_hold_two_or_more():
    assert csd_learning.blocks(150) == [(0, 30), (30, 60), (60, 90), (90, 120), (120, 150)]
    assert csd_learning.blocks(2) == [(0, 2)] and csd_learning.blocks(5) == [(0, 2), (2, 5)]
    for n in range(2, 40):
        found = csd_learning.blocks(n)
        assert found[0][0] == 0 and found[-1][1] == n and all(b - a >= 2 for a, b in found)


def test_transfer_uses_each_familys_memory_in_every_family(lab, monkeypatch):
    lab, asked = lab
    made = {}

    def memory(lab, length, families):
        made[families] = CorrectionMemory(made={"of": families}).freeze()
        return made[families]

    monkeypatch.setattr(csd_transfer, "memory_after", memory)
    result = csd_transfer.run(lab)
    assert list(made) == [*((family,) for family in FAMILIES), FAMILIES]
    assert len(result["rows"]) == 5 + 6 * 5 and [m for m, _ in asked[:5]] == ["greedy"] * 5
    for method, key in asked[5:]:
        families = method.verifier.memory.made["of"]
        learnt = "all" if families == FAMILIES else families[0]
        assert key.startswith(f"of {learnt} in ")
    grid = csd_transfer.grid(result, "kept")
    assert grid.shape == (6, 5) and grid[1, 3] == next(
        row["kept"] for row in result["rows"] if (row["learnt"], row["used"]) == ("boxes", "work")
    )
    assert csd_transfer.text(result).splitlines()[-1].startswith("all")
    assert len(csd_transfer.figure(result).axes[0].texts) == 30


def test_the_remedies_by_hand(pair):
    """After 800 problems: counts 6, 7, 49; of the rate .3 with 10 of 30 the lower end is .19, with 100 of 300 .28."""
    memory = remembered({(5, 9): 6, (6, 9): 7, (7, 9): 49}, {5: 6, 6: 1000, 7: 100}).freeze()
    found = csd_remedies.rules(pair, memory, 800)
    trusted = {name: {x for x in (5, 6, 7) if m.verifier.trusts(x, 9)} for name, m in found.items()}
    count = found["count"].verifier.lambda_
    assert count == 6 and found["count that grows"].verifier.lambda_ == 48
    assert trusted == {
        "count": {6, 7}, "count and rate": {7}, "count that grows": {7}, "lower bound of the rate": {5, 7},
    }  # fmt: skip
    assert {m.verifier.tau for m in found.values()} == {csd_remedies.TAU}
    assert csd_remedies.rules(pair, memory, 100)["count that grows"].verifier.lambda_ == 6
    few = csd_remedies.SureRate(remembered({(1, 2): 10}, {1: 30}), 0, 0.3, ())
    assert not few.trusts(1, 2) and not few.trusts(3, 2)
    assert csd_remedies.SureRate(remembered({(1, 2): 110}, {1: 300}), 0, 0.3, ()).trusts(1, 2)


def test_a_row_a_remedy_and_length(lab, monkeypatch):
    lab, asked = lab
    monkeypatch.setattr(csd_remedies, "LENGTHS", (1, 2))
    result = csd_remedies.run(lab)
    assert [(row["remedy"], row["texts"]) for row in result["rows"][1:]] == [
        (remedy, n) for n in (1, 2) for remedy in csd_remedies.LOOK
    ]
    assert [m.verifier.memory.texts for m, _ in asked[1:]] == [1] * 4 + [2] * 4
    assert len({key for _, key in asked[1:]}) == 8
    assert csd_remedies.text(result).count("count that grows") == 3
    kept = {row["remedy"]: row["kept"] for row in result["rows"][1:] if row["texts"] == 2}
    said = f"after 2, count that grows keeps {kept['count that grows'] / kept['count and rate']:.2f} times what"
    assert csd_remedies.text(result).splitlines()[-1].startswith(said)
    assert len(csd_remedies.figure(result).axes[0].containers) == 4


def test_the_trade_offs_ladders_go_from_strict_to_lax_in_knobs_that_exist(lab, monkeypatch):
    for name, ladder in csd_tradeoff.LADDERS.items():
        assert all(set(knobs) <= set(METHODS[name][1]) for knobs in ladder)
        for knob in {knob for knobs in ladder for knob in knobs} - {"window"}:
            values = [knobs[knob] for knobs in ladder]
            assert values == sorted(values, reverse=knob != "weight" or name == "ensemble")
    lab, asked = lab
    monkeypatch.setattr(csd_tradeoff, "LADDERS", {"csd": [{"tau": 0.1}], "ensemble": [{"weight": 0.5}]})
    monkeypatch.setattr(tradeoff, "build_method", lambda text, pair: text)
    result = csd_tradeoff.run(lab)
    assert [m for m, _ in asked[2:]] == ["csd:gamma=8,tau=0.1", "ensemble:gamma=8,weight=0.5"]
    (axes,) = csd_tradeoff.figure(result).axes
    assert {line.get_label() for line in axes.containers} >= {"csd", "ensemble"}
    assert axes.get_ylim()[0] == 60 and "ensemble:weight=0.5: 50.0 %, kept" in axes.texts[-1].get_text()


# ---- worse drafts ----------------------------------------------------------------------------------------------


def test_noise_makes_another_draft_and_leaves_the_pairs_own(pair):
    assert csd_soft.softened(pair, 0.0) is pair
    before = [w.detach().clone() for w in pair.draft.model.parameters()]
    one, same, other = (csd_soft.softened(pair, 0.1, seed) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(before, pair.draft.model.parameters(), strict=True))
    weights = [next(p.draft.model.parameters()).detach() for p in (one, same, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    off = (weights[0] - before[0]).std() / before[0].std()
    assert off == pytest.approx(0.1, rel=0.05)
    assert one.checksums["draft"] != pair.checksums["draft"] and one.checksums["target"] == pair.checksums["target"]


def rejected(x, wanted, emitted=None):
    """A round whose one draft x was turned down for what was wanted."""
    return Round([0, x], [-1, 0], [0, 0], [1, 1], [0, 0], [], {1: "rejected"}, emitted or [wanted], "recovered",
                 best=[wanted, 0], added=[1.0, 0.25])  # fmt: skip


def begun(pair, problem, *, ours):
    """The ids of a right answer in our or the other wordings."""
    return world_ids(pair.tokenizer, write_answer(problem, random.Random(0), style(1.0 if ours else 0.0)))


def test_rejections_are_grouped_by_the_rate_of_their_pair_and_marked(pair):
    """Another wording (rate 1), then a word that is wrong there (rate .2); what follows an error is not counted."""
    (problem,) = problems("test", 1, 0, ("boxes",))
    ours, theirs = begun(pair, problem, ours=True), begun(pair, problem, ours=False)
    wrong = world_ids(pair.tokenizer, [" ####"])[0]
    rounds = [rejected(theirs[0], ours[0]), rejected(wrong, ours[1]), rejected(theirs[2], wrong), rejected(wrong, 5)]
    found = SimpleNamespace(problem=problem, trace=SimpleNamespace(rounds=rounds))
    memory = remembered({(theirs[0], ours[0]): 4, (wrong, ours[1]): 2}, {theirs[0]: 4, wrong: 10})
    groups = csd_soft.grouped(pair, memory, [found])
    assert [(g["from"], g["to"]) for g in groups] == [(0, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 0.9), (0.9, 1)]
    assert [(g["pairs"], g["right_share"]) for g in groups if g["rejections"] and g["from"]] == [(1, 0.0), (1, 1.0)]
    assert sum(g["rejections"] for g in groups) == 3, "the fourth stands behind an error"


def test_the_picture_of_worse_drafts_has_a_panel_a_noise_and_intervals_on_one_scale():
    rates = [{"from": 0.0, "to": 0.3, "rejections": 4, "right_share": 0.5, "pairs": 2},
             {"from": 0.3, "to": 1.0, "rejections": 0, "right_share": None, "pairs": 0}]  # fmt: skip
    rows = []
    for noise in (0.0, 0.2):
        rows.append(ablation_row("draft alone", 0.0, 0.7, 0.0) | {"noise": noise})
        for rate in (0.1, 0.3):
            row = ablation_row("csd-rate", 5.0, 0.9, -0.01, width=0.02) | {"noise": noise}
            rows.append(row | {"settings": {"rate": rate}})
    result = {"rows": rows, "groups": [{"noise": noise, "rates": rates} for noise in (0.0, 0.2)]}
    *panels, last = csd_soft.figure(result).axes
    assert len(panels) == 2 and last.get_ylim() == (-6, 6) and len(last.containers) == 2
    for bars in last.containers:
        assert bars.has_yerr and list(bars[0].get_ydata()) == [-1, -1]
    rows[1]["accuracy_change_interval"] = (-0.2, 0.0)
    assert csd_soft.figure(result).axes[-1].get_ylim()[0] == -20


# ---- patterns and rescues --------------------------------------------------------------------------------------


def test_the_interval_of_the_top_share_draws_texts_and_keeps_the_patterns():
    low, high = csd_patterns.top_interval([{"a": 60, "b": 40}, {"a": 10, "c": 90}])
    assert (low, high) == (0.0, 0.9), "c is the top pattern of three: 0 of 100 in one text, 90 of 100 in the other"


@pytest.mark.parametrize(
    "drafted, wanted, kind",
    [
        (" x", " *", "wording"), (" which", " so", "wording"), (" of", " apples", "wording"),
        (" dollars", " of", "wording"), (" so", " *", "word"), (" 7", " 8", "digit"), ("4", ".", "digit"),
        (" mia", " tom", "word"), (".", ",", "punctuation"),
    ],
)  # fmt: skip
def test_kinds_of_tokens(drafted, wanted, kind):
    assert csd_patterns.kind_of(drafted, wanted, True) == kind
    assert csd_patterns.kind_of(drafted, wanted, False) != "wording"


def test_the_ratio_is_that_of_the_raw_logits_at_the_row_before():
    rows = torch.tensor([[0.0, 2.0, 3.0], [5.0, 0.0, 4.0], [0.0, 0.0, 0.0]])
    scores = Scores(rows, SamplingSettings().adjuster(), lambda node: [0])
    found = csd_patterns.Ratios().verify(DraftTree.chain([0, 2, 1]), scores, None)
    assert found.path == [1] and found.added[1:] == pytest.approx([1.0, 2.718281828**-5])
    assert csd_patterns.Ratios().verify(DraftTree.chain([0]), scores, None).added == []


def test_rejections_behind_a_stop_are_not_counted():
    cut = Round([0, 5, 6], [-1, 0, 1], [0] * 3, [1] * 3, [0] * 3, [1], {1: "exact", 2: "rejected"}, [5], "accepted",
                best=[5, 7, 0], added=[1.0, 1.0, 0.5])  # fmt: skip
    trace = Trace([1], "greedy", True, rounds=[rejected(3, 4), cut])
    assert list(csd_patterns.rejections(trace)) == [(3, 4, 0.25)]


def test_patterns_of_real_texts_agree_with_the_memory(pair):
    result = csd_patterns.run(Lab(pair, 2, 3))
    assert result["texts"] == 2 and sum(result["kinds"].values()) == pytest.approx(1)
    assert result["curve"][0] == 0 and result["curve"][-1] == pytest.approx(1) and result["rejections"] >= 2
    assert result["curve"][4] == result["top_share"]
    assert result["kinds"]["wording"] > 0.5, "most of what this draft is turned down for is another wording"
    for row in result["rows"]:
        assert 0 < row["low"] <= row["median"] <= row["high"] < 1 and 0 < row["rate"] <= 1
    assert sum(row["count"] for row in result["rows"]) <= result["rejections"]
    assert f"{result['rejections']} rejections" in csd_patterns.text(result)
    left, right = csd_patterns.figure(result).axes
    assert len(right.get_yticks()) == len(result["rows"]) and len(left.lines[0].get_xdata()) == 21


def test_rescues_are_learnt_on_some_texts_and_used_on_others(pair, monkeypatch):
    monkeypatch.setattr(csd_rescues, "RULES", (("csd-memory", {"lambda": 0.0}),))
    result = csd_rescues.run(Lab(pair, 2, 3))
    plain, rule = result["rows"]
    assert plain["kinds"] == {} and plain["changed"] == 0 and plain["given_up"] is None
    assert rule["kept"] > plain["kept"] and 0 < rule["changed"] < 1 and 0 < rule["given_up"] < 1
    assert sum(rule["kinds"].values()) >= sum(times for *_, times in rule["pairs"]) > 0
    assert result["texts"] == 2 and result["learnt"][0][2] >= result["learnt"][-1][2]
    learn, use, longest = memories.halves(Lab(pair, 2, 3))
    assert not set(map(tuple, learn)) & set(map(tuple, use)) and longest == 260
    assert "kinds" in csd_rescues.text(result)
    assert len(csd_rescues.figure(result).axes[0].patches) == 2


def test_prompts_of_another_pair_are_first_turns_in_turns_and_have_an_end():
    real = SimpleNamespace(name="smollm2", prompt=lambda text: [text])
    learn, use, longest = memories.halves(SimpleNamespace(pair=real, n=30))
    assert (len(learn), len(use), longest) == (30, 30, memories.SHORT)
    assert len({text for (text,) in [*learn, *use]}) == 60
    with pytest.raises(ValueError, match="holds 60 first turns.*less than --n 31"):
        memories.halves(SimpleNamespace(pair=real, n=31))


# ---- precision -------------------------------------------------------------------------------------------------


def rescued_round(problem_ids, x, wanted):
    """Two tokens kept as they stand, then x rescued for what was wanted, then nothing more."""
    a, b = problem_ids
    return Round([0, a, b, x], [-1, 0, 1, 2], [0] * 4, [1] * 4, [0] * 4, [1, 2, 3],
                 {1: "exact", 2: "exact", 3: "rescued"}, [a, b, x], "accepted", best=[a, b, wanted, 0])  # fmt: skip


def test_a_rescue_comes_with_the_answer_before_it(pair):
    (problem,) = problems("test", 1, 0, ("boxes",))
    rounds = [rejected(9, 7), rescued_round((3, 4), 5, 6), rescued_round((1, 2), 8, 9)]
    found = csd_precision.rescues([SimpleNamespace(problem=problem, trace=SimpleNamespace(rounds=rounds))])
    assert [(r.before, r.token, r.wanted) for r in found] == [((7, 3, 4), 5, 6), ((7, 3, 4, 5, 1, 2), 8, 9)]


def test_rescues_are_judged_by_the_checker_where_the_beginning_is_right(pair):
    (problem,) = problems("test", 1, 0, ("boxes",))
    ours, theirs = begun(pair, problem, ours=True), begun(pair, problem, ours=False)
    wrong = world_ids(pair.tokenizer, [" ####"])[0]
    made = [((), theirs[0]), ((ours[0],), wrong), ((wrong,), ours[1])]
    found = csd_precision.judged(pair, [csd_precision.Rescue(problem, before, x, 0) for before, x in made])
    assert (found["rescues"], found["judged"], found["right"], found["right_share"]) == (3, 2, 1, 0.5)
    nothing = csd_precision.judged(pair, [])
    assert nothing["right_share"] is None and nothing["right_interval"] is None


def test_a_rescue_does_harm_if_the_answer_is_right_only_without_it(pair, monkeypatch):
    """Four rescues at an answer's first token; what the target would write behind it is given."""
    (problem,) = problems("test", 1, 0, ("boxes",))
    ours = begun(pair, problem, ours=True)
    right, wrong = ours[1:], world_ids(pair.tokenizer, [" 0", ".", " ####", " 0"])
    assert mark(problem, []).final_right is False
    prompts, texts = [], [[wrong, right, right, wrong], [right, wrong, right, wrong]]  # made, then refused

    def batch(target, asked, longest, stops):
        asked = list(asked)
        prompts.extend(asked)
        return [SimpleNamespace(ids=ids) for ids in (texts.pop(0) if asked else [])]

    monkeypatch.setattr(csd_precision, "decode_batch", batch)
    sample = [csd_precision.Rescue(problem, (), ours[0], 77)] * 4
    found = csd_precision.replayed(Lab(pair, 2), sample)
    assert (found["replayed"], found["harmed"], found["helped"], found["precision"]) == (4, 1, 1, 0.75)
    assert (found["made_right"], found["refused_right"]) == (0.5, 0.5)
    question = pair.prompt(problem.question)
    assert prompts == [[*question, ours[0]]] * 4 + [[*question, 77]] * 4
    nothing = csd_precision.replayed(Lab(pair, 2), [])
    assert nothing["precision"] is None


def test_precision_of_real_answers(pair, monkeypatch):
    monkeypatch.setattr(csd_precision, "RULES", ("csd-memory:lambda=0",))
    monkeypatch.setattr(csd_precision, "REPLAYED", 2)
    result = csd_precision.run(Lab(pair, 2, 3))
    (row,) = result["rows"]
    assert row["rescues"] >= row["judged"] >= row["right"] and row["replayed"] == 2
    assert "csd-memory" in csd_precision.text(result)
    assert len(csd_precision.figure(result).axes[0].patches) == 2


# ---- overhead --------------------------------------------------------------------------------------------------


def test_the_parts_of_the_rule_are_timed_and_nothing_is_learnt_meanwhile(pair, monkeypatch):
    monkeypatch.setattr(csd_overhead, "REPEATS", 2)
    taught, rule_on = [], csd_overhead.rule_on

    def watched(pair, memory, **more):
        taught.append((memory, memory.snapshot()))
        return rule_on(pair, memory, **more)

    monkeypatch.setattr(csd_overhead, "rule_on", watched)
    result = csd_overhead.run(Lab(pair, 2, 3))
    ((memory, before),) = taught
    learn, use, _ = memories.halves(Lab(pair, 2, 3))
    assert memory.frozen and memory.texts == 2 and memory.drafted == before.drafted and memory.pairs == before.pairs
    assert result["pairs"] == len(memory.pairs) > 0 and 0 < result["rescuing"] <= result["rounds"]
    assert result["unpacked_round_s"] is result["unpacked_share"] is None
    assert [row["part"] for row in result["rows"]][:2] == [csd_overhead.PLAIN, csd_overhead.CSD_VERIFY]
    assert all(row["seconds"] > 0 for row in result["rows"])
    assert result["rounds"] > 4 and result["overhead_share"] == result["overhead_s"] / result["round_s"]
    assert "microseconds a round more" in csd_overhead.text(result)
    assert len(csd_overhead.figure(result).axes[0].patches) == 5


def test_a_packed_draft_s_round_is_timed_both_ways(pair, monkeypatch):
    light = copy.deepcopy(pair.draft.model)
    monkeypatch.setattr(csd_overhead, "REPEATS", 1)
    monkeypatch.setattr(memories, "unpacked", lambda model: light)
    asked = []

    def rounds_with(lab, timed, prompts, longest):
        asked.append(timed.draft.model)
        found, _ = plain(lab, timed, prompts, longest)
        return found, 2.0 if timed.draft.model is light else 8.0

    plain = csd_overhead.rounds_with
    monkeypatch.setattr(csd_overhead, "rounds_with", rounds_with)
    result = csd_overhead.run(Lab(pair, 2, 3))
    assert asked == [pair.draft.model, light] and (result["round_s"], result["unpacked_round_s"]) == (8.0, 2.0)
    assert result["unpacked_share"] == pytest.approx(4 * result["overhead_share"])
    assert csd_overhead.text(result).splitlines()[-1].startswith("with the draft's weights unpacked once")


def test_all_of_them_are_commands():
    for module in (csd_ablation, csd_sweep, csd_learning, csd_transfer, csd_remedies, csd_soft, csd_patterns,
                   csd_rescues, csd_precision, csd_overhead, csd_tradeoff):  # fmt: skip
        name = module.__name__.rpartition(".")[2].replace("_", "-")
        assert find(name) is module and module.PROBLEMS >= 2 and module.WHAT
