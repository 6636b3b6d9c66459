"""Recorded texts: files that round-trip or are refused, replays that equal the model's own rounds, figures by hand.
Follows specdec_lib/experiments/recording.py, next_next.py, retrieval.py, index_cost.py, float_texts.py and
specdec_lib/pricing.py.
Left out: how a picture looks (test_experiments.py draws one of each).
"""

import copy
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from retrieval import context_of

from specdec_lib import conversation, pricing
from specdec_lib.decode import decode
from specdec_lib.drafters import CostAware, LogitSpec, LogitSpecCost, PromptLookup
from specdec_lib.drafters.logitspec_cost import COPY, FOLLOWED, GUESS
from specdec_lib.experiments import float_texts, index_cost, next_next, recording, retrieval, retrieval_parts
from specdec_lib.experiments.base import Lab, Rows
from specdec_lib.model import CausalLM, TableModel
from specdec_lib.pricing import round_times

TIMES, FLAT = {1: 1.0, 2: 1.1, 64: 4.0}, {1: 1.0, 64: 1.0}
TARGET = CausalLM(tiny.llama())


def recorded(prompt, group="a", n=14, target=TARGET):
    trace = decode(target, prompt, n)
    return recording._rows(target, group, prompt, trace)


TEXTS = [recorded(prompt, group) for prompt, group in zip(tiny.prompts(3), "aab", strict=True)]


def lab(n=2):
    return SimpleNamespace(
        pair=SimpleNamespace(target=None, name="none"), n=n, seed=0, rows=Rows(),
        watch=lambda label, items: items,
    )  # fmt: skip


def results(monkeypatch):
    """A small result of each experiment here, for pictures."""
    monkeypatch.setattr(next_next, "texts_of", lambda lab: TEXTS)
    monkeypatch.setattr(retrieval, "texts_of", lambda lab: TEXTS)
    monkeypatch.setattr(retrieval, "round_times", lambda target: TIMES)
    monkeypatch.setattr(retrieval, "GPUS", {"H100": 295.0})
    monkeypatch.setattr(index_cost, "LENGTHS", (100, 200))
    found = {"next-next": next_next, "retrieval": retrieval, "index-cost": index_cost}
    return {name: module.run(lab()) for name, module in found.items()}


# ---- texts -----------------------------------------------------------------------------------------------------


def test_a_recording_comes_back_from_its_file(tmp_path):
    file = tmp_path / "rows.safetensors"
    recording.save(file, TEXTS, {"seed": 3})
    texts, origin = recording.load(file)
    assert origin == {"seed": 3}
    for ours, theirs in zip(TEXTS, texts, strict=True):
        assert (ours.group, ours.prompt, ours.text) == (theirs.group, theirs.prompt, theirs.text)
        assert (ours.best == theirs.best).all() and np.allclose(ours.log_probs, theirs.log_probs, atol=0.05)


@pytest.mark.parametrize("largest", [65_535, 65_536, 70_000])
def test_ids_above_65535_survive(tmp_path, largest):
    text = recording.Recorded("a", [largest, 1], [60_000, 2], np.array([[60_000, 3], [2, 1]]), np.zeros((2, 2)))
    recording.save(tmp_path / "rows", [text], {})
    again = recording.load(tmp_path / "rows")[0][0]
    assert (again.prompt, again.text, again.best.tolist()) == (text.prompt, text.text, text.best.tolist())


def test_a_damaged_or_foreign_file_is_refused(tmp_path):
    file = tmp_path / "rows.safetensors"
    recording.save(file, TEXTS, {})
    whole = file.read_bytes()
    wrong = recording.Recorded("a", [1], [2, 3], np.array([[2, 1], [1, 3]]), np.zeros((2, 2)))
    recording.save(tmp_path / "wrong", [wrong], {})
    (tmp_path / "cut").write_bytes(whole[:-10])
    (tmp_path / "text").write_text("not a recording, but long enough to be read as one")
    for name in ("wrong", "cut", "text"):
        with pytest.raises(ValueError, match="no whole recording"):
            recording.load(tmp_path / name)


