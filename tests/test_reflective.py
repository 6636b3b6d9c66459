"""Reflective verification: which row of the second copy judges which token, its limits, and what it refuses.
Follows specdec_lib/verifiers/reflective.py; numbers by hand.
Left out: what it gives on the pocket pair (docs/lossy.md).
"""

import math

import pytest
import torch
from laws import SAMPLED, TOLERANCE, first_token_law, near, round_error
from test_batch import DRAFT, TARGET
from tiny import prompts

from specdec_lib.batch import decode_batch
from specdec_lib.decode import decode
from specdec_lib.drafters import ModelDrafter
from specdec_lib.model import CausalLM, TableModel
from specdec_lib.pocket.tokenizer import world_tokens
from specdec_lib.sampling import LogitsError, RandomChance, SamplingSettings
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers import LosslessRejection, Scores
from specdec_lib.verifiers.reflective import Reflective, reflect_prompt

TABLE = TableModel.random(5, 1)
DRAFTER = ModelDrafter(near(TABLE, 2), 3)


class Spy(LosslessRejection):
    """The base rule; keeps the committed text, the tree and the mixed logits of every round."""

    def __init__(self):
        self.seen = []

    def verify(self, tree, scores, chance):
        self.seen.append((tuple(scores.prefix(0)), tree, scores.logits))
        return super().verify(tree, scores, chance)


