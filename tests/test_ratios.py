"""Ratios of two arms on hand-worked numbers, and a file of calls that comes back, goes on or is refused.
Follows specdec_lib/ratios.py and kept_calls.py.
Left out: a benchmark that is stopped and goes on (test_bench.py).
"""

import json

import pytest

from specdec_lib.kept_calls import KeptCalls, packed, unpacked, unpacked_costs
from specdec_lib.ratios import mat_ratio, ratios, table
from specdec_lib.speed import Call
from specdec_lib.trace import Round, Trace


def call(arm, prompt, seconds, emitted, repeat=0, traced=True):
    """An answer whose rounds emitted so many tokens each."""
    rounds = [Round([0], [-1], [1.0], [1.0], [1.0], [], {}, [7] * n, "bonus") for n in emitted]
    return Call(
        arm, repeat, prompt, seconds, [7] * sum(emitted), Trace([1], "m", True, rounds=rounds) if traced else None
    )


PLAIN = [call(0, 0, 8.0, [1] * 8), call(0, 1, 4.0, [1] * 4)]
FAST = [call(1, 0, 2.0, [4, 4]), call(1, 1, 4.0, [1, 2, 1])]
SLOW = [call(2, 0, 4.0, [2] * 4), call(2, 1, 4.0, [1] * 4)]
THEIRS = [call(3, 0, 4.0, [8], traced=False), call(3, 1, 4.0, [4], traced=False)]


def test_two_arms_by_hand_each_over_the_other():
    found = {(r["method"], r["over"]): r for r in ratios("abcd", [*PLAIN, *FAST, *SLOW, *THEIRS])}
    assert len(found) == 12
    row = found["b", "c"]
    assert row["speed"] == pytest.approx(12 / 6 / (12 / 8)) and row["mat"] == pytest.approx(12 / 5 / (12 / 8))
    assert found["c", "b"]["speed"] == pytest.approx(1 / row["speed"])
    assert found["c", "b"]["mat"] == pytest.approx(1 / row["mat"])
    assert found["b", "d"]["speed"] == pytest.approx(4 / 3)
    assert found["b", "d"]["mat"] is None and found["b", "d"]["mat_interval"] is None
    text = table(list(found.values()), "a")
    assert "b over c" in text and "c over b" not in text and "b over a" not in text and "1.60" in text


def test_intervals_pair_the_prompts():
    """Everywhere half the rounds and half the seconds: the ratio is 2 whichever prompts are drawn."""
    shapes = list(enumerate(((1, 2), (3, 30), (2, 400))))  # tokens a round of the base, rounds of the other
    mine = [call(0, i, n / 2, [2 * k] * n) for i, (k, n) in shapes]
    base = [call(1, i, n, [k] * 2 * n) for i, (k, n) in shapes]
    row = ratios(["m", "b"], mine + base)[0]
    assert row["speed_interval"] == pytest.approx([2, 2]) and row["mat_interval"] == pytest.approx([2, 2])
    low, high = mat_ratio(FAST, SLOW, seed=3)[1]
    assert low < 1.6 < high and [low, high] == mat_ratio(FAST, SLOW, seed=3)[1]


def test_repeats_add_up_and_one_prompt_has_no_interval():
    twice = [*FAST[:1], call(1, 0, 6.0, [1, 1, 6], repeat=1)]
    base = [*SLOW[:1], call(2, 0, 4.0, [2] * 4, repeat=1)]
    value, interval = mat_ratio(twice, base, 0)
    assert value == pytest.approx(16 / 5 / 2) and interval is None


# ---- the file --------------------------------------------------------------------------------------------------

ORIGIN = {"arguments": {"n": 2}, "seed": 0, "date": "now"}
PROMPTS = [[1, 2], [3]]


def filled(file, origin=None):
    keep = KeptCalls(file, origin or ORIGIN)
    keep.begin(PROMPTS)
    keep.add("a", {"calls": [packed(call(1, 0, 2.0, [3, 1]))], "costs": (5, {1: 0.5}, {8: None})})
    keep.add("b", {"same": {"pld": True}})
    return keep


def test_calls_come_back_with_their_traces_and_costs(tmp_path):
    file = tmp_path / "x.calls"
    filled(file)
    again = KeptCalls(file, ORIGIN | {"date": "later"})
    again.begin(PROMPTS)
    rounds = call(1, 0, 2.0, [3, 1])
    rounds.trace.rounds[0].outcomes = {1: "exact"}
    assert unpacked(json.loads(json.dumps(packed(rounds)))) == rounds
    assert unpacked(again.get("a")["calls"][0]) == call(1, 0, 2.0, [3, 1])
    assert unpacked_costs(again.get("a")["costs"]) == (5, {1: 0.5}, {8: None})
    assert again.get("b") == {"same": {"pld": True}} and again.get("c") is None
    again.done()
    assert not file.exists()


def test_a_line_cut_while_it_was_written_is_dropped(tmp_path):
    file = tmp_path / "x.calls"
    filled(file)
    file.write_text(file.read_text()[:-5])
    again = KeptCalls(file, ORIGIN)
    again.begin(PROMPTS)
    assert again.get("a") and again.get("b") is None
    again.add("b", {"same": {}})
    third = KeptCalls(file, ORIGIN)
    third.begin(PROMPTS)
    assert third.get("b") == {"same": {}}


def test_calls_of_another_run_and_files_that_are_none_are_refused(tmp_path):
    file = tmp_path / "x.calls"
    filled(file)
    for origin, prompts, said in (
        (ORIGIN | {"seed": 1}, PROMPTS, "its seed differ"),
        (ORIGIN | {"arguments": {"n": 3}}, PROMPTS, "arguments"),
        (ORIGIN, [[1, 2], [4]], "prompts"),
    ):
        with pytest.raises(ValueError, match=said):
            KeptCalls(file, origin).begin(prompts)
    whole = file.read_text()
    for damaged in ("", "nonsense\n", "[1]\n", whole[1:], whole.replace('"key"', '"lock"')):
        file.write_text(damaged)
        with pytest.raises(ValueError, match="no whole calls"):
            KeptCalls(file, ORIGIN).begin(PROMPTS)
