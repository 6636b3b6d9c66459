"""Figures of a benchmark on hand-worked numbers: ratios of totals, intervals, predictions, what explains them.
Follows specdec_lib/speed.py; the formulas are those of Leviathan et al. 2023 (arXiv 2211.17192).
Left out: real calls (test_bench.py).
"""

from types import SimpleNamespace

import pytest

from specdec_lib.speed import (
    ORDER,
    Call,
    Costs,
    groups,
    same_text,
    speeds,
    speedup,
    speedup_interval,
    table,
    trace_figures,
)
from specdec_lib.tasks import Task
from specdec_lib.trace import Round, Trace

OURS = SimpleNamespace(lossless=True, has_draft_model=True, fixed_gamma=2)
LOSSY = SimpleNamespace(lossless=False, has_draft_model=True, fixed_gamma=2)
DESIGN = [
    "method", "settings", "lossless", "accuracy", "accuracy_interval", "mat", "kept", "alpha", "gamma", "c",
    "tok_per_s", "speedup", "speedup_interval", "predicted_speedup", "formula_speedup", "share",
]  # fmt: skip


def calls(seconds, tokens=100, arm=0, repeat=0):
    """One call a prompt. tokens: of each answer, or one number for all."""
    tokens = [tokens] * len(seconds) if isinstance(tokens, int) else tokens
    pairs = zip(seconds, tokens, strict=True)
    return [Call(arm, repeat, i, s, list(range(t)), None) for i, (s, t) in enumerate(pairs)]


# ---- speed-up --------------------------------------------------------------------------------------------------


def test_a_speedup_is_the_ratio_of_totals_not_the_mean_of_ratios():
    assert speedup(calls([5, 2]), calls([10, 1])) == pytest.approx(11 / 7)  # the mean of the ratios is 1.25


def test_an_arm_that_stops_early_is_not_faster_for_it():
    assert speedup(calls([5, 10], [50, 100]), calls([10, 10])) == pytest.approx(1.0)
    assert speeds(calls([4], [947]), calls([4], [1000]), is_base=False, seed=0)["speedup"] == pytest.approx(0.947)


def test_repeats_add_up_before_anything_is_divided():
    mine = calls([5, 2]) + calls([3, 4], repeat=1)
    base = calls([10, 1]) + calls([8, 3], repeat=1)
    assert speedup(mine, base) == pytest.approx(22 / 14)
    assert speeds(mine, base, is_base=False, seed=0)["tok_per_s"] == pytest.approx(400 / 14)


def test_without_tokens_there_is_no_speedup():
    nothing = calls([1.0, 1.0], 0)
    assert speedup(nothing, nothing) is None
    assert speedup_interval(nothing, nothing, seed=0) is None


def test_the_interval_pairs_the_arms_prompt_by_prompt():
    base = calls([1, 10, 100, 3, 30])
    twice = calls([c.seconds / 2 for c in base])
    assert speedup_interval(twice, base, seed=0) == pytest.approx([2, 2])


def test_the_interval_holds_the_figure_widens_with_the_prompts_spread_and_follows_the_seed():
    base = calls([10.0] * 12)
    narrow = calls([5 + 0.01 * (i * i % 13) for i in range(12)])
    wide = calls([5 + 0.4 * (i * i % 13) for i in range(12)])
    spans = []
    for mine in (narrow, wide):
        low, high = speedup_interval(mine, base, seed=3)
        assert low < speedup(mine, base) < high
        assert [low, high] == speedup_interval(mine, base, seed=3)
        assert [low, high] != speedup_interval(mine, base, seed=4)
        spans.append(high - low)
    assert spans[1] > 10 * spans[0]


def test_one_prompt_gives_no_interval_and_the_base_has_none():
    assert speedup_interval(calls([1.0]), calls([2.0]), seed=0) is None
    assert speeds(calls([1.0, 2.0]), calls([1.0, 2.0]), is_base=True, seed=0)["speedup_interval"] is None


def test_every_kind_of_prompt_has_its_own_speedup():
    tasks = [Task("a", "copy"), Task("b", "prose"), Task("c", "copy")]
    found = groups(calls([1, 10, 1]), calls([10, 10, 2]), tasks)
    assert {g: (row["prompts"], row["speedup"]) for g, row in found.items()} == {"copy": (2, 6.0), "prose": (1, 1.0)}
    assert found["copy"]["mat"] is None
    low, high = found["copy"]["speedup_interval"]
    assert low <= 6 <= high and found["prose"]["speedup_interval"] is None


