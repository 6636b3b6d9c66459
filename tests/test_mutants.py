"""Known ways to break the rule, and the proof that the law test catches each: a test of the tests.
Follows public bug reports, each cut down to a small input; the right rule here is the control that must pass.
Left out: wrong code that no law can show (caches and positions: test_model.py, test_decode.py).
"""

import pytest
import torch
from laws import SAMPLED, TOLERANCE, DrawnTree, FixedTree, first_token_law, near, round_error

from specdec_lib.decode import Session
from specdec_lib.drafters import ModelDrafter
from specdec_lib.model import TableModel
from specdec_lib.sampling import Adjuster, RandomRoll, SamplingSettings
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers import LosslessRejection
from specdec_lib.verifiers.base import Scores, walk

P2, Q2 = [0.6, 0.4], [0.8, 0.2]
P3, Q3 = [0.2, 0.3, 0.5], [0.6, 0.3, 0.1]
EOS = 2


def normalised(mass, fallback):
    return mass / mass.sum() if mass.sum() > 0 else fallback


def right_residual(p, q, x):
    return normalised((p - q).clamp_min(0), p)


def right_bonus(tree, laws, node):
    return laws[node]


class Rule:
    """The lossless rule, a node at a time, with a part that can be replaced by a wrong one."""

    name, lossless, needs = "rule", True, frozenset()

    def __init__(self, ratio=lambda p, q: min(1.0, p / q), residual=right_residual, bonus=right_bonus, last=None):
        self.ratio, self.residual, self.bonus = ratio, residual, bonus
        self.last = last or (lambda p: p)  # what is done to the residual after the last sibling

    def verify(self, tree, scores, chance):
        laws, accept = scores.laws, torch.zeros(len(tree), dtype=torch.float64)
        emit = torch.empty_like(laws)
        for node in range(len(tree)):
            p = laws[node]
            for child in tree.children[node]:
                x = int(tree.tokens[child])
                q = torch.eye(len(p), dtype=p.dtype)[x] if tree.draft_laws is None else tree.draft_laws[child - 1]
                accept[child] = min(1.0, self.ratio(float(p[x]), float(q[x])))
                p = self.residual(p, q, x)
            emit[node] = self.last(p) if tree.children[node] else self.bonus(tree, laws, node)
        return walk(tree, scores, accept, chance.roll(emit))


TARGET = TableModel.random(4, 1)
DRAFT = near(TARGET, 2)
TWO = ModelDrafter(DRAFT, 2)
SIBLINGS = ModelDrafter(DRAFT, 1, siblings=(2,))


def test_the_control_passes_on_chains_and_trees():
    assert round_error(TARGET, TWO, n=3, verifier=Rule()) < TOLERANCE
    assert round_error(TARGET, SIBLINGS, n=2, verifier=Rule()) < TOLERANCE
    assert round_error(TARGET, FixedTree([0, 1], [2]), n=3, verifier=Rule()) < TOLERANCE
    assert round_error(TARGET, DrawnTree(DRAFT, (0, 0, 1)), n=3, verifier=Rule()) < TOLERANCE


# ---- a wrong part of the rule ----------------------------------------------------------------------------------


def zeroed(p, q, x):
    rest = p.clone()
    rest[x] = 0
    return normalised(rest, p)


def first_sibling_only(p, q, x):
    """p - q of the raw p, once: a second sibling is tested against the same p again."""
    return p


CHAIN_MUTANTS = {
    "A3 softmax over the residual": Rule(residual=lambda p, q, x: torch.softmax((p - q).clamp_min(0), dim=-1)),
    "p in place of the residual": Rule(residual=lambda p, q, x: p),
    "A6 one entry zeroed": Rule(residual=zeroed),
    "residual |p - q|": Rule(residual=lambda p, q, x: normalised((p - q).abs(), p)),
    "residual q - p": Rule(residual=lambda p, q, x: normalised((q - p).clamp_min(0), p)),
    "ratio q / p": Rule(ratio=lambda p, q: q / p if p else 1.0),
    "accepted with p(x)": Rule(ratio=lambda p, q: p),
    "accepted with p(x) > q(x) or never": Rule(ratio=lambda p, q: float(p >= q)),
    "A9 bonus from the row before": Rule(bonus=lambda tree, laws, node: laws[max(tree.parents[node], 0)]),
    "A9 bonus from the residual's law": Rule(bonus=lambda tree, laws, node: laws[0]),
    "A26 rows shifted by one": Rule(bonus=lambda tree, laws, node: laws[node - 1]),
}