def test_a_text_is_cut_where_two_passes_differ_in_the_argmax():
    prompt = tiny.prompts(3)[1]
    trace = decode(TARGET, prompt, 12)
    trace.rounds[6].emitted[0] = (trace.rounds[6].emitted[0] + 1) % tiny.VOCAB
    assert recording._rows(TARGET, "a", prompt, trace).text == trace.ids[:6]


@pytest.mark.parametrize("make", [LogitSpec, PromptLookup, lambda: LogitSpecCost(TIMES)])
def test_a_replay_has_the_rounds_of_the_model_itself(make):
    for text in TEXTS:
        own = decode(TARGET, text.prompt, len(text.text), make())
        again = recording.replay(make(), text)
        assert [(r.parents, len(r.emitted)) for r in again.rounds] == [(r.parents, len(r.emitted)) for r in own.rounds]


def test_rows_that_no_text_went_through_are_flat():
    model = recording.Replay(TEXTS[0])
    model.feed(model.prompt[:-1])
    right, wrong = model.text[0], (model.text[0] + 1) % model.vocab_size
    rows = model.score(torch.tensor([model.prompt[-1], right, wrong]), [-1, 0, 0]).logits
    assert rows[0].argmax() == right and rows[1].argmax() == model.text[1]
    assert (rows[2] == recording.UNKNOWN).all()


def test_the_shipped_recordings_are_whole_and_of_six_kinds():
    for pair, most in (("smollm2", 60), ("smollm2-chat", 24)):
        texts, origin = recording.load(recording.file_of(pair))
        assert len(texts) == most and len({text.group for text in texts}) == 6 and origin["dtype"] == "float32"


def test_a_lab_gets_its_first_texts_or_is_told_how_to_record_some():
    few = lab(2)
    few.pair.name = "smollm2"
    assert len(recording.texts_of(few)) == 2
    few.n = 61
    with pytest.raises(ValueError, match="holds 60 texts, not 61"):
        recording.texts_of(few)
    few.pair.name = "nobody"
    with pytest.raises(ValueError, match="specdec record nobody"):
        recording.texts_of(few)


# ---- figures ---------------------------------------------------------------------------------------------------


def test_ranks_of_a_worked_example(monkeypatch):
    """Text 5 6 7 8: 6 is second in the row that emitted 5, 7 in the row that emitted 6, 8 is not in that of 7."""
    text = recording.Recorded("a", [1], [5, 6, 7, 8], np.array([[5, 6], [6, 7], [7, 1], [8, 2]]), np.zeros((4, 2)))
    monkeypatch.setattr(next_next, "texts_of", lambda lab: [text])
    (row, every) = next_next.run(lab())["rows"]
    assert row["steps"] == 3 and row["share"]["1"] == 0 and row["share"]["2"] == row["share"]["64"] == 2 / 3
    assert every["group"] == "all" and every["share"] == row["share"] and every["top_60_interval"] is None


def test_the_figures_of_a_drafter_are_those_of_its_rounds():
    row = retrieval.row_of("pld", PromptLookup(), TEXTS, TIMES)
    rounds = [r for text in TEXTS for r in recording.replay(PromptLookup(), text).rounds]
    tokens = sum(len(text.text) for text in TEXTS)
    assert row["mat"] == tokens / len(rounds) and row["rounds"] == len(rounds)
    assert row["nothing"] == sum(len(r.tokens) == 1 for r in rounds) / len(rounds)
    assert row["nodes"] == sum(len(r.tokens) - 1 for r in rounds) / len(rounds)
    assert row["emitted"]["1"] == sum(len(r.emitted) == 1 for r in rounds) / len(rounds)
    assert sum(row["emitted"].values()) == pytest.approx(1)
    assert sum(int(n) * share for n, share in row["emitted"].items()) == pytest.approx(row["mat"])
    seconds = sum(np.interp(len(r.tokens), list(TIMES), list(TIMES.values())) for r in rounds)
    assert row["speedup_by_t"] == pytest.approx(tokens / seconds)
    assert list(row["groups"]) == ["a", "b"]


