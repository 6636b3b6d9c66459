"""Many prompts decoded together: the tokens, verdicts and laws of the single-prompt loop, whatever shares the batch.
Follows specdec_lib/batch.py. Everything is compared with decode(), in float64.
Left out: the rows of a model (test_rows.py) and the loop itself (test_decode.py).
"""

import pytest
import torch
from laws import SAMPLED, FixedTree
from tiny import VOCAB, disturbed, gpt2, llama, mistral, prompts

from specdec_lib.batch import decode_batch
from specdec_lib.decode import Stops, decode
from specdec_lib.drafters import ModelDrafter, NoDrafter
from specdec_lib.model import CausalLM, TableModel
from specdec_lib.pocket.tokenizer import prompt_ids
from specdec_lib.pocket.world import problems
from specdec_lib.sampling import SamplingSettings
from specdec_lib.verifiers import GreedyMatch, Lenience, LosslessRejection
from specdec_lib.zoo import load_pair

TARGET = llama(seed=1).double()
DRAFT = disturbed(TARGET, seed=2, spread=0.03).double()
STOPS = Stops(frozenset({3, 17}))


def same(trace, expected):
    """Equal but for seconds: ids, reasons, proposals and verdicts exactly, numbers to rounding."""
    assert (trace.prompt, trace.method, trace.lossless, trace.settings, trace.reason) == (
        expected.prompt, expected.method, expected.lossless, expected.settings, expected.reason
    )  # fmt: skip
    assert len(trace.rounds) == len(expected.rounds)
    for found, right in zip(trace.rounds, expected.rounds, strict=True):
        for name in ("tokens", "parents", "path", "outcomes", "emitted", "last"):
            assert getattr(found, name) == getattr(right, name), name
        for name in ("target_probs", "draft_probs", "overlaps"):
            assert getattr(found, name) == pytest.approx(getattr(right, name), abs=1e-9), name
        assert found.seconds == 0
    assert trace.prefill_s == 0


def compared(texts, n, sizes, target=TARGET, draft=DRAFT, gamma=4, verifier=None, settings=None, stops=None, seed=0):
    """The loop's traces of all texts, after batches of all sizes have given the same."""
    drafter = NoDrafter() if draft is None else ModelDrafter(CausalLM(draft), gamma)
    lm = CausalLM(target)
    expected = [decode(lm, text, n, drafter, verifier, settings, stops, seed=seed + i) for i, text in enumerate(texts)]
    for size in sizes:
        traces = decode_batch(lm, iter(texts), n, drafter, verifier, settings, stops, seed, size)
        assert len(traces) == len(texts)
        for trace, right in zip(traces, expected, strict=True):
            same(trace, right)
    return expected


def accepted(traces):
    """Numbers of accepted tokens that occur."""
    return {len(r.path) for trace in traces for r in trace.rounds}


# ---- equal to the loop -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [SamplingSettings(), SAMPLED], ids=["greedy", "sampled"])
def test_100_prompts_in_batches_of_1_3_and_32_are_as_alone(settings):
    """E1, E2, E3: prompts of 1 to 30 tokens, texts that end at once, later, or at the limit."""
    found = compared(prompts(100, longest=30), 14, (1, 3, 32), settings=settings, stops=STOPS, seed=5)
    assert accepted(found) == {0, 1, 2, 3, 4}
    assert {trace.reason for trace in found} == {"eos", "length"}
    assert len({len(trace.ids) for trace in found}) > 10


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SamplingSettings(), SAMPLED], ids=["greedy", "sampled"])
def test_40_prompts_of_the_pocket_pair_are_as_alone(settings):
    """The same on the shipped models, widened to float64."""
    pair = load_pair("pocket")
    texts = [prompt_ids(pair.tokenizer, problem.question) for problem in problems("test", 40, seed=8)]
    models = pair.target.model.double(), pair.draft.model.double()
    found = compared(texts, 16, (32,), *models, gamma=8, settings=settings, stops=pair.stops)
    assert accepted(found) >= {0, 1, 2, 3}