def test_same_text_counts_answers_of_every_repeat_against_the_first_plain_ones():
    base = [Call(0, 0, 0, 1.0, [1, 2], None), Call(0, 0, 1, 1.0, [3], None), Call(0, 1, 0, 1.0, [9], None)]
    mine = [Call(1, 0, 0, 1.0, [1, 2], None), Call(1, 0, 1, 1.0, [3, 4], None), Call(1, 1, 0, 1.0, [1, 2], None)]
    assert same_text(mine, base) == pytest.approx(2 / 3)


# ---- predictions -----------------------------------------------------------------------------------------------


def drafted_round(accepted, gamma=2, seconds=(0.3, 1.0, 0.1, 0.1), emitted=None):
    """A chain of gamma tokens, the first `accepted` of them accepted; p = q = overlap = 1/2 everywhere."""
    nodes = range(1, gamma + 1)
    outcomes = {node: "exact" if node <= accepted else "rejected" for node in nodes if node <= accepted + 1}
    emitted = accepted + 1 if emitted is None else emitted
    half, last = [0.5] * (gamma + 1), "bonus" if accepted == gamma else "recovered"
    if emitted <= accepted:
        last = "accepted"
    path = [node for node in nodes if node <= min(accepted, emitted)]
    return Round(
        list(range(gamma + 1)), [-1, *range(gamma)], half, half, half, path, outcomes, [7] * emitted, last, *seconds
    )


def plain_round(seconds):
    return Round([0], [-1], [1.0], [1.0], [1.0], [], {}, [7], "bonus", 0.0, seconds, 0.0, 0.0)


def call_of(rounds, arm, temperature=0.0, prefill_s=0.5):
    trace = Trace([1], "m", True, {"temperature": temperature}, rounds=rounds, prefill_s=prefill_s)
    return Call(arm, 0, 0, prefill_s + sum(r.seconds for r in rounds), trace.ids, trace)


def costs(one=1.0, three=1.2, draft=0.1):
    found = Costs()
    found.add(50, {1: one, 3: three}, {2: draft})
    return found


FOUR = [drafted_round(2), drafted_round(2), drafted_round(0), drafted_round(1)]


def test_prediction_and_attained_on_a_hand_worked_case():
    row = trace_figures([call_of(FOUR, 1)], [call_of([plain_round(1.05)] * 9, 0)], OURS, costs())
    # accepted at depth 1: 3 of 4, at depth 2: 2 of 3, so E[emitted] = 1 + 3/4 + 1/2; a round of 0.2 + 1.2 s
    assert row["predicted_speedup"] == pytest.approx(2.25 / 1.4)
    assert row["mat"] == pytest.approx(2.25)
    assert row["rounds_speedup"] == pytest.approx(2.25 / 1.5 * 1.05)
    assert row["attained"] == pytest.approx(0.98)
    assert row["explained"] == pytest.approx({"cut": 1.0, "plain_step": 1.05, "round": 1.4 / 1.5})
    assert row["c"] == pytest.approx(0.15 / 1.05)
    assert row["share"] == pytest.approx({"draft": 0.2, "score": 2 / 3, "verify": 1 / 15, "other": 1 / 15})
    assert row["prefill_share"] == pytest.approx(0.5 / 6.5)
    assert row["drafted"] == 2 and row["kept"] == pytest.approx(1.25)


def test_the_formula_takes_alpha_when_sampling_and_accepted_over_tested_when_greedy():
    plain = [call_of([plain_round(1.0)], 0)]
    greedy = trace_figures([call_of(FOUR, 1)], plain, OURS, costs())
    sampled = trace_figures([call_of(FOUR, 1, temperature=1.0)], plain, OURS, costs())
    lossy = trace_figures([call_of(FOUR, 1, temperature=1.0)], plain, LOSSY, costs())
    tested, overlap = 5 / 7, 0.5  # five of seven tested tokens were accepted
    for row, rate in ((greedy, tested), (sampled, overlap), (lossy, tested)):
        assert row["formula_speedup"] == pytest.approx((1 + rate + rate**2) / (2 * 0.15 + 1))
    assert greedy["alpha"] is None and sampled["alpha"] == pytest.approx(0.5)