def test_a_drafter_over_another_is_a_ratio_of_mats_with_its_texts_drawn_together():
    row, base = (
        {"mat": mat, "speedup_by_t": speedup, "per_text": per_text}
        for mat, speedup, per_text in (
            (2.0, 1.0, [[8, 4, 16.0], [60, 30, 120.0]]),
            (1.6, 0.5, [[8, 5, 32.0], [16, 10, 64.0]]),
        )
    )
    found = retrieval.over(row, base)
    assert found["mat"] == pytest.approx(1.25) and found["interval"] == pytest.approx((1.25, 1.25))
    assert found["speedup"] == 2 and found["speedup_interval"] == pytest.approx((2, 2))
    rows = {
        name: retrieval.row_of(name, make(), TEXTS, TIMES) for name, make in retrieval_parts.drafters(TIMES).items()
    }
    low, high = retrieval.over(rows["logitspec"], rows["pld"])["interval"]
    assert low <= rows["logitspec"]["mat"] / rows["pld"]["mat"] <= high and low < high


# A prompt 1 2 3 1 and the text 2 4 9 5, with the three best tokens of each row.
SMALL = recording.Recorded(
    "a",
    [1, 2, 3, 1],
    [2, 4, 9, 5],
    np.array([[2, 4, 6], [4, 9, 6], [9, 7, 6], [5, 7, 6]]),
    np.log([[0.5, 0.3, 0.2]] * 4),
)


@pytest.mark.parametrize(
    ("drafter", "rounds"),
    [
        (PromptLookup(), 1),  # 1 stood before; 4 and 9 did not
        (LogitSpec(guesses=0), 1),
        (LogitSpec(retrieval=False), 0),  # it proposes, and asks nothing of the index
        (LogitSpec(), 2),  # before 4 none, but of the guesses after it 1, 2 and 3 stood before
        (CostAware(LogitSpec(), FLAT), 2),
        (LogitSpecCost(FLAT), 2),
    ],
)
def test_a_round_retrieves_where_a_key_stood_before(drafter, rounds):
    assert retrieval.replays(drafter, [SMALL, SMALL])[1] == 2 * rounds


def test_an_index_may_take_in_the_root_a_step_later():
    """The root 1 is not yet there: what followed the first 1 ends at 3."""
    for drafter, proposed in ((LogitSpec(), [2, 3, 1]), (retrieval_parts.late(), [2, 3])):
        assert drafter.propose(context_of(SMALL.prompt)).tokens.tolist() == [1, *proposed]


def test_nodes_apart_are_counted_leaf_by_leaf():
    #   0 - 1 - 2, 1 - 3, 0 - 4: chains 1 2, 1 3 and 4
    assert retrieval.nodes_apart([-1, 0, 1, 1, 0]) == 6 and retrieval.nodes_apart([-1]) == 1
    steep = {1: 1.0, 64: 64.0}
    row = retrieval.row_of("x", LogitSpecCost(FLAT), TEXTS, steep)
    assert row["apart_by_t"] < row["speedup_by_t"]


@pytest.mark.parametrize(
    ("left_out", "kinds"),
    [
        ({}, (FOLLOWED, GUESS, COPY)),
        ({"without": COPY}, (FOLLOWED, GUESS)),
        ({"without": GUESS}, (FOLLOWED, COPY)),
        ({"bare": True}, (FOLLOWED, GUESS, COPY)),
        ({"guesses": 2}, (FOLLOWED, GUESS, COPY)),
    ],
    ids=str,
)
def test_a_part_of_logitspec_cost_makes_no_other_offers(left_out, kinds):
    drafter, whole = retrieval_parts.Part(FLAT, **left_out), LogitSpecCost(FLAT)
    for text in TEXTS:
        trace = recording.replay(drafter, text)
        assert {kind for kind, *_ in drafter.odds.counts} <= set(kinds)
        if not left_out:
            assert [r.tokens for r in trace.rounds] == [r.tokens for r in recording.replay(whole, text).rounds]
    for at in (drafter, whole):
        at.index.sync([5, 6, 7, 8, 5, 6])
        at.tail, at.best, at.copies = [5, 6], [6, 9, 7], {6: [4], 8: [1], 9: [3]}
    offered = [token for token, _ in drafter.offers([])]
    assert (4 in offered) == (COPY in kinds) and (9 in offered) == (GUESS in kinds)
    assert list(drafter.offers([7]))[0] == next(whole.offers([7]))  # below what followed, whatever the row ranks it
    assert list(drafter.offers([9])) == ([] if "bare" in left_out or COPY not in kinds else [(3, (COPY, 0))])