@pytest.mark.parametrize("name", CHAIN_MUTANTS)
def test_a_wrong_rule_on_chains_is_caught(name):
    assert round_error(TARGET, TWO, n=3, verifier=CHAIN_MUTANTS[name]) > 1e-3


TREE_MUTANTS = {
    "G16 no renormalisation between siblings": Rule(
        residual=lambda p, q, x: (p - q).clamp_min(0), last=lambda p: normalised(p, torch.ones_like(p) / len(p))
    ),
    "each sibling against the first p": Rule(
        residual=first_sibling_only, last=lambda p: normalised((p - p.mean()).clamp_min(0), p)
    ),
    "the last sibling's residual alone": Rule(residual=lambda p, q, x: zeroed(p, q, x)),
}


@pytest.mark.parametrize("name", TREE_MUTANTS)
def test_a_wrong_rule_for_siblings_is_caught(name):
    assert round_error(TARGET, SIBLINGS, n=2, verifier=TREE_MUTANTS[name]) > 1e-3


class SkipsEqualSiblings(LosslessRejection):
    """Drops a drawn sibling whose token an earlier sibling has, as if it were a point mass."""

    def verify(self, tree, scores, chance):
        seen, keep = set(), [0]
        for node in range(1, len(tree)):
            key = (tree.parents[node], int(tree.tokens[node]))
            if key not in seen:
                keep.append(node)
            seen.add(key)
        assert all(tree.parents[node] == 0 for node in keep[1:]), "written for one level"
        fewer = DraftTree(tree.tokens[keep], [-1, *[0] * (len(keep) - 1)], tree.draft_laws[[n - 1 for n in keep[1:]]])
        return super().verify(fewer, Scores(scores.logits[keep], scores.adjuster, None), chance)


def test_a_skipped_equal_sibling_is_caught():
    """G16: p = (.5, .3, .2), q = (.2, .2, .6) with two siblings drawn gives (.46, .34, .2)."""
    p, q = [0.5, 0.3, 0.2], [0.2, 0.2, 0.6]
    drafter = ModelDrafter(TableModel.constant(q), 1, siblings=(2,))
    assert first_token_law(TableModel.constant(p), drafter) == pytest.approx(p, abs=TOLERANCE)
    law = first_token_law(TableModel.constant(p), drafter, SkipsEqualSiblings())
    assert law == pytest.approx([0.46, 0.34, 0.2], abs=TOLERANCE)


def test_no_renormalisation_between_point_masses_gives_the_reported_law():
    """G16: p = (.5, .3, .2), point-mass siblings 0 and 1, not renormalised: (.5, .15, .35)."""
    p = [0.5, 0.3, 0.2]
    target, drafter = TableModel.constant(p), FixedTree([0], [1])
    assert first_token_law(target, drafter) == pytest.approx(p, abs=TOLERANCE)
    mutant = TREE_MUTANTS["G16 no renormalisation between siblings"]
    assert first_token_law(target, drafter, mutant) == pytest.approx([0.5, 0.15, 0.35], abs=TOLERANCE)


# ---- a wrong q -------------------------------------------------------------------------------------------------


class SoftLawGreedyDraft(ModelDrafter):
    """Takes the argmax, and hands on the law it did not draw from."""

    def propose(self, context):
        committed = tuple(context.committed)
        logits = torch.tensor([self.model.logits_of(committed)], dtype=torch.float64)
        return DraftTree.chain([committed[-1], int(logits.argmax())], context.adjuster.laws(logits))


class DrawsFromTopTwo(ModelDrafter):
    """Draws from the two likeliest tokens, and hands on the whole law."""

    def propose(self, context):
        committed = tuple(context.committed)
        law = torch.softmax(torch.tensor([self.model.logits_of(committed)], dtype=torch.float64), dim=-1)
        drawn_from = law * (law >= law.sort().values[:, -2:-1])
        drawn = context.chance.draw(drawn_from / drawn_from.sum())
        return DraftTree.chain([committed[-1], int(drawn)], law)


class HandsOnPointMasses(ModelDrafter):
    """Draws from q, and says that its tokens were chosen: the verdict then uses q := 1 at each token."""

    def propose(self, context):
        tree = super().propose(context)
        return DraftTree(tree.tokens, tree.parents)