RULES = {
    "greedy match": (GreedyMatch(), SamplingSettings()),
    "lenience": (Lenience(0.3), SamplingSettings()),
    "lenience, sampled": (Lenience(0.3), SAMPLED),
    "top-k and top-p": (LosslessRejection(), SamplingSettings(temperature=0.7, top_k=9, top_p=0.9)),
    "penalty and bad words": (
        LosslessRejection(),
        SamplingSettings(temperature=1.2, repetition_penalty=1.3, bad_words_ids=((5,), (2, 9))),
    ),
    "penalty and a least length": (LosslessRejection(), SamplingSettings(repetition_penalty=1.3, min_new_tokens=9)),
    "lenience and a least length": (Lenience(0.3), SamplingSettings(temperature=1.0, min_new_tokens=9)),
}


@pytest.mark.parametrize("verifier, settings", RULES.values(), ids=RULES)
def test_any_rule_under_any_settings_is_as_alone(verifier, settings):
    """A21, A23: prefixes and least lengths are each text's own."""
    found = compared(prompts(12, longest=9), 16, (5,), verifier=verifier, settings=settings, stops=STOPS)
    assert len(accepted(found)) > 1


@pytest.mark.parametrize(
    "draft, gamma, reached",
    [(None, 0, {0}), (DRAFT, 0, {0}), (DRAFT, 1, {0, 1}), (TARGET, 3, {2, 3}), (TARGET, 1000, {10})],
    ids=["no draft", "gamma 0", "gamma 1", "draft = target", "all that fits"],
)
@pytest.mark.parametrize("settings", [SamplingSettings(), SAMPLED], ids=["greedy", "sampled"])
def test_any_draft_length_is_as_alone(draft, gamma, reached, settings):
    """B5, C18: eleven tokens a text."""
    assert accepted(compared(prompts(7), 11, (3,), draft=draft, gamma=gamma, settings=settings)) == reached


def test_a_greedy_draft_below_a_sampled_target_is_as_alone():
    """A1: its tokens are point masses."""
    drafter, lm = ModelDrafter(CausalLM(DRAFT), 4, greedy=True), CausalLM(TARGET)
    texts = prompts(6)
    for i, trace in enumerate(decode_batch(lm, texts, 16, drafter, settings=SAMPLED, size=4)):
        same(trace, decode(lm, texts[i], 16, drafter, settings=SAMPLED, seed=i))
        assert all(q == 1 for r in trace.rounds for q in r.draft_probs)


@pytest.mark.parametrize("draft_vocab", [VOCAB - 4, VOCAB + 4])
@pytest.mark.parametrize("settings", [SamplingSettings(), SAMPLED], ids=["greedy", "sampled"])
def test_a_draft_with_fewer_or_more_rows_than_the_target_is_as_alone(draft_vocab, settings):
    """D1, D2."""
    compared(prompts(6), 12, (4,), draft=llama(seed=5, vocab=draft_vocab).double(), settings=settings)


def test_texts_end_at_either_models_context_as_alone():
    """B17, C14: the target holds 24 tokens, the draft 16; prompts of 1 to 24, absolute positions."""
    target, draft = gpt2(seed=1, context=24).double(), gpt2(seed=1, context=16).double()
    found = compared(prompts(9, longest=24), 99, (4,), target, draft)
    assert {trace.reason for trace in found} == {"context"}
    assert {r.proposed for trace in found for r in trace.rounds} == {0, 1, 2, 3, 4}


def test_stop_strings_end_each_text_as_alone(pair):
    stops, vocab = Stops(strings=(" so", "."), tokenizer=pair.tokenizer), len(pair.tokenizer)
    model = llama(seed=1, vocab=vocab).double()
    found = compared(prompts(8, vocab=vocab), 30, (3,), model, model, settings=SAMPLED, stops=stops)
    assert "stop" in {trace.reason for trace in found}