def test_priors_are_the_shares_of_the_recorded_chat_texts():
    texts, _ = recording.load(recording.file_of("smollm2-chat"))
    found = retrieval.odds_of(texts)
    assert len(found) > 30 and all(abs(odd["accepted"] - odd["prior"] * odd["tested"]) < 4 for odd in found)


@pytest.mark.parametrize(
    ("ids", "drafted"),
    [
        ([1, 2, 9, 9, 1, 2], [9, 9, 1]),  # after the key of two, leftmost, stand four tokens
        ([1, 2, 9, 1, 2], [9, 1, 2]),
        ([1, 2, 1, 2], []),  # after 1 2 and after 2 stand two tokens: too few
        ([2, 5, 6, 7, 1, 2, 1, 2], [5, 6, 7]),  # after 1 2 stand two tokens; after 2 alone seven
    ],
)
def test_prompt_lookup_of_whole_continuations(ids, drafted):
    assert retrieval_parts.Whole(3).propose(context_of(ids)).tokens.tolist() == [ids[-1], *drafted]


def test_what_a_gpu_would_gain_is_mat_where_t_is_flat(monkeypatch):
    found = results(monkeypatch)["retrieval"]
    rows = {row["drafter"]: row for row in found["rows"]}
    assert rows["logitspec"]["gpus"]["H100"]["speedup"] == pytest.approx(rows["logitspec"]["mat"])
    assert set(rows) == set(retrieval_parts.drafters(TIMES))
    parts = {name for name, row in rows.items() if row["over_all"]}
    assert parts == {part for parts in retrieval_parts.PARTS.values() for part in parts}
    assert all(odd["tested"] > 0 and 0 < odd["prior"] < 1 for odd in found["odds"])


def test_the_index_is_timed_at_every_length(monkeypatch):
    rows = results(monkeypatch)["index-cost"]["rows"]
    assert [row["length"] for row in rows] == [100, 200] and all(row["add_us"] > 0 < row["find_us"] for row in rows)
    assert rows[0]["keys"] < rows[1]["keys"]


def test_microseconds_are_of_one_token_and_one_look_up(monkeypatch):
    """A clock that moves a second a reading: a batch of 20 takes a second."""
    clock = iter(range(10**6))
    monkeypatch.setattr(index_cost, "LENGTHS", (50,))
    monkeypatch.setattr(index_cost.time, "perf_counter", lambda: next(clock))
    (row,) = index_cost.run(lab())["rows"]
    assert row["add_us"] == row["find_us"] == 1e6 / 20


def test_a_round_time_leaves_drafting_and_the_warm_up_out(monkeypatch):
    taken = iter([100.0, 1.0])

    class Fake:
        def __init__(self, target, drafter):
            pass

        def start(self, prompt):
            return self

        def rounds(self, n):
            yield SimpleNamespace(seconds=next(taken) + 0.25, draft_s=0.25)

    monkeypatch.setattr(pricing, "Session", Fake)
    assert round_times(TableModel.random(30, 0), (4,), repeats=1) == {4: 1.0}


def test_round_times_are_of_trees_of_each_size(monkeypatch):
    seen, stars = [], []
    target = TableModel.random(30, 0)
    score = target.score

    def watched(tokens, parents, *rest):
        seen.append(len(tokens))
        stars.append(parents == [-1, *[0] * (len(tokens) - 1)])
        return score(tokens, parents, *rest)

    monkeypatch.setattr(target, "score", watched)
    times = round_times(target, (1, 3, 8), repeats=2)
    assert list(times) == [1, 3, 8] and all(seconds > 0 for seconds in times.values())
    assert seen == [1, 3, 8] * 3 and all(stars) and target.length == 0
    with pytest.raises(ValueError, match="repeats"):
        round_times(target, repeats=0)
    with pytest.raises(ValueError, match="nodes of a tree"):
        round_times(target, (0, 1))


