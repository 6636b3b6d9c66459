"""Greedy speculation on the pocket pair against transformers' generate, token for token, float32.
Follows Leviathan et al. 2023 (arXiv 2211.17192): with argmax as the law, the text is identical.
Left out: other models (test_decode.py) and laws (test_statistics.py).
"""

import pytest
import torch
from laws import FixedTree
from tiny import generated

from specdec_lib.decode import decode
from specdec_lib.drafters import ModelDrafter, NoDrafter
from specdec_lib.model import CausalLM
from specdec_lib.pocket.tokenizer import prompt_ids
from specdec_lib.pocket.world import problems
from specdec_lib.verifiers import GreedyMatch, Lenience, LosslessRejection
from specdec_lib.zoo import load_pair

NEW = 12
PROMPTS = 200


@pytest.fixture(scope="module")
def prompts(pair):
    """200 cuts of the world's text, of lengths 1 to the context's limit, both included."""
    text: list[int] = []
    for problem in problems("test", 150, seed=5):
        text += prompt_ids(pair.tokenizer, problem.question)
        text += pair.tokenizer(" " + problem.question, add_special_tokens=False)["input_ids"][:30]
    context = pair.target.context
    lengths = sorted({1 + round((context - 1) * i / (PROMPTS - 1)) for i in range(PROMPTS)})
    assert len(lengths) == PROMPTS and lengths[0] == 1 and lengths[-1] == context
    return [text[(37 * i) % (len(text) - context) :][:length] for i, length in enumerate(lengths)]


def plain(model, prompt):
    """generate's own text, as long as the context allows."""
    return generated(model.model, prompt, min(NEW, model.context - len(prompt)))


def branches(answer, vocab):
    """The right continuation behind wrong ones that share its beginning."""
    wrong = [(token + 1) % vocab for token in answer]
    return [[wrong[0]], [answer[0], wrong[1], 3], answer[:4], [answer[0], answer[1], wrong[2]]]


class Branches(FixedTree):
    """Point-mass branches, right and wrong, at every round."""

    def __init__(self, answer, prompt_length, vocab):
        self.answer, self.prompt_length, self.vocab = answer, prompt_length, vocab

    def propose(self, context):
        rest = self.answer[len(context.committed) - self.prompt_length :]
        self.paths = branches(rest, self.vocab) if len(rest) > 3 else [[(v + 1) % self.vocab] for v in rest[:1]]
        return super().propose(context)


# name: drafter(target, draft, prompt, its plain continuation), verifier
ARMS = {
    "chain of 8": (lambda t, d, prompt, text: ModelDrafter(d, 8), LosslessRejection()),
    "chain of 8, greedy match": (lambda t, d, prompt, text: ModelDrafter(d, 8), GreedyMatch()),
    "chain of 1": (lambda t, d, prompt, text: ModelDrafter(d, 1), LosslessRejection()),
    "gamma 0": (lambda t, d, prompt, text: ModelDrafter(d, 0), LosslessRejection()),
    "nothing": (lambda t, d, prompt, text: NoDrafter(), LosslessRejection()),
    "siblings": (lambda t, d, prompt, text: ModelDrafter(d, 3, (3, 2)), GreedyMatch()),
    "branches": (lambda t, d, prompt, text: Branches(text, len(prompt), t.vocab_size), GreedyMatch()),
    "branches, lossless": (lambda t, d, prompt, text: Branches(text, len(prompt), t.vocab_size), LosslessRejection()),
    "draft = target": (
        lambda t, d, prompt, text: ModelDrafter(CausalLM(t.model, t.vocab_size), 4),
        LosslessRejection(),
    ),
    "lenience 1": (lambda t, d, prompt, text: ModelDrafter(d, 5), Lenience(1.0)),
}


def same_text(target, draft, prompts, arms):
    """Every prompt by the next arm in turn; the share of proposed tokens that was accepted, by arm."""
    accepted = {arm: [0, 0] for arm in arms}
    for i, prompt in enumerate(prompts):
        arm = arms[i % len(arms)]
        text = plain(target, prompt)
        make, verifier = ARMS[arm]
        trace = decode(target, prompt, NEW, make(target, draft, prompt, text), verifier)
        assert trace.ids == text, f"{arm}, prompt of {len(prompt)} tokens"
        assert trace.reason == ("length" if len(text) == NEW else "context")
        accepted[arm][0] += sum(len(r.path) for r in trace.rounds)
        accepted[arm][1] += sum(r.proposed for r in trace.rounds)
    return accepted


@pytest.mark.slow
def test_200_prompts_give_generates_text(pair, prompts):
    """A27, B11, B15: prompts of 1 to 512 tokens, every kind of proposal."""
    accepted = same_text(pair.target, pair.draft, prompts, list(ARMS))
    for arm, (kept, proposed) in accepted.items():
        assert (kept > 0) is (proposed > 0) is (arm not in ("gamma 0", "nothing")), arm
    assert accepted["chain of 8"][0] < accepted["chain of 8"][1], "some drafts are rejected too"
    assert accepted["branches"][0] < accepted["branches"][1]


def test_the_draft_as_the_target_gives_generates_text(pair, prompts):
    """The roles swapped: a small target, a larger draft."""
    same_text(pair.draft, pair.target, prompts[::5], list(ARMS))


def test_the_same_weights_twice_accept_everything(pair, prompts):
    """A27: draft = target in two objects, whole answers."""
    twin = CausalLM(pair.target.model, pair.target.vocab_size)
    for prompt in prompts[60:63]:
        trace = decode(pair.target, prompt, 41, ModelDrafter(twin, 7))
        assert sum(len(r.path) for r in trace.rounds) == sum(r.proposed for r in trace.rounds)


def test_answers_end_where_generate_ends_them(pair):
    """C1, C2: up to the model's own end of text, or the limit."""
    eos = sorted(pair.stops.eos_token_ids)
    for problem in problems("test", 4, seed=6):
        prompt = prompt_ids(pair.tokenizer, problem.question)
        expected = generated(pair.target.model, prompt, 150, eos_token_id=eos)
        trace = decode(pair.target, prompt, 150, ModelDrafter(pair.draft, 8), stops=pair.stops)
        assert trace.ids == expected
        assert trace.reason == ("eos" if expected[-1] in eos else "length")


def test_the_text_is_the_same_on_a_gpu(pair, prompts):
    """The same equality on cuda, settings that look at the text included."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine: greedy equality was tested on the CPU alone")
    gpu = load_pair("pocket", device="cuda")
    same_text(gpu.target, gpu.draft, prompts[::4], list(ARMS))