def test_a_rule_gets_the_hidden_states_of_its_own_row():
    class Watcher(GreedyMatch):
        needs = frozenset({"hidden"})

        def verify(self, tree, scores, chance):
            seen[tuple(scores.prefix(0))] = scores.hidden
            return super().verify(tree, scores, chance)

    lm, drafter, texts = CausalLM(TARGET), ModelDrafter(CausalLM(DRAFT), 3), prompts(5, longest=6)
    seen = {}
    for text in texts:
        decode(lm, text, 8, drafter, Watcher())
    alone, seen = seen, {}
    decode_batch(lm, texts, 8, drafter, Watcher(), size=4)
    assert seen.keys() == alone.keys()
    for prefix, hidden in seen.items():
        torch.testing.assert_close(hidden, alone[prefix], rtol=0, atol=1e-10)


def test_the_same_prompts_on_other_seeds_differ():
    """A16: a text's chance is its own, and the global state is left alone."""
    lm, drafter = CausalLM(TARGET), ModelDrafter(CausalLM(DRAFT), 3)
    state = torch.get_rng_state()
    twice = decode_batch(lm, [[1, 2]] * 2, 20, drafter, settings=SAMPLED, seed=4)
    shifted = decode_batch(lm, [[1, 2]] * 2, 20, drafter, settings=SAMPLED, seed=5)
    assert twice[0].ids != twice[1].ids and twice[1].ids == shifted[0].ids
    assert torch.equal(torch.get_rng_state(), state)


# ---- what learns -----------------------------------------------------------------------------------------------


class Remembers(GreedyMatch):
    """Keeps a mismatched pair (draft token, argmax) that it has met more than twice, and counts what it meets."""

    name, lossless = "remembers", False

    def __init__(self, learns=True, met=()):
        self.learns, self.met = learns, list(met)

    def verify(self, tree, scores, chance):
        verdict = super().verify(tree, scores, chance)
        node = next((n for n, outcome in verdict.outcomes.items() if outcome == "rejected"), None)
        if node is None:
            return verdict
        pair = (verdict.tokens[node], verdict.token)
        if self.met.count(pair) > 2:
            verdict.path.append(node)
            verdict.outcomes[node] = "rescued"
            verdict.token, verdict.kind = int(scores.best[node]), "recovered" if tree.children[node] else "bonus"
        if self.learns:
            self.met.append(pair)
        return verdict


def rescued(traces):
    return sum("rescued" in r.outcomes.values() for trace in traces for r in trace.rounds)


def test_what_learns_meets_the_texts_in_their_order():
    texts, lm, drafter = prompts(30), CausalLM(TARGET), ModelDrafter(CausalLM(DRAFT), 3)
    alone, together = Remembers(), Remembers()
    expected = [decode(lm, text, 20, drafter, alone) for text in texts]
    for trace, right in zip(decode_batch(lm, texts, 20, drafter, together, size=8), expected, strict=True):
        same(trace, right)
    assert together.met == alone.met and rescued(expected) > 5


def test_what_has_learnt_and_is_frozen_goes_in_a_batch():
    texts, lm, drafter = prompts(30), CausalLM(TARGET), ModelDrafter(CausalLM(DRAFT), 3)
    teacher = Remembers()
    decode_batch(lm, texts[:10], 20, drafter, teacher)
    met = list(teacher.met)
    expected = [decode(lm, text, 20, drafter, Remembers(False, met)) for text in texts]
    frozen = Remembers(False, met)
    for trace, right in zip(decode_batch(lm, texts, 20, drafter, frozen, size=8), expected, strict=True):
        same(trace, right)
    assert frozen.met == met and rescued(expected) > 5


# ---- what comes in and what is refused ---------------------------------------------------------------------------