def test_a_soft_law_with_a_greedy_draft_is_caught():
    """A1: P2, Q2 with a greedy draft gives (.75, .25)."""
    law = first_token_law(TableModel.constant(P2), SoftLawGreedyDraft(TableModel.constant(Q2), 1))
    assert law == pytest.approx([0.75, 0.25], abs=TOLERANCE)


def test_a_law_not_drawn_from_is_caught():
    """A2: draws from the top two of q, tested against all of q, give (.533, .4, .067, 0)."""
    p, q = [0.4, 0.3, 0.2, 0.1], [0.5, 0.25, 0.15, 0.1]
    law = first_token_law(TableModel.constant(p), DrawsFromTopTwo(TableModel.constant(q), 1))
    assert law == pytest.approx([8 / 15, 0.4, 1 / 15, 0], abs=TOLERANCE)
    truncated = ModelDrafter(TableModel.constant([2 / 3, 1 / 3, 0, 0]), 1)
    assert first_token_law(TableModel.constant(p), truncated) == pytest.approx(p, abs=TOLERANCE)


def test_the_rule_with_q_set_to_one_is_lossless_and_accepts_less():
    """A7: P3, Q3 with that rule emits exactly (.2, .3, .5); a checker that flags it would be wrong."""
    target, draft = TableModel.constant(P3), TableModel.constant(Q3)
    assert first_token_law(target, HandsOnPointMasses(draft, 1)) == pytest.approx(P3, abs=TOLERANCE)
    assert round_error(TARGET, HandsOnPointMasses(DRAFT, 2), n=3) < TOLERANCE
    accepted = sum(p * q for p, q in zip(P3, Q3, strict=True))
    assert accepted < sum(map(min, P3, Q3))


@pytest.mark.parametrize(
    "mutant, right_answer, wrong_answer",
    [
        ("A3 softmax over the residual", P2, [0.690, 0.310]),
        ("A6 one entry zeroed", P3, [0.20, 0.45, 0.35]),
    ],
)
def test_the_reported_wrong_laws_are_found(mutant, right_answer, wrong_answer):
    """A3 on P2, Q2 and A6 on P3, Q3; A6 is invisible on two tokens, where zeroing one leaves the residual."""
    q = {2: Q2, 3: Q3}[len(right_answer)]
    target, drafter = TableModel.constant(right_answer), ModelDrafter(TableModel.constant(q), 1)
    assert first_token_law(target, drafter) == pytest.approx(right_answer, abs=TOLERANCE)
    assert first_token_law(target, drafter, CHAIN_MUTANTS[mutant]) == pytest.approx(wrong_answer, abs=1e-3)
    hidden = first_token_law(TableModel.constant(P2), ModelDrafter(TableModel.constant(Q2), 1), Rule(residual=zeroed))
    assert hidden == pytest.approx(P2, abs=TOLERANCE)


def test_a_softmax_over_a_large_vocabulary_loses_the_residual():
    """A3: with 1000 tokens and a residual on one, a softmax leaves that one little more than 1/1000."""
    vocab = 1000
    p = torch.full((vocab,), 0.5 / (vocab - 1), dtype=torch.float64)
    p[7] = 0.5
    q = torch.full((vocab,), 1 / (vocab - 1), dtype=torch.float64)
    q[7] = 0
    assert right_residual(p, q, 0)[7] == 1
    assert torch.softmax((p - q).clamp_min(0), dim=-1)[7] < 0.002


# ---- wrong rows, prefixes and ends -----------------------------------------------------------------------------


class BonusUnadjusted(Rule):
    """Sampling settings everywhere except in the bonus row."""

    def verify(self, tree, scores, chance):
        raw = torch.softmax(scores.logits, dim=-1)
        return Rule(bonus=lambda tree, laws, node: raw[node]).verify(tree, scores, chance)


class RawTargetRows(Rule):
    """Sampling settings on q alone."""

    def verify(self, tree, scores, chance):
        return LosslessRejection().verify(tree, Scores(scores.logits, Adjuster(greedy=False), None), chance)


class ForgetsDrafts(Rule):
    """Every row is adjusted with the committed text, without the draft's own prefix."""

    def verify(self, tree, scores, chance):
        committed = scores.prefix(0)
        return Rule().verify(tree, Scores(scores.logits, scores.adjuster, lambda node: committed), chance)


class SeesAllDrafts(Rule):
    """Every row is adjusted with the whole proposal, later drafts and other branches too."""

    def verify(self, tree, scores, chance):
        everything = [*scores.prefix(0), *tree.tokens[1:].tolist()]
        return Rule().verify(tree, Scores(scores.logits, scores.adjuster, lambda node: everything), chance)


