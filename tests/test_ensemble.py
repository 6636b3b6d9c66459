"""The ensemble rule: the law of every outcome against the mixture by hand, its limits, and transformers' own texts.
Follows specdec_lib/verifiers/ensemble.py.
Left out: what it costs in accuracy (specdec_lib/experiments/csd_tradeoff.py).
"""

import math

import pytest
import torch
from laws import SAMPLED, FixedTree, first_token_law, near, one_round, plain_law
from test_batch import DRAFT as DRAFT_MODEL
from test_batch import TARGET as TARGET_MODEL
from test_batch import prompts
from test_verifiers import GREEDY, chance, scores
from tiny import VOCAB

from specdec_lib.batch import decode_batch
from specdec_lib.decode import Session, decode
from specdec_lib.drafters import ModelDrafter
from specdec_lib.model import CausalLM, TableModel
from specdec_lib.sampling import SamplingSettings
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers import LosslessRejection, Scores
from specdec_lib.verifiers.ensemble import Ensemble

TARGET = TableModel.random(4, 1)
DRAFT = near(TARGET, 2, spread=1.5)
P, Q = plain_law(TARGET), plain_law(DRAFT)


def mixed(text, weight):
    return [weight * p + (1 - weight) * q for p, q in zip(P(text), Q(text), strict=True)]


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.8, 1.0])
def test_at_a_drafted_position_the_mixture_is_emitted_and_behind_all_drafts_the_targets_law(weight):
    """Every outcome of a round of two drafts: min(q, v) at a first draft that is kept, v behind it, p at the bonus."""
    found = {}
    for w, emitted in one_round(TARGET, ModelDrafter(DRAFT, 2), Ensemble(weight)):
        found[emitted] = found.get(emitted, 0) + w
    for a in range(4):
        first = math.fsum(w for emitted, w in found.items() if emitted[0] == a)
        assert first == pytest.approx(mixed((0,), weight)[a], abs=1e-9)
        kept = min(mixed((0,), weight)[a], Q((0,))[a])
        for b in range(4):
            both = math.fsum(w for emitted, w in found.items() if emitted[:2] == (a, b))
            assert both == pytest.approx(kept * mixed((0, a), weight)[b], abs=1e-9)
            for c in range(4):
                all_kept = kept * min(mixed((0, a), weight)[b], Q((0, a))[b])
                assert found.get((a, b, c), 0) == pytest.approx(all_kept * P((0, a, b))[c], abs=1e-9)


def test_the_total_variation_is_1_less_w_times_that_of_the_two_laws():
    law = first_token_law(TARGET, ModelDrafter(DRAFT, 1), Ensemble(0.3))
    apart = [math.fsum(abs(a - b) for a, b in zip(P((0,)), other, strict=True)) / 2 for other in (law, Q((0,)))]
    assert apart[0] == pytest.approx(0.7 * apart[1]) and apart[0] > 0.05


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_weight_1_is_the_standard_rule_and_weight_0_keeps_every_draft(settings):
    drafter = ModelDrafter(DRAFT, 3)
    strict, standard = (
        Session(TARGET, drafter, rule, settings, seed=3).start([0]).run(30)
        for rule in (Ensemble(1), LosslessRejection())
    )
    assert strict.lossless and [r.emitted for r in strict.rounds] == [r.emitted for r in standard.rounds]
    lax = Session(TARGET, drafter, Ensemble(0), settings, seed=3).start([0]).run(21)
    assert not lax.lossless and [len(r.path) for r in lax.rounds[:-1]] == [3] * (len(lax.rounds) - 1)


def by_hand(p, q, weight, x):
    """(path, token) of one greedy draft x behind constant laws; the row after it is another one."""
    rows, draft_rows = torch.tensor([p, p[::-1]], dtype=torch.float64).log(), torch.tensor([q]).double().log()
    tree = DraftTree(torch.tensor([0, x]), [-1, 0], draft_rows=draft_rows)
    found = Ensemble(weight).verify(tree, scores(rows), chance())
    return found.path, found.token, found.outcomes[1]


