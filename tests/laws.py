"""The checker of laws: what one round of the real loop emits, over every outcome, against plain decoding by hand.
Follows Leviathan et al. 2023 (arXiv 2211.17192), appendix A.1: what must hold; the reference shares no code with it.
Left out: the tests (test_exact_law.py, test_mutants.py, test_statistics.py) and the models (tiny.py).
"""

import math
from collections import defaultdict
from functools import cache

import torch

from specdec_lib.decode import Session, Stops
from specdec_lib.model import TableModel
from specdec_lib.sampling import SamplingSettings, outcomes
from specdec_lib.tree import DraftTree

SAMPLED = SamplingSettings(temperature=1.0)
TOLERANCE = 1e-9


def reference_law(logits, prefix, settings=SAMPLED, prompt_length=1, eos=()) -> list[float]:
    """The law of plain decoding after `prefix`, with every sampling setting written out by hand."""
    z = [float(v) for v in logits]
    if settings.repetition_penalty is not None:
        for token in set(prefix):
            z[token] *= settings.repetition_penalty if z[token] < 0 else 1 / settings.repetition_penalty
    for *before, last in settings.bad_words_ids:
        if list(prefix[len(prefix) - len(before) :]) == before:
            z[last] = -math.inf
    if len(prefix) - prompt_length < settings.min_new_tokens:
        for token in eos:
            z[token] = -math.inf
    if settings.temperature == 0:
        return [float(i == z.index(max(z))) for i in range(len(z))]
    law = _softmax([v / settings.temperature for v in z])
    if settings.top_k is not None:
        least = sorted(law)[-min(settings.top_k, len(law))]
        law = _normalised([v if v >= least else 0.0 for v in law])
    if settings.top_p is not None:
        order, mass, keep = sorted(range(len(law)), key=lambda i: -law[i]), 0.0, set()
        for i in order:
            if mass < settings.top_p:
                keep.add(i)
            mass += law[i]
        law = _normalised([v if i in keep else 0.0 for i, v in enumerate(law)])
    if settings.min_p is not None:
        law = _normalised([v if v >= settings.min_p * max(law) else 0.0 for v in law])
    return law


def _softmax(z):
    top = max(z)
    return _normalised([math.exp(v - top) for v in z])


def _normalised(mass):
    return [v / math.fsum(mass) for v in mass]


def plain_law(target, settings=SAMPLED, prompt_length=1, eos=()):
    """law(text) of a TableModel's plain decoding, remembered."""
    return cache(lambda ids: reference_law(target.logits_of(ids), ids, settings, prompt_length, eos))


def completions(law, prompt, begun, n, eos=()):
    """(word, probability) of every word of n new tokens, or ended by EOS, that begins with `begun`."""
    begun = tuple(begun)
    if len(begun) >= n or (begun and begun[-1] in eos):
        yield begun[:n], 1.0
        return
    for token, probability in enumerate(law((*prompt, *begun))):
        if probability > 0:
            for word, rest in completions(law, prompt, (*begun, token), n, eos):
                yield word, probability * rest


def law_error(emitted, law, prompt, n, eos=()) -> float:
    """Largest difference between two laws of the first n new tokens: plain decoding's, and that of `emitted` texts.

    emitted: (weight, new ids) of every outcome. A text shorter than n is completed by plain decoding: if a round
    passes this test after any text, then any number of rounds emits the plain law.
    """
    expected, found = defaultdict(float), defaultdict(float)
    for word, probability in completions(law, prompt, (), n, eos):
        expected[word] += probability
    for weight, begun in emitted:
        for word, probability in completions(law, prompt, begun, n, eos):
            found[word] += weight * probability
    return max(abs(expected[word] - found[word]) for word in expected | found)


def one_round(target, drafter, verifier=None, settings=SAMPLED, prompt=(0,), limit=50, stops=None, session=Session):
    """(weight, emitted ids) of every outcome of the loop's first round after a prompt."""

    def run(chance):
        begun = session(target, drafter, verifier, settings, stops, chance=chance).start(list(prompt))
        return tuple(next(begun.rounds(limit)).emitted)

    return outcomes(run)


def whole_text(target, drafter, n, verifier=None, settings=SAMPLED, prompt=(0,), stops=None):
    """(weight, new ids) of every outcome of decoding n tokens, over as many rounds as it takes."""
    return outcomes(
        lambda chance: tuple(
            Session(target, drafter, verifier, settings, stops, chance=chance).start(list(prompt)).run(n).ids
        )
    )


def round_error(
    target, drafter, n, verifier=None, settings=SAMPLED, prompt=(0,), eos=(), session=Session, reaches=()
) -> float:
    """law_error of one round of the loop: the test that every lossless method passes.

    reaches: lengths of emitted texts that must occur, so that nothing passes by never accepting or rejecting.
    """
    emitted = one_round(target, drafter, verifier, settings, prompt, stops=Stops(frozenset(eos)), session=session)
    assert abs(math.fsum(weight for weight, _ in emitted) - 1) < TOLERANCE, "the outcomes' weights do not sum to 1"
    assert {len(ids) for _, ids in emitted} >= set(reaches), "some lengths of emitted text never occur"
    return law_error(emitted, plain_law(target, settings, len(prompt), eos), tuple(prompt), n, eos)


def first_token_law(target, drafter, verifier=None, settings=SAMPLED, prompt=(0,)) -> list[float]:
    """The emitted law of the first new token."""
    found = [0.0] * target.vocab_size
    for weight, emitted in one_round(target, drafter, verifier, settings, prompt):
        found[emitted[0]] += weight
    return found


def near(target, seed, spread=0.8, hides=None) -> TableModel:
    """A draft for a TableModel: its logits with noise; hides(text): a token that the draft never proposes."""
    noise = TableModel.random(target.vocab_size, seed, spread)

    def logits_of(ids):
        logits = [a + b for a, b in zip(target.logits_of(ids), noise.logits_of(ids), strict=True)]
        if hides is not None:
            logits[hides(ids)] = -math.inf
        return logits

    return TableModel(logits_of, target.vocab_size)


class FixedTree:
    """A drafter that proposes the same point-mass paths below every root, as deep as there is room."""

    name = "fixed"

    def __init__(self, *paths):
        self.paths = paths

    def start(self, prompt):
        pass

    def propose(self, context):
        paths = [path[: context.room] for path in self.paths]
        return DraftTree.from_paths(context.committed[-1], paths, device=context.device)

    def observe(self, feedback):
        pass


class DrawnTree:
    """A drafter that draws a tree of a given shape from a TableModel's laws, a node after its parent.

    shape: the parent of nodes 1, 2, ...
    """

    name = "drawn"

    def __init__(self, model, shape):
        self.model, self.shape = model, shape

    def start(self, prompt):
        pass

    def propose(self, context):
        texts, tokens, laws = [tuple(context.committed)], [context.committed[-1]], []
        for parent in self.shape:
            logits = torch.tensor([self.model.logits_of(texts[parent])], dtype=torch.float64)
            adjusted = context.adjuster.logits(logits, lambda row, text=texts[parent]: text)
            laws.append(context.adjuster.laws(adjusted))
            tokens.append(int(context.chance.draw(laws[-1])))
            texts.append((*texts[parent], tokens[-1]))
        return DraftTree(torch.tensor(tokens), [-1, *self.shape], torch.cat(laws))

    def observe(self, feedback):
        pass
