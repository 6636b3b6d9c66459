"""Hugging Face's arms: the same text as ours, gamma really held, settings of their own, nothing left behind.
Follows transformers' generate as installed; passes are counted through hooks on the models.
Left out: the run that times them (test_bench.py).
"""

import pytest
import torch
from tiny import disturbed, llama, prompts
from transformers import GenerationConfig

from specdec_lib.decode import Stops, decode
from specdec_lib.hf_arms import HFArm, PassWatch, can_assist
from specdec_lib.model import CausalLM
from specdec_lib.zoo import Pair

GAMMA, NEW = 3, 24


def pair_of(target, draft, eos=()):
    return Pair("tiny", CausalLM(target), CausalLM(draft), None, Stops(frozenset(eos)), {})


@pytest.fixture
def pair():
    target = llama(seed=3)
    return pair_of(target, disturbed(target, seed=4, spread=0.05))


def arm(name, pair, temperature=0.0, new=NEW, gamma=GAMMA):
    return HFArm(name, {} if name == "hf-generate" else {"gamma": gamma}, pair, temperature, new)


def drafted(pair, prompt, seed=0, **more):
    """(new ids, tokens of each target pass, of each draft pass) of assisted generation."""
    with PassWatch(pair.target.model) as target, PassWatch(pair.draft.model) as draft:
        ids = arm("hf-assisted", pair, **more).run(prompt, seed)
    return ids, target.new_tokens, draft.new_tokens


@pytest.mark.parametrize("name", ["hf-generate", "hf-assisted", "hf-lookup"])
def test_every_arm_writes_our_plain_text_and_counts_its_tokens_eos_included(pair, name):
    for prompt in prompts(4):
        plain = decode(pair.target, prompt, NEW).ids
        assert arm(name, pair).run(prompt, 0) == plain
        stopping = pair_of(pair.target.model, pair.draft.model, eos=plain[5:6])
        expected = plain[: plain.index(plain[5]) + 1]
        assert arm(name, stopping).run(prompt, 0) == expected == decode(
            stopping.target, prompt, NEW, stops=stopping.stops
        ).ids  # fmt: skip


def test_gamma_is_what_is_drafted_in_every_round_until_the_end_is_near(pair):
    perfect = pair_of(pair.target.model, disturbed(pair.target.model, seed=4, spread=0.0))
    for models in (pair, perfect):  # a schedule would shorten the first and lengthen the second
        prompt = prompts(3)[2]
        ids, target, draft = drafted(models, prompt, new=60)
        assert len(ids) == 60
        assert target[0] == len(prompt) + GAMMA  # the prompt is read with the first draft
        assert set(target[1 : 60 // (GAMMA + 1) - 1]) == {GAMMA + 1}
        assert len(draft) == sum(target) - len(prompt) - (len(target) - 1)  # a draft pass a drafted token
    assert len(target) == 60 // (GAMMA + 1)


def test_gamma_is_held_whatever_the_models_own_settings_say(pair):
    prompt = prompts(3)[2]
    expected = drafted(pair, prompt)
    pair.draft.model.generation_config = GenerationConfig(
        num_assistant_tokens=7, num_assistant_tokens_schedule="heuristic", assistant_confidence_threshold=0.99
    )
    pair.target.model.generation_config = GenerationConfig(repetition_penalty=5.0, num_assistant_tokens=9)
    assert drafted(pair, prompt) == expected
    assert drafted(pair, prompt) == expected  # and the second run is as the first


def test_lookup_drafts_gamma_tokens_after_a_repeated_pair(pair):
    prompt = [5, 6, 7, 8, 9, 10, 11, 5, 6]
    with PassWatch(pair.target.model) as target:
        arm("hf-lookup", pair).run(prompt, 0)
    assert target.new_tokens[0] == len(prompt) + GAMMA and max(target.new_tokens[1:]) <= GAMMA + 1


@pytest.mark.parametrize("name", ["hf-generate", "hf-assisted", "hf-lookup"])
def test_sampling_follows_the_seed_and_leaves_the_global_random_state_alone(pair, name):
    prompt, state = prompts(3)[1], torch.random.get_rng_state()
    first, again, other = (arm(name, pair, temperature=1.0).run(prompt, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert torch.equal(torch.random.get_rng_state(), state)


def test_sampling_is_from_the_whole_law(pair):
    """Unless told otherwise, transformers keeps the 50 likeliest tokens."""
    flat = llama(seed=1, vocab=150, spread=1e-3)
    models = pair_of(flat, flat)
    one = arm("hf-generate", models, temperature=1.0, new=1)
    assert len({one.run([3], seed)[0] for seed in range(150)}) > 60


def test_temperature_reaches_generate(pair):
    cold = arm("hf-generate", pair, temperature=0.01).run(prompts(3)[1], 0)
    assert cold == arm("hf-generate", pair).run(prompts(3)[1], 0)
    assert cold != arm("hf-generate", pair, temperature=1.0).run(prompts(3)[1], 0)


def test_generation_configs_and_hooks_are_put_back_also_after_an_error(pair, monkeypatch):
    models = (pair.target.model, pair.draft.model)
    own = [model.generation_config for model in models]

    def fail(*args, **kwargs):
        raise RuntimeError("stopped")

    monkeypatch.setattr(pair.target.model, "forward", fail)
    with pytest.raises(RuntimeError, match="stopped"), PassWatch(models[0]), PassWatch(models[1]):
        arm("hf-assisted", pair).run([1, 2], 0)
    assert all(model.generation_config is config for model, config in zip(models, own, strict=True))
    assert not any(model._forward_hooks or model._forward_pre_hooks for model in models)


def test_what_cannot_be_compared_is_refused(pair):
    with pytest.raises(ValueError, match="gamma of 1 or more; got 0"):
        arm("hf-assisted", pair, gamma=0)
    other = pair_of(pair.target.model, llama(vocab=30))
    assert can_assist(pair) and not can_assist(other)
    with pytest.raises(ValueError, match="two sizes"):
        arm("hf-assisted", other)
    arm("hf-lookup", other)


def test_a_watch_counts_our_passes_too(pair):
    prompt = prompts(3)[2]
    with PassWatch(pair.target.model) as watch:
        decode(pair.target, prompt, 5)
    assert watch.new_tokens == [len(prompt) - 1, 1, 1, 1, 1, 1]
    assert watch.seconds > 0