def test_a_prompt_is_asked_for_when_a_text_has_ended():
    """Two texts of four tokens at a time, a token a round."""
    asked, lengths = [], []

    class Counts(GreedyMatch):
        def verify(self, tree, scores, chance):
            lengths.append(len(asked))
            return super().verify(tree, scores, chance)

    def texts():
        for text in prompts(5):
            asked.append(text)
            yield text

    assert len(decode_batch(CausalLM(TARGET), texts(), 4, verifier=Counts(), size=2)) == 5
    assert lengths == [2] * 8 + [4] * 8 + [5] * 4


def test_no_prompts_and_no_tokens_give_nothing():
    """C3."""
    lm = CausalLM(TARGET)
    assert decode_batch(lm, [], 5) == []
    traces = decode_batch(lm, [[1], [2, 3], [4]], 0, ModelDrafter(CausalLM(DRAFT), 3), size=2)
    assert [(trace.prompt, trace.ids, trace.reason) for trace in traces] == [
        ([1], [], "length"), ([2, 3], [], "length"), ([4], [], "length")
    ]  # fmt: skip


def test_the_models_own_caches_are_left_alone():
    """Both models can be in the middle of another text."""
    lm, draft = CausalLM(TARGET), CausalLM(DRAFT)
    lm.feed([1, 2, 3])
    draft.feed([1, 2])
    decode_batch(lm, prompts(3), 8, ModelDrafter(draft, 3))
    assert (lm.length, draft.length) == (3, 2)


@pytest.mark.parametrize("size", [0, -1, True, 2.5, None])
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(ValueError, match=f"1 or more; got {size}"):
        decode_batch(CausalLM(TARGET), [[1]], 4, size=size)


@pytest.mark.parametrize("n", [-1, True, 2.5, None])
def test_a_budget_that_is_none_is_refused(n):
    with pytest.raises(ValueError, match=f"max_new_tokens must be a whole number, 0 or more; got {n}"):
        decode_batch(CausalLM(TARGET), [[1]], n, ModelDrafter(CausalLM(DRAFT), 3))


@pytest.mark.parametrize("prompt, message", [([], "prompt 1 .* empty"), ([1, VOCAB], f"prompt 1 .* token {VOCAB} is")])
def test_a_prompt_that_is_none_is_named(prompt, message):
    with pytest.raises(ValueError, match=message):
        decode_batch(CausalLM(TARGET), [[1], prompt], 4)


@pytest.mark.parametrize("settings", [SamplingSettings(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("whose", ["draft", "target"])
def test_models_that_give_no_laws_are_named(whose, settings):
    """D8."""
    broken = llama(seed=5).double()
    with torch.no_grad():
        broken.lm_head.weight[3] = float("nan")
    target, draft = (broken, DRAFT) if whose == "target" else (TARGET, broken)
    with pytest.raises(ValueError, match=f"the {whose}'s logits"):
        decode_batch(CausalLM(target), prompts(3), 8, ModelDrafter(CausalLM(draft), 3), settings=settings)


def test_drafters_and_targets_that_a_batch_cannot_serve_are_refused():
    class Adaptive(ModelDrafter):
        name = "adaptive"

    lm, draft = CausalLM(TARGET), CausalLM(DRAFT)
    for drafter, name in (
        (ModelDrafter(draft, 3, siblings=(2,)), "'model' with siblings"),
        (Adaptive(draft), "'adaptive'"),
        (FixedTree([1, 2]), "'fixed'"),
    ):
        with pytest.raises(ValueError, match=f"the drafter {name} .*one by one"):
            decode_batch(lm, [[1]], 4, drafter)
    with pytest.raises(ValueError, match="sliding window"):
        decode_batch(CausalLM(mistral()), [[1]], 4)
    with pytest.raises(ValueError, match="a batch needs a CausalLM; got a TableModel"):
        decode_batch(TableModel.random(4, seed=1), [[1]], 4)
