"""Traces: saved, loaded, replayed; files that are no whole trace are refused; figures on rounds made by hand.
Follows specdec_lib/trace.py, whose words are defined there.
Left out: what a trace looks like (test_render.py).
"""

import json

import pytest
import torch
from laws import SAMPLED
from test_decode import lms
from tiny import generated

from specdec_lib.decode import Stops, decode
from specdec_lib.drafters import ModelDrafter, NoDrafter
from specdec_lib.model import TableModel
from specdec_lib.sampling import SamplingSettings
from specdec_lib.trace import (
    Round,
    Trace,
    acceptance_by_position,
    accepted_over_drafted,
    accepted_over_tested,
    alpha,
    kept,
    mat,
    time_shares,
)
from specdec_lib.verifiers import Lenience


def chain(drafted, accepted, overlaps=None, emitted=None, last=None, **seconds):
    """A round of a chain; accepted drafts before the first rejection."""
    outcomes = {node: "exact" if node <= accepted else "rejected" for node in range(1, min(accepted + 1, drafted) + 1)}
    emitted = accepted + 1 if emitted is None else emitted
    last = last or ("bonus" if accepted == drafted else "recovered")
    return Round(
        tokens=list(range(drafted + 1)), parents=list(range(-1, drafted)), target_probs=[0.5] * (drafted + 1),
        draft_probs=[1.0] * (drafted + 1), overlaps=[0.0, *(overlaps or [0.5] * drafted)],
        path=list(range(1, min(accepted, emitted) + 1)), outcomes=outcomes, emitted=[9] * emitted, last=last, **seconds,
    )  # fmt: skip


def trace_of(*rounds):
    return Trace([1], "lossless", True, rounds=list(rounds), reason="length")


# ---- saved and loaded ------------------------------------------------------------------------------------------


def sampled_trace(seed=0, n=40, siblings=()):
    target, draft = lms()
    return decode(target, [1, 2, 3], n, ModelDrafter(draft, 3, siblings), settings=SAMPLED, seed=seed)


def test_settings_with_bad_words_survive_saving(tmp_path):
    settings = SamplingSettings(temperature=0.5, bad_words_ids=((1,), (2, 3)))
    trace = decode(TableModel.random(5, seed=1), [0], 4, settings=settings)
    trace.save(tmp_path / "t.jsonl")
    assert Trace.load(tmp_path / "t.jsonl") == trace
    assert trace.settings == {"temperature": 0.5, "bad_words_ids": [[1], [2, 3]]}


def test_a_trace_comes_back_as_it_was(tmp_path):
    for siblings in ((), (2, 2)):
        trace = sampled_trace(siblings=siblings)
        trace.settings, trace.provenance = {"temperature": 1.0}, {"seed": 0, "device": "cpu"}
        trace.save(tmp_path / "t.jsonl")
        assert Trace.load(tmp_path / "t.jsonl") == trace


def test_several_traces_share_a_file(tmp_path):
    traces = [sampled_trace(seed, n) for seed, n in ((1, 5), (2, 0), (3, 20))]
    for trace in traces:
        trace.save(tmp_path / "t.jsonl", append=True)
    assert Trace.load_all(tmp_path / "t.jsonl") == traces
    assert Trace.load(tmp_path / "t.jsonl") == traces[0]
    traces[1].save(tmp_path / "t.jsonl")
    assert Trace.load_all(tmp_path / "t.jsonl") == [traces[1]]


def test_a_trace_replays_to_the_same_text(tmp_path):
    """Round by round: the path's tokens and the last one are what was emitted, and their sum is the text."""
    target, draft = lms()
    trace = decode(target, [1, 2, 3], 40, ModelDrafter(draft, 4))
    trace.save(tmp_path / "t.jsonl")
    replayed = list(trace.prompt)
    for r in Trace.load(tmp_path / "t.jsonl").rounds:
        assert r.tokens[0] == replayed[-1], "the root is the newest token"
        assert [r.tokens[node] for node in r.path] == r.emitted[: len(r.path)]
        assert len(r.kinds) == len(r.emitted)
        replayed += r.emitted
    assert replayed == [1, 2, 3, *generated(target.model, [1, 2, 3], 40)]