@pytest.mark.parametrize("settings", [SamplingSettings(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("prompt", [(), (4,), (3, 1)], ids=str)
def test_a_row_is_mixed_with_the_row_that_follows_the_same_tokens_of_the_second_copy(prompt, settings):
    """The target's logits depend on the whole history, so that every shift and every wrong prefix shows."""
    rule = Reflective(prompt, 0.3)
    rule.base = Spy()
    decode(TABLE, [0, 2], 20, DRAFTER, rule, settings)
    assert {len(tree) - 1 - len(tree.scouts) for _, tree, _ in rule.base.seen} >= {3} and len(rule.base.seen) > 4
    for text, tree, logits in rule.base.seen:
        draft = tuple(tree.tokens.tolist())[1 : len(tree) - len(tree.scouts)]
        assert len(tree.scouts) == (len(draft) + len(prompt) if draft else 0)
        for i in range(len(draft) + 1):
            first = torch.tensor(TABLE.logits_of((*text, *draft[:i])), dtype=torch.float64)
            second = torch.tensor(TABLE.logits_of((*text, *draft, *prompt, *draft[:i])), dtype=torch.float64)
            expected = 0.7 * first + 0.3 * second if draft else first
            torch.testing.assert_close(logits[i], expected, rtol=0, atol=1e-12)


def by_hand(weight):
    """Draft 1 after the root; logits (2, 0) in the first copy, (0, 3) in the second, behind the prompt 0."""
    rule, tree = Reflective([0], weight), DraftTree.chain([0, 1])
    scored = rule.with_scouts(tree, 100)
    rows = [[2.0, 0.0], [9.0, 0.0], [0.0, 3.0], [0.0, 7.0]]  # root, draft, prompt, second copy
    scores = Scores(torch.tensor(rows[: len(scored)]), SamplingSettings().adjuster(), lambda row: [0])
    return rule.verify(scored, scores, RandomChance(torch.Generator()))


def test_the_mix_by_hand():
    """.5: (1, 1.5) accepts 1, and the bonus row (4.5, 3.5) gives 0. .3: (1.4, .9) rejects 1 and gives 0."""
    half, less = by_hand(0.5), by_hand(0.3)
    assert (half.path, half.token, half.kind, half.outcomes) == ([1], 0, "bonus", {1: "exact"})
    assert (less.path, less.token, less.kind) == ([], 0, "recovered")
    whole = by_hand(1.0)  # the second copy alone: (0, 3), then (0, 7)
    assert (whole.path, whole.token) == ([1], 1)


def test_the_emitted_law_of_one_draft_by_hand():
    """A draft x is tested against p_x = softmax of the mix, which depends on x: sum over x of q(x) (accept or rest)."""
    p, again, q, weight = [0.2, 0.3, 0.5], [[0.6, 0.2, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]], [0.5, 0.3, 0.2], 0.4
    tables = {1: p}  # by length of text: the root's row
    target = TableModel(lambda ids: torch.tensor(tables.get(len(ids)) or again[ids[1]]).log().tolist(), 3)
    expected = [0.0] * 3
    for x in range(3):
        mixed = torch.softmax((1 - weight) * torch.tensor(p).log() + weight * torch.tensor(again[x]).log(), dim=0)
        accepted = min(1.0, float(mixed[x]) / q[x])
        rest = (mixed - torch.tensor(q)).clamp_min(0)
        expected[x] += q[x] * accepted
        for v in range(3):
            expected[v] += q[x] * (1 - accepted) * float(rest[v] / rest.sum())
    law = first_token_law(target, ModelDrafter(TableModel.constant(q), 1), Reflective((), weight))
    assert law == pytest.approx(expected, abs=1e-6)
    assert max(abs(a - b) for a, b in zip(law, p, strict=True)) > 0.05, "it is lossy"


# ---- limits ----------------------------------------------------------------------------------------------------


def test_weight_0_is_the_base_rule_and_scores_nothing_twice():
    rule = Reflective((3, 1), 0)
    assert rule.lossless and not Reflective((3, 1), 0.1).lossless
    assert round_error(TABLE, DRAFTER, n=3, verifier=rule, reaches=(1, 2, 3, 4)) < TOLERANCE
    trace = decode(TABLE, [0, 2], 20, DRAFTER, rule)
    base = decode(TABLE, [0, 2], 20, DRAFTER, LosslessRejection())
    assert [(r.tokens, r.outcomes, r.emitted, r.scouts) for r in trace.rounds] == [
        (r.tokens, r.outcomes, r.emitted, []) for r in base.rounds
    ]


def test_where_the_second_copy_does_not_fit_the_base_rule_decides():
    """Context 12: 3 drafts, a prompt of 2 and the second copy reach 8 tokens beyond the text, near the end too far."""
    target = TableModel(TABLE.logits_of, 5, context=12)
    rule = Reflective((3, 1), 0.4)
    trace = decode(target, [0, 2], 10, DRAFTER, rule)
    length = 2
    for r in trace.rounds:
        wanted = 2 + r.proposed if r.proposed else 0
        assert len(r.scouts) == (wanted if r.proposed + wanted <= 12 - length else 0), r
        length += len(r.emitted)
    assert {bool(r.scouts) for r in trace.rounds if r.proposed} == {True, False}
    assert length == 12 and trace.reason in ("context", "length")


def test_the_second_copy_may_end_with_the_context():
    """3 drafts, a prompt of 2 and 3 drafts again are 8 deep."""
    rule, tree = Reflective((3, 1), 0.4), DraftTree.chain([0, 1, 2, 3])
    assert rule.with_scouts(tree, 8).scouts == {4, 5, 6, 7, 8}
    assert not rule.with_scouts(tree, 7).scouts
    assert not rule.with_scouts(DraftTree.chain([0]), 8).scouts, "nothing to read again"


def test_scouts_are_no_proposal_and_are_never_kept():
    trace = decode(TABLE, [0, 2], 30, DRAFTER, Reflective((3,), 0.5))
    for r in trace.rounds:
        assert not set(r.scouts) & ({*r.path} | {*r.outcomes})
        assert r.proposed == r.depth <= 3


def test_a_batch_gives_what_a_text_alone_gives():
    lm, drafter = CausalLM(TARGET), ModelDrafter(CausalLM(DRAFT), 3)
    texts = prompts(5, longest=8)
    for i, trace in enumerate(decode_batch(lm, texts, 9, drafter, Reflective((5, 6), 0.4), SAMPLED, size=3)):
        alone = decode(lm, texts[i], 9, drafter, Reflective((5, 6), 0.4), SAMPLED, seed=i)
        assert [(r.tokens, r.outcomes, r.emitted) for r in trace.rounds] == [
            (r.tokens, r.outcomes, r.emitted) for r in alone.rounds
        ]


# ---- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [-0.1, 1.1, True, math.nan, "half"])
def test_a_weight_outside_its_range_is_refused(weight):
    with pytest.raises(ValueError, match="weight"):
        Reflective((), weight)


def test_a_tree_that_branches_or_has_scouts_is_refused():
    for tree in (DraftTree.from_paths(0, [[1], [2]]), DraftTree.chain([0, 1]).with_scouts([2], [1])):
        with pytest.raises(ValueError, match="single chain"):
            Reflective((), 0.5).with_scouts(tree, 50)


def test_numbers_of_the_second_copy_that_make_no_law_are_named():
    def logits_of(ids):
        return [math.nan] * 2 if len(ids) >= 5 else [0.0, 1.0]

    with pytest.raises(LogitsError, match="target's logits"):
        decode(TableModel(logits_of, 2), [0], 5, ModelDrafter(TableModel.constant([0.4, 0.6]), 2), Reflective((), 0.5))


def test_the_prompt_of_the_pocket_pair_is_in_its_own_words(pair):
    ids = reflect_prompt(pair.tokenizer)
    assert world_tokens(pair.tokenizer, ids) == [",", " wait", ","]
