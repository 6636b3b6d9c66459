"""The exactness meter: the total variation it says is the one that enumerating every outcome of the loop finds.
Follows specdec_lib/exactness.py; laws by hand from laws.py.
Left out: the rules themselves.
"""

import json
import math

import pytest
import torch
from laws import SAMPLED, FixedTree, completions, first_token_law, near, one_round, plain_law
from test_csd import full_memory, remembered
from typer.testing import CliRunner

from specdec_lib import cli, zoo
from specdec_lib import exactness as meter
from specdec_lib.batch import decode_batch
from specdec_lib.decode import Session, Stops, decode
from specdec_lib.drafters import ModelDrafter
from specdec_lib.exactness import Metered, added_variation, exactness
from specdec_lib.methods import build_method
from specdec_lib.model import TableModel
from specdec_lib.sampling import SamplingSettings, outcomes
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers import Ensemble, Lenience, LosslessRejection, Scores, TopK
from specdec_lib.verifiers.csd import CSD
from specdec_lib.verifiers.reflective import Reflective

TARGET = TableModel.random(5, 1)
DRAFT = near(TARGET, 2, spread=1.5)
PAIRS = {(x, t): 9 for x in (0, 2, 3, 4) for t in range(5)}
RULES = {
    "csd": CSD(remembered(PAIRS).freeze(), 6, 0.05),
    "memory": CSD(remembered(PAIRS).freeze(), 6, 0),
    "gate": CSD(None, 0, 0.2),
    "never": CSD(full_memory(5), 0, 0, never={1, 2}),
}


def variation(a, b):
    return math.fsum(abs(x - y) for x, y in zip(a, b, strict=True)) / 2


def first_rounds(drafter, rule, settings, prompt=(0,), limit=50):
    """(weight, Round) of every outcome of a first round."""

    def run(chance):
        session = Session(TARGET, drafter, rule, settings, chance=chance).start(list(prompt))
        return next(session.rounds(limit))

    return outcomes(run)


@pytest.mark.parametrize("settings", [SAMPLED, SamplingSettings(temperature=0.7, top_k=3)], ids=["plain", "top_k"])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_at_one_position_the_meter_is_the_total_variation_found_by_enumeration(rule, settings):
    added = []
    for prompt in ((0,), (3, 1), (2, 2)):
        drafter = ModelDrafter(DRAFT, 1)
        found = first_token_law(TARGET, drafter, rule, settings, prompt)
        expected = variation(found, plain_law(TARGET, settings)(prompt))
        for _, r in first_rounds(drafter, Metered(rule), settings, prompt):  # whatever was drawn
            assert r.added[1] == pytest.approx(expected, abs=1e-9)
        added.append(expected)
    assert max(added) > 0.01


def test_a_chosen_draft_has_a_point_mass():
    """Each draft alone: TV = 1 - p(x) if it would be rescued, else 0."""
    rule = RULES["csd"]
    added = []
    for x in range(5):
        drafter = FixedTree([x])
        expected = variation(first_token_law(TARGET, drafter, rule), plain_law(TARGET)((0,)))
        for _, r in first_rounds(drafter, Metered(rule), SAMPLED):
            assert r.added[1] == pytest.approx(expected, abs=1e-9)
        added.append(expected)
    assert 0 in [round(a, 9) for a in added] and max(added) > 0.1


def test_over_a_round_the_sum_bounds_the_total_variation_of_texts():
    rule, n = RULES["csd"], 3
    law, found = plain_law(TARGET), {}
    for weight, begun in one_round(TARGET, ModelDrafter(DRAFT, 2), rule):
        for word, rest in completions(law, (0,), begun, n):
            found[word] = found.get(word, 0) + weight * rest
    expected = dict(completions(law, (0,), (), n))
    exact = math.fsum(abs(found.get(w, 0) - expected.get(w, 0)) for w in found | expected) / 2
    rounds = first_rounds(ModelDrafter(DRAFT, 2), Metered(rule), SAMPLED)
    bound = math.fsum(weight * sum(r.added[n] for n in meter.emitted_nodes(r)) for weight, r in rounds)
    assert 0.01 < exact <= bound + 1e-9


