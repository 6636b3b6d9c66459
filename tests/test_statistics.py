"""Seeded chi-square tests on the pocket pair at temperature 1: real laws, the real rule, the real chance.
Follows Leviathan et al. 2023 (arXiv 2211.17192), appendix A.1. A limit is the 0.001 quantile of its chi-square.
Left out: exact laws (test_exact_law.py), which need no limit.
"""

import pytest
import torch
from laws import SAMPLED
from scipy.stats import chi2
from test_mutants import CHAIN_MUTANTS, Rule

from specdec_lib.decode import Session
from specdec_lib.drafters import ModelDrafter
from specdec_lib.pocket.tokenizer import prompt_ids
from specdec_lib.pocket.world import problems
from specdec_lib.sampling import RandomChance
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers import Lenience, LosslessRejection, Scores

DRAWS = 20_000


@pytest.fixture(scope="module")
def text(pair):
    """A text after which a wrong rule would show: the worst law of `p in place of the residual` among 5 answers."""
    worst = []
    for problem in problems("test", 5, seed=11):
        ids = prompt_ids(pair.tokenizer, problem.question)
        start = len(ids)
        ids += Session(pair.target, settings=SAMPLED, seed=1).start(ids).run(60).ids
        p, q = (rows(model, [], ids)[start:] for model in (pair.target, pair.draft))
        shared = torch.minimum(p, q)
        wrong = shared + (1 - shared.sum(-1, keepdim=True)) * p
        distance = (wrong - p).abs().sum(-1) / 2
        worst.append((distance.max().item(), ids[: start + 1 + int(distance.argmax())]))
    distance, found = max(worst)
    assert distance > 0.03, "no text tells a wrong rule from the right one"
    return found


def rows(model, committed, tokens, parents=None):
    """Laws at temperature 1 after each of `tokens`, a chain unless parents are given; float64."""
    model.start()
    model.feed(committed)
    parents = range(-1, len(tokens) - 1) if parents is None else parents
    return torch.softmax(model.score(torch.tensor(tokens), parents).logits.double(), dim=-1)


def chi_square_p_value(counts, law, draws):
    """Upper tail of Pearson's statistic; cells that expect fewer than 5 are pooled."""
    expected = law.double() * draws
    big = expected >= 5
    observed = torch.cat([counts[big].double(), counts[~big].sum().double()[None]])
    expected = torch.cat([expected[big], expected[~big].sum()[None]])
    if expected[-1] < 1:
        if observed[-1] >= 15:  # tokens that hardly ever follow were emitted often
            return 0.0
        observed, expected = observed[:-1], expected[:-1]
    statistic = ((observed - expected) ** 2 / expected).sum().item()
    return float(chi2.sf(statistic, len(expected) - 1))


def two_tokens(pair, text, verifier, draws, seed):
    """Counts (vocabulary, vocabulary) of the first two tokens that one round of gamma 2 emits after a text.

    Both models have scored the text and each of its possible next tokens once; a round then draws from those laws. A
    round that emits one token is completed by plain decoding.
    """
    vocab = pair.target.vocab_size
    tree = [text[-1], *range(vocab)], [-1, *[0] * vocab]
    (p, p_next), (q, q_next) = ((x[0], x[1:]) for x in (rows(m, text[:-1], *tree) for m in (pair.target, pair.draft)))
    chance = RandomChance(torch.Generator().manual_seed(seed))
    first = chance.draw(q.expand(draws, -1))
    second = chance.draw(q_next[first])
    adjuster = SAMPLED.adjuster()
    counts = torch.zeros(vocab, vocab, dtype=torch.long)
    for x, y in zip(first.tolist(), second.tolist(), strict=True):
        proposal = DraftTree.chain([text[-1], x, y], torch.stack([q, q_next[x]]))
        laws = torch.stack([p, p_next[x], p])  # the third token's law is of no account here
        verdict = verifier.verify(proposal, Scores(laws.log(), adjuster, None), chance)
        emitted = [*(verdict.tokens[node] for node in verdict.path), verdict.token]
        if len(emitted) == 1:
            emitted += chance.draw(p_next[emitted[0]][None]).tolist()
        counts[emitted[0], emitted[1]] += 1
    return counts, p, p_next


@pytest.mark.slow
def test_the_first_two_tokens_follow_the_targets_law(pair, text):
    """20,000 rounds after a text where the models differ."""
    counts, p, p_next = two_tokens(pair, text, LosslessRejection(), DRAWS, seed=1)
    assert counts.sum() == DRAWS
    assert chi_square_p_value(counts.sum(1), p, DRAWS) > 0.001
    assert chi_square_p_value(counts.flatten(), (p[:, None] * p_next).flatten(), DRAWS) > 0.001


@pytest.mark.parametrize(
    "wrong",
    [CHAIN_MUTANTS["p in place of the residual"], Rule(ratio=lambda p, q: 1.0), Lenience(0.01)],
    ids=["p for the residual", "accepts all", "lenience 0.01"],
)
def test_the_same_test_catches_wrong_rules(pair, text, wrong):
    """A tenth of the draws is enough."""
    counts, p, _ = two_tokens(pair, text, wrong, DRAWS // 10, seed=2)
    assert chi_square_p_value(counts.sum(1), p, DRAWS // 10) < 1e-6


@pytest.mark.parametrize("siblings", [(), (2,)], ids=["chain", "tree"])
def test_whole_rounds_of_the_loop_follow_the_targets_law(pair, text, siblings):
    """300 rounds, each from its own seed: the first token after a text."""
    n = 300
    law = rows(pair.target, [], text)[-1]
    counts = torch.zeros_like(law)
    session = Session(pair.target, ModelDrafter(pair.draft, 1, siblings), settings=SAMPLED).start(text)
    for seed in range(n):
        session.generator.manual_seed(seed)
        counts[session.run(2).ids[0]] += 1
        session.target.truncate(len(text) - 1)  # the prompt stays cached
        session.ids, session.trace.rounds = list(text), []
    assert chi_square_p_value(counts, law, n) > 0.001
