"""Block verification: exact law, never fewer tokens kept than token by token, and wrong versions that are caught.
Follows Sun et al. 2025 (arXiv 2403.10444); the paper's algorithm is written out below, a length at a time.
Left out: how much it gains on trained models (test_gain.py).
"""

import math

import pytest
import torch
from hypothesis import given, settings
from laws import (
    SAMPLED,
    TOLERANCE,
    FixedTree,
    first_token_law,
    law_error,
    near,
    one_round,
    plain_law,
    round_error,
    whole_text,
)
from test_exact_law import EOS, SETTINGS, laws_of, pair
from test_mutants import ZeroChance, normalised
from test_verifiers import chance, one_hots, scores

from specdec_lib.decode import Session
from specdec_lib.drafters import ModelDrafter
from specdec_lib.model import TableModel
from specdec_lib.sampling import LogitsError, RandomRoll, SamplingSettings
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers import BlockVerification, GreedyMatch, LosslessRejection
from specdec_lib.verifiers.base import Verdict
from specdec_lib.verifiers.block import accept_and_recover

BLOCK, TOKEN = BlockVerification(), LosslessRejection()


def capped(before, p, q):
    return min(1.0, before * p / q)


def scaled_residual(prefix, p, q):
    return (prefix * p - q).clamp_min(0)


def paper_passes(z, prefix):
    return z / (z + 1 - prefix) if z > 0 else float(prefix == 1)


class Paper:
    """The paper's algorithm 2 as it is written: every length has a uniform, the longest that passes is kept.

    Parts can be replaced by wrong ones. prefix: P_i from P_{i-1}. passes: h_i from Z_i and P_i. residual: what is
    recovered from; mass: what Z_i is the mass of (the residual unless given). kept: the length kept, of
    those that pass.
    """

    name, lossless, needs = "block", True, frozenset()

    def __init__(self, prefix=capped, passes=paper_passes, residual=scaled_residual, mass=None, kept=max, last=None):
        self.prefix, self.passes, self.residual, self.kept = prefix, passes, residual, kept
        self.mass, self.last = mass or residual, last or (lambda prefix, p, q: prefix)

    def verify(self, tree, scores, chance):
        p, gamma, x = scores.laws, len(tree) - 1, tree.tokens.tolist()
        q = torch.eye(p.shape[-1], dtype=p.dtype)[x[1:]] if tree.draft_laws is None else tree.draft_laws
        prefix = [1.0]
        for i in range(gamma):
            prefix.append(self.prefix(prefix[-1], float(p[i, x[i + 1]]), float(q[i, x[i + 1]])))
        passes = [self.passes(float(self.mass(prefix[i], p[i], q[i]).sum()), prefix[i]) for i in range(gamma)]
        passes.append(self.last(prefix[-1], float(p[gamma - 1, x[gamma]]), float(q[gamma - 1, x[gamma]])))
        emit = [normalised(self.residual(prefix[i], p[i], q[i]), p[i]) for i in range(gamma)]
        roll = chance.roll(torch.stack([*emit, p[gamma]]))
        tried = [0] + [i for i in range(1, gamma + 1) if roll.accept(i, min(1.0, passes[i]))]
        kept = self.kept(tried)
        outcomes = {i: "exact" for i in range(1, kept + 1)} | ({kept + 1: "rejected"} if kept < gamma else {})
        zeros = [0.0] * (gamma + 1)
        kind = "recovered" if kept < gamma else "bonus"
        return Verdict(list(range(1, kept + 1)), roll.token(kept), kind, outcomes, x, zeros, zeros, zeros)


def leading(tried):
    """The run of lengths 1, 2, ... that pass: stops at the first failure."""
    return next(i for i in range(len(tried) + 1) if i + 1 not in tried)


def emitted_law(target, drafter, verifier, **kwargs):
    found = {}
    for weight, ids in one_round(target, drafter, verifier, **kwargs):
        found[ids] = found.get(ids, 0.0) + weight
    return found


def mean_kept(target, drafter, verifier):
    return math.fsum(weight * (len(ids) - 1) for weight, ids in one_round(target, drafter, verifier))


# ---- the law ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [1, 2, 3])
@pytest.mark.parametrize("vocab", [3, 4])
def test_a_chain_emits_the_targets_law(vocab, gamma):
    target, draft = pair(vocab, seed=gamma)
    error = round_error(target, ModelDrafter(draft, gamma), gamma + 1, BLOCK, reaches=range(1, gamma + 2))
    assert error < TOLERANCE


@pytest.mark.parametrize("drafter", ["drawn", "hides tokens", "argmax", "fixed"])
def test_the_walk_emits_what_the_papers_algorithm_emits(drafter):
    """Not only the law: every text of a round has the same probability, so as many tokens are kept."""
    target, draft = pair(3, seed=4)
    drafter = {
        "drawn": ModelDrafter(draft, 3),
        "hides tokens": ModelDrafter(near(target, 12, hides=lambda ids: len(ids) % 3), 3),
        "argmax": ModelDrafter(draft, 3, greedy=True),
        "fixed": FixedTree([0, 1, 0]),
    }[drafter]
    ours, papers = (emitted_law(target, drafter, verifier) for verifier in (BLOCK, Paper()))
    assert ours.keys() == papers.keys()
    assert all(ours[ids] == pytest.approx(papers[ids], abs=1e-12) for ids in ours)