def test_the_formula():
    p, q = torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([[0.1, 0.3, 0.6]])
    for rescued, total in [((True, True, True), 0.4), ((True, True, False), 0.0), ((False, False, True), 0.4)]:
        assert added_variation(torch.tensor([rescued]), p, q).tolist() == pytest.approx([total])


def test_what_is_given_up_is_read_off_the_raw_logits():
    """A banned word does not make the others likelier; a rejected token gives up nothing."""
    rows = torch.tensor([[2.0, 1.0, 3.0], [9.0, 0.0, 3.0], [0.0, 0.0, 0.0]])
    scores = Scores(rows, SamplingSettings(bad_words_ids=((2,),)).adjuster(), lambda row: [0])
    found = Metered(CSD(None, 0, 0.1)).verify(DraftTree.chain([0, 1, 1]), scores, None)
    law = torch.softmax(rows[0], dim=-1)
    assert found.path == [1] and found.added == pytest.approx([0.0, float(law[0] - law[1]), 0.0])


def test_a_metered_rule_decides_as_the_rule_does():
    rule, drafter = RULES["csd"], ModelDrafter(DRAFT, 3)
    for settings in (SAMPLED, SamplingSettings()):
        plain = decode(TARGET, [0], 12, drafter, rule, settings, seed=3)
        metered = decode(TARGET, [0], 12, drafter, Metered(rule), settings, seed=3)
        assert (metered.ids, metered.method, metered.lossless) == (plain.ids, "csd", False)
        assert [r.outcomes for r in metered.rounds] == [r.outcomes for r in plain.rounds]
        assert any(r.added for r in metered.rounds) and not any(r.added for r in plain.rounds)
    assert not hasattr(Metered(rule), "with_scouts")


def test_greedy_counts_what_differs_and_the_probability_given_up():
    p, low = [0.1, 0.3, 0.6], [0.8, 0.1, 0.1]
    target = TableModel(lambda ids: [math.log(v) for v in (p if len(ids) % 2 else low)], 3)
    rule = Metered(CSD(full_memory(3), 0, 0.4))  # 1 passes for 2 (.3 >= .4 x .6); 2 for 0 does not (.1 < .4 x .8)
    trace = decode(target, [0], 6, FixedTree([1, 2]), rule)
    assert trace.ids == [1, 0, 1, 0, 1, 0]
    found = exactness([trace])
    assert found["changed"] == pytest.approx(0.5) and found["given_up"] == pytest.approx(0.3)
    assert found["variation"] is found["variation_a_text"] is None


LOSSY = [Reflective([1], 0.5), Ensemble(0.3), TopK(2), RULES["csd"]]


@pytest.mark.parametrize("rule", LOSSY, ids=lambda rule: rule.name)
def test_greedy_every_emitted_token_is_compared_with_the_target_s_own_argmax(rule):
    """Also what such a rule emits behind the kept ones: the argmax of mixed laws need not be the target's."""
    traces = [decode(TARGET, [x], 15, ModelDrafter(DRAFT, 3), Metered(rule)) for x in range(5)]
    lost = []
    for trace in traces:
        text = list(trace.prompt)
        for x in trace.ids:
            law = torch.softmax(torch.tensor(TARGET.logits_of(text)), dim=-1)
            lost.append(float(law.max() - law[x]))
            text.append(x)
    found, given = exactness(traces), [value for value in lost if value > 0]
    assert found["changed"] == pytest.approx(len(given) / len(lost)) and given
    assert found["given_up"] == pytest.approx(sum(given) / len(given), abs=1e-5)