def test_a_trace_holds_the_laws_at_the_proposed_tokens():
    """p, q and the overlap of each node, against the two models run alone."""
    target, draft = TableModel.random(5, 1), TableModel.random(5, 2)
    trace = decode(target, [0], 12, ModelDrafter(draft, 3), settings=SAMPLED)
    ids = [0]
    for r in trace.rounds:
        for node in range(1, len(r.tokens)):
            before = [*ids, *r.tokens[1:node]]
            p, q = (torch.tensor(m.logits_of(tuple(before))).double().softmax(-1) for m in (target, draft))
            assert r.target_probs[node] == pytest.approx(p[r.tokens[node]].item(), abs=1e-6)
            assert r.draft_probs[node] == pytest.approx(q[r.tokens[node]].item(), abs=1e-6)
            assert r.overlaps[node] == pytest.approx(torch.minimum(p, q).sum().item(), abs=1e-6)
        ids += r.emitted


def lines_of(tmp_path):
    sampled_trace().save(tmp_path / "t.jsonl")
    return (tmp_path / "t.jsonl").read_text().splitlines()


def changed(line, **fields):
    return json.dumps({**json.loads(line), **fields})


DAMAGE = {
    "empty": lambda lines: [],
    "no header": lambda lines: lines[1:],
    "no end": lambda lines: lines[:-1],
    "cut in a line": lambda lines: [*lines[:2], lines[2][: len(lines[2]) // 2]],
    "a round missing": lambda lines: lines[:2] + lines[3:],
    "a round twice": lambda lines: lines[:2] + lines[1:],
    "a round after the end": lambda lines: [*lines, lines[1]],
    "two headers": lambda lines: [lines[0], *lines],
    "the first of two cut": lambda lines: lines[:-1] + lines,
    "another schema": lambda lines: [changed(lines[0], schema=99), *lines[1:]],
    "an unknown kind": lambda lines: [*lines[:-1], changed(lines[1], kind="riddle"), lines[-1]],
    "an unknown field": lambda lines: [lines[0], changed(lines[1], mood="good"), *lines[2:]],
    "a field missing": lambda lines: [lines[0], json.dumps({"kind": "round", "tokens": [1]}), *lines[2:]],
    "a path out of the tree": lambda lines: [lines[0], changed(lines[1], path=[77]), *lines[2:]],
    "emitted ids missing": lambda lines: [lines[0], changed(lines[1], emitted=[]), *lines[2:]],
    "json of another kind": lambda lines: ["[1, 2, 3]"],
    "text of another kind": lambda lines: ["once upon a time"],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_file_that_is_no_whole_trace_is_refused(tmp_path, damage):
    path = tmp_path / "damaged.jsonl"
    path.write_text("\n".join(DAMAGE[damage](lines_of(tmp_path))))
    with pytest.raises(ValueError, match=r"damaged\.jsonl"):
        Trace.load_all(path)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "t.jsonl").write_bytes(b"\xff\xfe\x00\x80 model weights")
    with pytest.raises(ValueError):
        Trace.load(tmp_path / "t.jsonl")
    with pytest.raises(FileNotFoundError):
        Trace.load(tmp_path / "missing.jsonl")


# ---- figures ---------------------------------------------------------------------------------------------------


def test_accepted_and_emitted_are_two_figures():
    """H3: gamma 4, accepted 0, 4, 2: kept 2.0 and MAT 3.0."""
    traces = [trace_of(chain(4, 0), chain(4, 4), chain(4, 2))]
    assert (kept(traces), mat(traces)) == (2.0, 3.0)
    assert accepted_over_drafted(traces) == 6 / 12
    assert accepted_over_tested(traces) == 6 / 8


def test_what_a_stop_cuts_is_not_counted():
    """H2: d, d, EOS, d, d accepted, with a bonus: 3 emitted, not 6."""
    target, draft = (TableModel(lambda ids: [9.0 * (v == min(len(ids), 5)) for v in range(7)], 7) for _ in range(2))
    trace = decode(target, [0], 20, ModelDrafter(draft, 5), stops=Stops(frozenset({3})))
    assert trace.ids == [1, 2, 3]
    assert (mat([trace]), kept([trace])) == (3.0, 3.0)
    assert accepted_over_drafted([trace]) == 1.0, "the verdict had accepted all five"


def test_lengths_weigh_rounds_alike_across_traces():
    traces = [trace_of(chain(2, 2), chain(2, 2), chain(2, 2)), trace_of(chain(2, 0))]
    assert mat(traces) == (3 + 3 + 3 + 1) / 4


def test_nothing_measured_is_none_and_never_negative():
    """H17: no rounds, no drafts."""
    for figure in (mat, kept, alpha, accepted_over_tested, accepted_over_drafted):
        assert figure([]) is None
        assert figure([trace_of()]) is None
    plain = [trace_of(chain(0, 0), chain(0, 0))]
    assert (mat(plain), kept(plain)) == (1.0, 0.0)
    assert alpha(plain) is accepted_over_tested(plain) is accepted_over_drafted(plain) is None
    assert acceptance_by_position(plain) == []
    assert time_shares([]) == {"draft": 0, "score": 0, "verify": 0, "other": 0}


def test_alpha_is_the_mean_overlap_up_to_and_with_the_first_rejection():
    traces = [trace_of(chain(3, 1, [0.9, 0.5, 0.1]), chain(2, 2, [0.7, 0.8]))]
    assert alpha(traces) == pytest.approx((0.9 + 0.5 + 0.7 + 0.8) / 4)


def test_alpha_of_a_long_run_is_one_minus_total_variation():
    p, q = [0.2, 0.3, 0.5], [0.6, 0.3, 0.1]
    trace = decode(TableModel.constant(p), [0], 3000, ModelDrafter(TableModel.constant(q), 3), settings=SAMPLED)
    overlap = sum(map(min, p, q))
    assert alpha([trace]) == pytest.approx(overlap, abs=1e-9)
    assert accepted_over_tested([trace]) == pytest.approx(overlap, abs=0.03), "3 standard errors of about 3000 tests"


def test_acceptance_by_position_is_given_the_positions_before():
    """Drafted 3, accepted 0, 1, 3, 3: position 1 is 3 of 4, position 2 is 2 of 3, position 3 is 2 of 2."""
    traces = [trace_of(chain(3, 0), chain(3, 1)), trace_of(chain(3, 3), chain(3, 3))]
    assert acceptance_by_position(traces) == [3 / 4, 2 / 3, 1.0]


def test_shares_of_time_sum_to_one():
    shares = time_shares([trace_of(chain(1, 1, draft_s=1.0, score_s=2.0), chain(1, 1, verify_s=0.5, other_s=0.5))])
    assert shares == {"draft": 0.25, "score": 0.5, "verify": 0.125, "other": 0.125}


def test_a_real_round_spends_time_in_every_phase():
    for r in sampled_trace().rounds:
        assert min(r.draft_s, r.score_s, r.verify_s, r.other_s) > 0
        assert r.seconds == pytest.approx(r.draft_s + r.score_s + r.verify_s + r.other_s)


def test_kinds_name_each_emitted_id():
    assert chain(3, 2).kinds == ["accepted", "accepted", "recovered"]
    assert chain(2, 2).kinds == ["accepted", "accepted", "bonus"]
    assert chain(3, 3, emitted=2, last="accepted").kinds == ["accepted", "accepted"]
    p = TableModel.constant([0.5, 0.4, 0.1])
    trace = decode(p, [0], 3, ModelDrafter(TableModel.constant([0.1, 0.8, 0.1]), 2), Lenience(0.5))
    assert trace.rounds[0].kinds == ["rescued", "rescued", "bonus"]
    assert decode(p, [0], 2, NoDrafter()).rounds[0].kinds == ["bonus"]