@pytest.mark.parametrize(
    "mutant, setting",
    [
        (BonusUnadjusted(), SamplingSettings(temperature=1.0, top_p=0.6)),  # A12
        (RawTargetRows(), SamplingSettings(temperature=1.0, top_k=2)),  # A12
        (ForgetsDrafts(), SamplingSettings(temperature=1.0, repetition_penalty=2.0)),  # A21
        (SeesAllDrafts(), SamplingSettings(temperature=1.0, repetition_penalty=2.0)),  # A21
        (ForgetsDrafts(), SamplingSettings(temperature=1.0, min_new_tokens=2)),  # A23
    ],
    ids=["A12 bonus row unadjusted", "A12 rows unadjusted", "A21 forgets drafts", "A21 sees all drafts", "A23"],
)
def test_settings_on_the_wrong_rows_are_caught(mutant, setting):
    assert round_error(TARGET, TWO, n=3, settings=setting, verifier=Rule(), eos=(EOS,), reaches=(1, 2, 3)) < TOLERANCE
    assert round_error(TARGET, TWO, n=3, settings=setting, verifier=mutant, eos=(EOS,)) > 1e-3


class RunsPastTheEnd(Session):
    """EOS does not cut what was accepted after it."""

    def _cut(self, verdict, start, limit):
        emitted = [*(verdict.tokens[node] for node in verdict.path), verdict.token]
        return emitted, verdict.path, verdict.kind, ""


def test_an_end_of_text_that_does_not_cut_is_caught():
    """C1."""
    assert round_error(TARGET, TWO, n=3, eos=(EOS,)) < TOLERANCE
    assert round_error(TARGET, TWO, n=3, eos=(EOS,), session=RunsPastTheEnd) > 1e-3


def test_unmerged_branches_with_a_draw_each_are_caught():
    """A draw for each branch and the best match kept: (.4, .3, .3) becomes (.4, .39, .21)."""

    class BestOfBranches(LosslessRejection):
        def verify(self, tree, scores, chance):
            draws = [int(chance.draw(scores.laws[:1])) for _ in tree.children[0]]
            hits = [child for child, drawn in zip(tree.children[0], draws, strict=True) if tree.tokens[child] == drawn]
            verdict = super().verify(
                DraftTree(tree.tokens[:1], [-1]), Scores(scores.logits[:1], scores.adjuster, None), chance
            )
            verdict.token = int(tree.tokens[hits[0]]) if hits else draws[0]
            return verdict

    target, drafter = TableModel.constant([0.4, 0.3, 0.3]), FixedTree([0], [1])
    assert first_token_law(target, drafter) == pytest.approx([0.4, 0.3, 0.3], abs=TOLERANCE)
    law = first_token_law(target, drafter, BestOfBranches())
    assert max(abs(a - b) for a, b in zip(law, [0.4, 0.3, 0.3], strict=True)) > 0.05


# ---- chance ----------------------------------------------------------------------------------------------------


class NotStrict(RandomRoll):
    def accept(self, node, probability):
        return self.uniforms[node] <= probability


class ZeroChance:
    """Every uniform is 0; draws take the likeliest token."""

    def __init__(self, roll):
        self.kind, self.generator = roll, torch.Generator()

    def draw(self, laws):
        return laws.argmax(dim=-1)

    def roll(self, laws):
        roll = self.kind(self, laws)
        roll.tensor.zero_()
        return roll


def test_a_token_of_probability_zero_is_rejected_even_at_u_0():
    """A29: p(x) = 0, q(x) = 1, u = 0 must be rejected; an acceptance at u <= p / q is caught."""
    target, draft = TableModel.constant([0.0, 1.0]), TableModel.constant([1.0, 0.0])

    def emitted(roll):
        session = Session(target, ModelDrafter(draft, 1), settings=SAMPLED, chance=ZeroChance(roll)).start([0])
        return next(session.rounds(5)).emitted

    assert emitted(RandomRoll) == [1]
    assert emitted(NotStrict)[0] == 0


def test_there_are_ten_mutants_and_more():
    """Each is caught by a test above."""
    others = [SkipsEqualSiblings, SoftLawGreedyDraft, DrawsFromTopTwo, BonusUnadjusted, RawTargetRows, ForgetsDrafts]
    others += [SeesAllDrafts, RunsPastTheEnd, NotStrict]
    assert len(CHAIN_MUTANTS) + len(TREE_MUTANTS) + len(others) >= 10