def test_point_masses_emit_the_targets_law():
    """A1: chosen tokens have a one-hot q; the path is fixed or the draft's argmax."""
    target, draft = pair(4)
    assert round_error(target, ModelDrafter(draft, 3, greedy=True), 4, BLOCK) < TOLERANCE
    for path in ([1], [0, 1, 2], [3, 3, 3]):
        assert round_error(target, FixedTree(path), len(path) + 1, BLOCK) < TOLERANCE


@pytest.mark.parametrize("name", SETTINGS)
def test_sampling_settings_emit_the_adjusted_law(name):
    target, draft = pair(4, seed=5)
    error = round_error(
        target, ModelDrafter(draft, 2), 3, BLOCK, SETTINGS[name], prompt=(3, 0), eos=(EOS,), reaches=(1, 2, 3)
    )
    assert error < TOLERANCE


def test_ends_limits_and_several_rounds_do_not_bend_the_law():
    target, draft = pair(3, seed=9)
    assert round_error(target, ModelDrafter(draft, 3), 4, BLOCK, eos=(EOS,)) < TOLERANCE
    emitted = whole_text(target, ModelDrafter(draft, 2), 3, BLOCK)
    assert law_error(emitted, plain_law(target), (0,), 3) < TOLERANCE


def test_tokens_outside_the_draft_are_emitted_with_their_law():
    """D1, D2: a draft that lacks two of the target's tokens, and one that has two more."""
    for draft_vocab in (3, 7):
        target, draft = TableModel.random(5, 31), TableModel.random(draft_vocab, 32)
        assert round_error(target, ModelDrafter(draft, 2), 3, BLOCK) < TOLERANCE


@settings(max_examples=25, deadline=None)
@given(p=laws_of, q=laws_of)
def test_any_two_laws_emit_p_and_keep_no_fewer(p, q):
    """A15 included: laws with zeros, equal laws, disjoint laws."""
    p, q = ([v / sum(law) for v in law] for law in (p, q))
    target, drafter = TableModel.constant(p), ModelDrafter(TableModel.constant(q), 2)
    assert first_token_law(target, drafter, BLOCK, SAMPLED) == pytest.approx(p, abs=TOLERANCE)
    assert round_error(target, drafter, 3, BLOCK) < TOLERANCE
    assert mean_kept(target, drafter, BLOCK) >= mean_kept(target, drafter, TOKEN) - 1e-12


# ---- what it keeps ---------------------------------------------------------------------------------------------


def test_the_papers_example():
    """p = (1/3, 2/3), q = (2/3, 1/3), gamma 2: 10/9 kept token by token, 11/9 as a block."""
    target, drafter = TableModel.constant([1 / 3, 2 / 3]), ModelDrafter(TableModel.constant([2 / 3, 1 / 3]), 2)
    assert mean_kept(target, drafter, TOKEN) == pytest.approx(10 / 9)
    assert mean_kept(target, drafter, BLOCK) == pytest.approx(11 / 9)


@pytest.mark.parametrize("seed", range(6))
def test_never_worse_than_token_by_token_and_the_same_for_one_token(seed):
    target, draft = pair(3, seed)
    one, three = ModelDrafter(draft, 1), ModelDrafter(draft, 3)
    assert mean_kept(target, one, BLOCK) == pytest.approx(mean_kept(target, one, TOKEN), abs=1e-12)
    assert mean_kept(target, three, BLOCK) > mean_kept(target, three, TOKEN) + 1e-6


def test_a_later_token_saves_an_earlier_one():
    """P_1 = 1/2 alone would fall half of the time; with P_2 = 1 the block is kept for sure."""
    p = torch.tensor([[1 / 3, 2 / 3]] * 3, dtype=torch.float64)
    q = torch.tensor([[2 / 3, 1 / 3]] * 2, dtype=torch.float64)
    accept, laws = accept_and_recover(DraftTree.chain([0, 0, 1], q), p)
    assert accept.tolist() == pytest.approx([0, 1, 1])
    accept, laws = accept_and_recover(DraftTree.chain([0, 1, 0], q), p)
    assert accept.tolist() == pytest.approx([0, 1, 0.5])
    assert laws.flatten().tolist() == pytest.approx([0, 1, 0, 1, 1 / 3, 2 / 3])