def test_only_positions_that_were_emitted_count():
    """A stop string or EOS cuts a round: what was decided behind it is no part of the text."""
    target = TableModel(lambda ids: [0.0, 0.1, 0.0], 3)
    rule = Metered(CSD(full_memory(3), 0, 0))
    sums = []
    for eos in ({}, {0}):
        trace = decode(target, [1], 3, FixedTree([0, 0]), rule, SAMPLED, Stops(frozenset(eos)))
        sums.append(exactness([trace])["variation_a_text"])
        assert len(trace.ids) == (1 if eos else 3)
    assert sums[0] == pytest.approx(2 * sums[1]) and sums[1] > 0.5


def test_lossless_adds_nothing_and_traces_without_the_meter_say_nothing():
    drafter = ModelDrafter(DRAFT, 2)
    trace = decode(TARGET, [0], 10, drafter, Metered(LosslessRejection()), SAMPLED)
    assert (
        exactness([trace])["variation"] == exactness([trace])["variation_a_text"] == exactness([trace])["changed"] == 0
    )
    plain = exactness([decode(TARGET, [0], 10, drafter, RULES["csd"], SAMPLED)])
    assert plain["variation"] is None and plain["changed"] is not None
    assert exactness([])["changed"] is None


def test_what_cannot_be_metered_says_why():
    with pytest.raises(ValueError, match="lenience.*does not name what it would rescue"):
        decode(TARGET, [0], 5, ModelDrafter(DRAFT, 2), Metered(Lenience(0.5)), SAMPLED)
    with pytest.raises(ValueError, match="without siblings"):
        decode(TARGET, [0], 5, ModelDrafter(DRAFT, 2, siblings=(2,)), Metered(RULES["csd"]), SAMPLED)


def test_the_command_measures_a_row_a_method(pair, monkeypatch, tmp_path):
    monkeypatch.setattr(zoo, "load_pair", lambda name: pair)
    file = tmp_path / "e.json"
    asked = ["exactness", "--methods", "csd,csd:lambda=inf", "--n", "2", "--max-new-tokens", "25", "--json", str(file)]
    done = CliRunner().invoke(cli.app, asked)
    assert done.exit_code == 0 and "TV a token" in done.stdout, done.output
    rows = json.loads(file.read_text())["rows"]
    assert [row["lossless"] for row in rows] == [False, True]
    assert (
        rows[0]["changed"] > 0 and rows[1]["changed"] == 0 and rows[0]["given_up"] > 0 and rows[1]["given_up"] is None
    )
    assert all(row["tok_per_s"] > 0 and row["kept"] >= 0 and row["learning"] is False for row in rows)


def test_what_is_timed_starts_with_the_memory_that_the_metered_pass_started_with(pair, monkeypatch):
    prompts, timed = [pair.prompt("leo has 43 nuts. leo gives sam 12 nuts. how many nuts does leo have?")], []

    class Watched(Session):
        def __init__(self, target, drafter, rule, *arguments, **more):
            timed.append(rule.memory.snapshot())
            super().__init__(target, drafter, rule, *arguments, **more)

    monkeypatch.setattr(meter, "Session", Watched)
    (row,) = meter.measure(pair, ["csd:online=1"], prompts, 20)
    assert row["learning"] and timed == [build_method("csd:online=1", pair).verifier.memory]


def test_a_batch_carries_the_meter(pair):
    rule = CSD(None, 0, 0.1)
    drafter = ModelDrafter(pair.draft, 4)
    prompts = [pair.prompt("leo has 43 nuts. leo gives sam 12 nuts. how many nuts does leo have?")] * 2
    traces = decode_batch(pair.target, prompts, 20, drafter, Metered(rule), SAMPLED)
    alone = decode(pair.target, prompts[1], 20, drafter, Metered(rule), SAMPLED, seed=1)
    for found, expected in zip(traces[1].rounds, alone.rounds, strict=True):
        assert found.added == pytest.approx(expected.added, abs=1e-4)