def test_what_explains_the_difference_multiplies_up_to_it_and_shows_a_cut_round():
    cut = [*FOUR, drafted_round(2, emitted=1, seconds=(0.4, 1.3, 0.2, 0.0))]
    row = trace_figures([call_of(cut, 1)], [call_of([plain_round(1.1)] * 3, 0)], OURS, costs(1.02, 1.3, 0.11))
    product = 1.0
    for factor in row["explained"].values():
        product *= factor
    assert product == pytest.approx(row["attained"])
    assert row["explained"]["cut"] == pytest.approx((10 / 5) / (1 + 4 / 5 + 4 / 5 * 3 / 4))


def test_a_draft_length_that_changes_has_c_but_no_prediction_and_a_drafter_without_model_neither():
    plain = [call_of([plain_round(1.0)], 0)]
    for has_draft_model, c in ((True, pytest.approx(0.15)), (False, None)):
        arm = SimpleNamespace(lossless=True, has_draft_model=has_draft_model, fixed_gamma=None)
        row = trace_figures([call_of(FOUR, 1)], plain, arm, costs())
        assert row["c"] == c and row["mat"] == pytest.approx(2.25) and row["rounds_speedup"] is not None
        assert {row[name] for name in ("predicted_speedup", "formula_speedup", "attained", "explained")} == {None}


def test_costs_are_medians_over_the_prompts():
    found = Costs()
    for context, one, draft in ((30, 1.0, 0.1), (90, 9.0, 0.9), (40, 2.0, 0.2)):
        found.add(context, {1: one, 3: 2 * one}, {2: draft, 4: None})
    assert found.context == 40
    assert found.target_s == {1: 2.0, 3: 4.0}
    assert found.draft_step_s == {2: 0.2}  # 4 did not fit the draft


def test_no_rounds_means_no_figures_and_no_negative_ones():
    names = ("mat", "kept", "alpha", "c", "share", "rounds_speedup", "predicted_speedup", "formula_speedup", "attained")
    empty = [Call(1, 0, 0, 1.0, [], Trace([1], "m", True))]
    for mine in (empty, calls([1.0])):  # no rounds; no trace
        row = trace_figures(mine, [call_of([plain_round(1.0)], 0)], OURS, costs())
        assert {row[name] for name in names} == {None}


def test_a_draft_that_never_drafted_has_no_c_and_predicts_one():
    idle = [drafted_round(0, gamma=0)] * 3
    row = trace_figures([call_of(idle, 1)], [call_of([plain_round(1.0)], 0)], OURS, costs())
    assert row["c"] is None and row["formula_speedup"] is None and row["drafted"] == 0 and row["kept"] == 0


# ---- the table -------------------------------------------------------------------------------------------------


def row(method, speedup, **more):
    watched = {"prompts": 2, "tokens": 9, "target_passes": 4, "draft_passes": 8, "outside_passes": None}
    return dict.fromkeys(ORDER) | {"method": method, "settings": {"temperature": 0.0}, "speedup": speedup} | {
        "watched": watched, "tok_per_s": 10.0, **more
    }  # fmt: skip


def test_rows_open_with_the_fixed_fields():
    assert list(ORDER[: len(DESIGN)]) == DESIGN


def test_rows_below_one_are_shown_and_named_and_what_does_not_apply_is_a_dash():
    both = {"copy": {"speedup": 1.23}, "prose": {"speedup": None}}
    explained = {"cut": 0.9, "plain_step": 1.0, "round": 0.8}
    slow = row("lossless", 0.71, settings={"gamma": 8, "temperature": 0.0}, explained=explained, attained=0.72,
               rounds_speedup=0.8, prefill_share=0.1, predicted_speedup=1.1, groups=both)  # fmt: skip
    found = {
        "rows": [row("autoregressive", 1.0, groups=both), slow],
        "n": 2,
        "repeats": 3,
        "interrupted": True,
        "context": 40,
    }
    text = table(found)
    line = next(line for line in text.splitlines() if line.startswith("lossless:gamma=8 "))
    assert "0.71" in line and "1.10" in line and " -" in line and "nan" not in text.lower() and "None" not in text
    assert text.splitlines()[-1].split() == ["lossless:gamma=8", "1.23", "-"]
    both["copy"] = {"speedup": 0.83, "speedup_interval": [0.7, 0.95]}
    both["prose"] = {"speedup": 0.83, "speedup_interval": [0.7, 1.05]}
    lines = table(found).splitlines()
    assert lines[-2].split() == ["lossless:gamma=8", "0.83<", "0.83"] and "lies below 1" in lines[-1]
    assert "Slower than plain decoding here: lossless:gamma=8." in text
    assert "stopped early" in text and "ratio of totals" in text