def test_equal_laws_are_always_kept():
    """A15: p = q exactly in float32; nothing is rejected, and there is no NaN."""
    law = torch.softmax(torch.randn(50, generator=torch.Generator().manual_seed(0)), dim=-1)
    tokens = chance().draw(law.expand(1000, -1)).tolist()
    accept, laws = accept_and_recover(DraftTree.chain([0, *tokens], law.expand(1000, -1)), law.expand(1001, -1))
    assert accept[1:].min() == 1
    assert torch.equal(laws, law.expand(1001, -1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_nearly_equal_laws_are_kept_and_leave_no_nan(dtype):
    """F9, F16: laws that differ by 1e-5, the draft's perhaps in half precision."""
    p = torch.softmax(torch.randn(40, generator=torch.Generator().manual_seed(1)), dim=-1)
    q = (p * (1 + 1e-5 * torch.linspace(-1, 1, 40))).to(dtype)
    accept, laws = accept_and_recover(DraftTree.chain([0, 3, 5, 7], q.expand(3, -1)), p.expand(4, -1))
    assert accept.dtype == laws.dtype == torch.float32
    assert accept[1:].min() > 0.98 and accept.max() <= 1
    assert laws.sum(-1).tolist() == pytest.approx([1] * 4, abs=1e-5)


# ---- temperature 0, refusals -----------------------------------------------------------------------------------


def test_at_temperature_0_it_is_exact_match():
    for right in ([1, 0, 1, 1], [0, 1, 0], [1, 1], []):
        targets = list(range(1, len(right) + 2))
        drafts = [token if good else 8 for token, good in zip(targets, right, strict=False)]
        tree = DraftTree.chain([0, *drafts])
        assert BLOCK.verify(tree, scores(one_hots(*targets)), chance()) == GreedyMatch().verify(
            tree, scores(one_hots(*targets)), chance()
        )


@pytest.mark.parametrize("setting", [SamplingSettings(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize(
    "tree",
    [DraftTree.from_paths(0, [[1], [2]]), DraftTree(torch.tensor([0, 1]), [-1, 0], scouts=frozenset({1}))],
    ids=["branches", "scout"],
)
def test_what_is_not_a_chain_is_refused(tree, setting):
    with pytest.raises(ValueError, match="single chain; use the method lossless"):
        BLOCK.verify(tree, scores(one_hots(*[1] * len(tree)), setting), chance())


def test_an_id_outside_the_targets_vocabulary_is_rejected_and_leaves_p_as_it_was():
    """D2: the draft proposes id 11 where the target has 10; token by token and as a block."""
    p = torch.tensor([[0.1] * 10] * 3, dtype=torch.float64)
    for rule in (TOKEN, BLOCK):
        verdict = rule.verify(DraftTree.chain([0, 11, 1]), scores(p.log(), SAMPLED), chance())
        assert verdict.path == []
    accept, laws = accept_and_recover(DraftTree.chain([0, 11, 1]), p)
    assert accept.tolist() == [0, 0, 0]
    assert torch.allclose(laws[0], p[0])


@pytest.mark.parametrize("row", [[math.nan] * 3, [0, math.nan, 0], [-math.inf] * 3, [0.0, math.inf, 0.0]], ids=str)
def test_rows_that_make_no_law_raise(row):
    """D8."""
    for rows in ([[0.0, 1.0, 0.0], row], [row, [0.0, 1.0, 0.0]]):
        with pytest.raises(LogitsError, match="target's logits"):
            BLOCK.verify(DraftTree.chain([0, 1]), scores(rows, SAMPLED), chance())


def test_a_token_of_probability_zero_is_rejected_even_at_u_0():
    """A29."""
    target, draft = TableModel.constant([0.0, 1.0]), TableModel.constant([1.0, 0.0])
    session = Session(target, ModelDrafter(draft, 2), BLOCK, SAMPLED, chance=ZeroChance(RandomRoll)).start([0])
    assert next(session.rounds(5)).emitted == [1]


# ---- wrong versions --------------------------------------------------------------------------------------------


def unscaled(prefix, p, q):
    return (p - q).clamp_min(0)


MUTANTS = {
    "residual not scaled by P": Paper(residual=unscaled, mass=scaled_residual),
    "token rule, residual unchanged": Paper(prefix=lambda before, p, q: min(1.0, p / q), residual=unscaled),
    "stops at the first failure": Paper(kept=leading),
    "Z not scaled by P": Paper(mass=unscaled),
    "Z + 1 in place of Z + 1 - P": Paper(passes=lambda z, prefix: z / (z + 1)),
    "P in place of h": Paper(passes=lambda z, prefix: prefix),
    "P not capped at 1": Paper(
        prefix=lambda before, p, q: before * p / q,
        passes=lambda z, prefix: 1.0 if prefix >= 1 else paper_passes(z, prefix),
    ),
    "the last token judged alone": Paper(last=lambda prefix, p, q: min(1.0, p / q)),
}


def test_the_control_passes():
    target, draft = pair(4, seed=1)
    assert round_error(target, ModelDrafter(draft, 3), 4, Paper()) < TOLERANCE


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_version_is_caught(name):
    target, draft = pair(4, seed=1)
    assert round_error(target, ModelDrafter(draft, 3), 4, MUTANTS[name]) > 1e-3