# ---- texts in float32 ------------------------------------------------------------------------------------------


def test_texts_are_compared_in_float32_kind_by_kind_and_once(pair, monkeypatch):
    half = replace(pair, target=CausalLM(copy.deepcopy(pair.target.model).bfloat16()))
    with_dtypes, decoded = [], float_texts.decode

    def noting(target, *rest, **more):
        with_dtypes.append(target.model.dtype)
        return decoded(target, *rest, **more)

    monkeypatch.setattr(float_texts, "decode", noting)
    lab = Lab(half, 3, 5)
    rows = float_texts.run(lab)["rows"]
    kinds = list(dict.fromkeys(problem.family for problem in lab.problems()))
    assert [(row["group"], row["method"]) for row in rows] == [
        (kind, name) for kind in kinds for name in ("autoregressive", "pld", "logitspec-cost", "logitspec")
    ]
    assert sorted(i for row in rows if row["method"] == "autoregressive" for i in row["numbers"]) == [0, 1, 2]
    assert float_texts.text({"rows": rows}).startswith("the target's weights in all arms: float32\n")
    assert all(
        row["equal"] == row["of"] and row["different"] == [] for row in rows if row["method"] != "autoregressive"
    )
    assert set(with_dtypes) == {torch.float32} and half.target.model.dtype == torch.bfloat16
    monkeypatch.setattr(float_texts, "decode", lambda *a, **k: pytest.fail("decoded again"))
    assert float_texts.run(lab)["rows"] == rows


def test_a_text_that_is_not_plain_decodings_is_named(pair, monkeypatch):
    plain = float_texts.decode

    def slipping(target, prompt, longest, drafter, *rest, **more):
        trace = plain(target, prompt, 5, drafter, *rest, **more)
        ids = [7, *trace.ids[1:]] if isinstance(drafter, PromptLookup) and prompt == last else trace.ids
        return SimpleNamespace(ids=ids)

    lab = Lab(pair, 3, 5)
    last = pair.prompt(lab.problems()[-1].question)
    monkeypatch.setattr(float_texts, "decode", slipping)
    result = float_texts.run(lab)
    shown = float_texts.text(result)
    assert "NOT equal: pld, prompts [2]" in shown and shown.count("NOT") == 1
    assert [line.split()[0] + line[-6:] for line in shown.splitlines()[2:5]] == [
        "pld2 of 3", "logitspec-cost3 of 3", "logitspec3 of 3"
    ]  # fmt: skip
    (bars,) = float_texts.figure(result).axes[0].containers
    assert [bar.get_height() for bar in bars] == [2, 3, 3]


def test_a_pair_that_reads_english_is_asked_every_turn_of_every_question(pair, monkeypatch):
    prompts = []

    def noting(target, prompt, longest, *rest, **more):
        prompts.append(tuple(prompt))
        return SimpleNamespace(ids=[5, 6])

    monkeypatch.setattr(float_texts, "decode", noting)
    monkeypatch.setattr(conversation, "decode", lambda *a, **k: SimpleNamespace(ids=[5, 6]))
    monkeypatch.setattr(float_texts, "METHODS", ("pld",))
    rows = float_texts.run(Lab(replace(pair, name="small"), 60))["rows"]
    assert float_texts.together([row for row in rows if row["method"] == "pld"]) == (70, 70)
    assert sorted(row["of"] for row in rows if row["method"] == "pld") == [10, 10, 10, 10, 10, 20]
    assert len(prompts) == 2 * 70 and rows[0]["group"] == "mt_bench"


def test_a_quantised_target_has_no_texts_in_float32():
    target = SimpleNamespace(model=SimpleNamespace(is_quantized=True))
    with pytest.raises(ValueError, match="small's target is quantised"):
        float_texts.in_float32(SimpleNamespace(name="small", target=target))