def test_greedy_by_hand():
    """p = (.5, .4, .1), q = (.1, .7, .2): the mixture's argmax is 1 below w = 6 / 7."""
    p, q = [0.5, 0.4, 0.1], [0.1, 0.7, 0.2]
    assert by_hand(p, q, 0.8, 1) == ([1], 2, "rescued")  # the bonus is the target's argmax
    assert by_hand(p, q, 0.9, 1) == ([], 0, "rejected")
    assert by_hand(p, q, 0.8, 2) == ([], 1, "rejected")  # what replaces it is the mixture's argmax
    assert by_hand(p, q, 0.8, 0) == ([], 1, "rejected")  # though it is the target's own
    assert by_hand(p, q, 0.9, 0) == ([1], 2, "exact")


@pytest.mark.parametrize("weight", [0.3, 0.7])
def test_greedy_texts_are_those_of_transformers(weight):
    """assistant_ensemble_weight, three drafts a round, no stop on confidence; the pad id is one that no text holds."""
    lm, texts = CausalLM(TARGET_MODEL), prompts(4, longest=6)
    changed = 0
    for text in texts:
        ours = decode(lm, text, 16, ModelDrafter(CausalLM(DRAFT_MODEL), 3), Ensemble(weight)).ids
        plain = decode(lm, text, 16).ids
        assistant = DRAFT_MODEL
        assistant.generation_config.num_assistant_tokens = 3
        assistant.generation_config.num_assistant_tokens_schedule = "constant"
        assistant.generation_config.assistant_confidence_threshold = 0
        theirs = TARGET_MODEL.generate(
            torch.tensor([text]), attention_mask=torch.ones(1, len(text), dtype=torch.long), do_sample=False,
            max_new_tokens=16, assistant_model=assistant, assistant_ensemble_weight=weight, pad_token_id=VOCAB,
            eos_token_id=None,
        )  # fmt: skip
        assert ours == theirs[0, len(text) :].tolist()
        changed += ours != plain
    assert changed


def test_a_batch_decodes_what_a_text_alone_gives():
    lm, drafter = CausalLM(TARGET_MODEL), ModelDrafter(CausalLM(DRAFT_MODEL), 3)
    for settings in (GREEDY, SAMPLED):
        batched = decode_batch(lm, prompts(3, longest=5), 9, drafter, Ensemble(0.5), settings, size=2)
        alone = [
            decode(lm, text, 9, drafter, Ensemble(0.5), settings, seed=i)
            for i, text in enumerate(prompts(3, longest=5))
        ]
        assert [t.ids for t in batched] == [t.ids for t in alone]


@pytest.mark.parametrize("temperature", [0, 1])
def test_what_the_settings_forbid_is_never_kept_nor_put_in_its_place(temperature):
    banned = SamplingSettings(temperature, bad_words_ids=((1,),))
    draft_rows, law = torch.tensor([[0.0, 9.0, 0.0]]), torch.tensor([[0.0, 1.0, 0.0]])
    tree = DraftTree(torch.tensor([0, 1]), [-1, 0], None if temperature == 0 else law, draft_rows=draft_rows)
    rows = torch.tensor([[0.0, 1.0, 5.0]] * 2)
    found = Ensemble(0.1).verify(tree, Scores(rows, banned.adjuster(), lambda node: [0]), chance())
    assert found.path == [] and found.token != 1


@pytest.mark.parametrize(
    "made, message",
    [
        (lambda: Ensemble(-0.1), "weight of ensemble.*got -0.1"),
        (lambda: Ensemble(1.1), "weight of ensemble.*got 1.1"),
        (lambda: Ensemble(math.nan), "weight of ensemble"),
        (lambda: Ensemble(True), "got True"),
        (lambda: Session(TARGET, FixedTree([1]), Ensemble()).start([0]).run(5), "needs a draft model"),
        (
            lambda: Ensemble().verify(
                DraftTree(torch.tensor([0, 1, 2]), [-1, 0, 0]), scores(torch.zeros(3, 4)), chance()
            ),
            "single chain",
        ),
    ],
)
def test_what_it_is_not_defined_for_is_refused(made, message):
    with pytest.raises(ValueError, match=message):
        made()
