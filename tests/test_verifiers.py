"""The rules on hand-made trees: what is kept, what is emitted after it, how each node fared.
Follows specdec_lib/verifiers; worked numbers from Leviathan et al. 2023 (arXiv 2211.17192) and by hand.
Left out: the emitted law (test_exact_law.py) and its wrong versions (test_mutants.py).
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import SAMPLED, first_token_law
from test_tree import parents_of

from specdec_lib.drafters import ModelDrafter
from specdec_lib.model import TableModel
from specdec_lib.sampling import LogitsError, RandomChance, SamplingSettings, outcomes
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers import GreedyMatch, Lenience, LosslessRejection, Scores
from specdec_lib.verifiers.lossless import accept_and_recover

GREEDY = SamplingSettings()
ALL = [GreedyMatch(), LosslessRejection(), Lenience(1.0), Lenience(0.3)]
names = pytest.mark.parametrize("verifier", ALL, ids=lambda v: f"{v.name}-{getattr(v, 'lenience', '')}")


def chance(seed=0):
    return RandomChance(torch.Generator().manual_seed(seed))


def scores(rows, settings=GREEDY):
    return Scores(torch.as_tensor(rows, dtype=torch.float64), settings.adjuster(), None)


def one_hots(*tokens, vocab=9):
    rows = torch.zeros(len(tokens), vocab)
    rows[range(len(tokens)), list(tokens)] = 5.0
    return rows


@names
def test_everything_accepted_is_followed_by_the_bonus_of_the_last_row(verifier):
    """A9: rows 5, 6, 7 and drafts (5, 6) emit 5, 6, 7."""
    verdict = verifier.verify(DraftTree.chain([0, 5, 6]), scores(one_hots(5, 6, 7)), chance())
    assert (verdict.path, verdict.token, verdict.kind) == ([1, 2], 7, "bonus")
    assert verdict.outcomes == {1: "exact", 2: "exact"}


@names
@pytest.mark.parametrize("right, kept", [([1, 0, 1, 1], 1), ([0, 1, 0, 0, 0], 0), ([], 0), ([1, 1], 2)], ids=str)
def test_only_the_leading_run_is_accepted(verifier, right, kept):
    """H1: (1, 0, 1, 1) counts 1, (0, 1, 0, 0, 0) counts 0, () counts 0."""
    targets = list(range(1, len(right) + 2))
    drafts = [token if good else 8 for token, good in zip(targets, right, strict=False)]
    verdict = verifier.verify(DraftTree.chain([0, *drafts]), scores(one_hots(*targets)), chance())
    assert len(verdict.path) == kept
    assert verdict.token == targets[kept]
    assert verdict.kind == ("bonus" if all(right) else "recovered")
    assert list(verdict.outcomes) == list(range(1, min(kept + 1, len(right)) + 1)), (
        "nodes after a rejection are not reached"
    )


@names
def test_the_first_draft_is_checked_against_the_row_of_the_last_committed_token(verifier):
    """A26: the target's next is 2, the draft is 1: 2 is emitted."""
    verdict = verifier.verify(DraftTree.chain([1, 1]), scores(one_hots(2, 1)), chance())
    assert (verdict.path, verdict.token) == ([], 2)


@names
def test_a_tree_is_walked_down_to_the_first_child_that_is_accepted(verifier):
    tree = DraftTree.from_paths(0, [[1, 2], [3, 4, 5], [3, 6]])
    rows = one_hots(3, 0, 0, 6, 0, 0, 7)
    verdict = verifier.verify(tree, scores(rows), chance())
    assert [verdict.tokens[node] for node in verdict.path] == [3, 6]
    assert verdict.token == 7
    assert verdict.outcomes == {1: "rejected", 3: "exact", 4: "rejected", 6: "exact"}


@names
def test_a_scout_is_never_kept(verifier):
    tree = DraftTree(torch.tensor([0, 5]), [-1, 0], scouts=frozenset({1}))
    verdict = verifier.verify(tree, scores(one_hots(5, 6)), chance())
    assert (verdict.path, verdict.token, verdict.kind, verdict.outcomes) == ([], 5, "bonus", {})


@names
def test_an_id_outside_the_targets_vocabulary_is_rejected_safely(verifier):
    """D2: the draft proposes id 11 where the target has 10."""
    verdict = verifier.verify(DraftTree.chain([0, 11]), scores(one_hots(4, 5, vocab=10)), chance())
    assert (verdict.path, verdict.token) == ([], 4)
    if not isinstance(verifier, GreedyMatch):
        verdict = verifier.verify(DraftTree.chain([0, 11]), scores(one_hots(4, 5, vocab=10) * 9, SAMPLED), chance())
        assert (verdict.path, verdict.token) == ([], 4)


@names
@pytest.mark.parametrize(
    "row",
    [[math.nan] * 3, [0, math.nan, 0], [-math.inf] * 3, [0.0, math.inf, 0.0]],
    ids=["nan", "one nan", "-inf", "inf"],
)
def test_rows_that_make_no_law_raise_and_emit_nothing(verifier, row):
    """D8: never an id, plausible or not, from a row of NaN or of -inf."""
    for setting in (GREEDY,) if isinstance(verifier, GreedyMatch) else (GREEDY, SAMPLED):
        with pytest.raises(LogitsError, match="target's logits"):
            verifier.verify(DraftTree.chain([0, 1]), scores([[0.0, 1.0, 0.0], row], setting), chance())


def test_greedy_match_refuses_a_temperature():
    with pytest.raises(ValueError, match="temperature 0"):
        GreedyMatch().verify(DraftTree.chain([0, 1]), scores(one_hots(1, 1), SAMPLED), chance())


def test_a_draft_with_probability_zero_or_nan_is_an_error():
    for law in ([1.0, 0.0, 0.0], [math.nan] * 3):
        tree = DraftTree.chain([0, 1], torch.tensor([law]))
        with pytest.raises(ValueError, match="proposed although its draft law"):
            LosslessRejection().verify(tree, scores([[0.0, 1, 2], [0.0, 1, 2]], SAMPLED), chance())


# ---- the lossless rule -----------------------------------------------------------------------------------------


def test_equal_laws_always_accept():
    """A15: p = q exactly; no rejection in 10,000 rounds, and no NaN."""
    law = torch.softmax(torch.randn(50, generator=torch.Generator().manual_seed(0)), dim=-1)
    tokens = chance().draw(law.expand(10_000, -1))
    tree = DraftTree(torch.cat([torch.zeros(1, dtype=torch.long), tokens]), [-1, *[0] * 10_000], law.expand(10_000, -1))
    assert torch.equal(
        accept_and_recover(DraftTree.chain([0, int(tokens[0])], law[None]), law.expand(2, -1))[0][1:], torch.ones(1)
    )
    verdict = LosslessRejection().verify(tree, scores(law.log().expand(10_001, -1), SAMPLED), chance(1))
    assert verdict.path == [1]
    accept, emit = accept_and_recover(
        DraftTree.chain([0, *tokens.tolist()], law.expand(10_000, -1)), law.expand(10_001, -1)
    )
    assert accept[1:].min() == 1
    assert torch.equal(emit, law.expand(10_001, -1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_draft_law_of_another_dtype_is_cast(dtype):
    """F16, F9: p in float32 and q narrower; laws that differ by 1e-5 leave a residual of 0 or a true one, never NaN."""
    p = torch.softmax(torch.randn(40, generator=torch.Generator().manual_seed(1)), dim=-1)
    q = (p * (1 + 1e-5 * torch.linspace(-1, 1, 40))).to(dtype)
    accept, emit = accept_and_recover(DraftTree.chain([0, 3], q[None]), p.expand(2, -1))
    assert accept.dtype == emit.dtype == torch.float32
    assert 0.98 < accept[1] <= 1
    assert emit.isfinite().all() and emit.sum(-1).tolist() == pytest.approx([1, 1], abs=1e-5)


def test_the_sibling_rule_by_hand():
    """p = (.5, .3, .2), q = (.2, .2, .6), siblings 2 and 2: accepted with 1/3, then p = (.75, .25, 0) rejects."""
    p = torch.tensor([[0.5, 0.3, 0.2]] * 3, dtype=torch.float64)
    q = torch.tensor([[0.2, 0.2, 0.6]] * 2, dtype=torch.float64)
    accept, emit = accept_and_recover(DraftTree(torch.tensor([0, 2, 2]), [-1, 0, 0], q), p)
    assert accept.tolist() == pytest.approx([0, 1 / 3, 0])
    # after the first: (.3, .1, 0) / .4 = (.75, .25, 0); after the second: (.55, .05, 0) / .6
    assert emit[0].tolist() == pytest.approx([11 / 12, 1 / 12, 0])


def test_equal_point_mass_siblings_leave_no_nan():
    """G16: siblings (0, 0) below one node."""
    p = torch.tensor([[0.5, 0.3, 0.2]] * 3, dtype=torch.float64)
    accept, emit = accept_and_recover(DraftTree(torch.tensor([0, 0, 0]), [-1, 0, 0]), p)
    assert accept.tolist() == [0, 0.5, 0]
    assert emit[0].tolist() == pytest.approx([0, 0.6, 0.4])


def test_the_verdict_holds_p_q_and_their_overlap():
    p, q = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64), torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.float64)
    verdict = LosslessRejection().verify(DraftTree.chain([0, 0], q), scores(p.log().expand(2, -1), SAMPLED), chance())
    assert verdict.target_probs[1] == pytest.approx(0.2)
    assert verdict.draft_probs[1] == pytest.approx(0.6)
    assert verdict.overlaps[1] == pytest.approx(0.6)


# ---- lenience --------------------------------------------------------------------------------------------------


def test_lenience_by_hand():
    """p = (.1, .6, .3), q = (.5, .3, .2), l = .5, residual unchanged: (.2, .525, .275)."""
    target, draft = TableModel.constant([0.1, 0.6, 0.3]), TableModel.constant([0.5, 0.3, 0.2])
    law = first_token_law(target, ModelDrafter(draft, 1), Lenience(0.5))
    assert law == pytest.approx([0.2, 0.525, 0.275], abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(
    p=st.lists(st.floats(0.01, 1), min_size=3, max_size=3),
    q=st.lists(st.floats(0.01, 1), min_size=3, max_size=3),
    lenience=st.floats(0.05, 1),
)
def test_lenience_emits_no_token_more_than_one_over_l_times_as_often(p, q, lenience):
    p, q = ([v / sum(law) for v in law] for law in (p, q))
    law = first_token_law(TableModel.constant(p), ModelDrafter(TableModel.constant(q), 1), Lenience(lenience))
    assert all(emitted <= wanted / lenience + 1e-9 for emitted, wanted in zip(law, p, strict=True))


def test_greedy_lenience_accepts_from_l_times_the_maximum():
    p = torch.tensor([[0.5, 0.26, 0.24]] * 2).log()
    for token, lenience, passes in [(1, 0.5, True), (2, 0.5, False), (2, 0.45, True), (0, 1.0, True), (1, 1.0, False)]:
        verdict = Lenience(lenience).verify(DraftTree.chain([0, token]), scores(p), chance())
        assert (verdict.path == [1]) is passes, (token, lenience)
        assert verdict.token == 0
    rescued = Lenience(0.5).verify(DraftTree.chain([0, 1]), scores(p), chance())
    assert rescued.outcomes == {1: "rescued"}


def test_lenience_at_1_takes_the_lowest_id_of_a_tie():
    """F3: a tie passes the inequality p >= max p; the lossless rule rejects the higher id, and so does l = 1."""
    rows = torch.tensor([[0.0, 3.0, 3.0]] * 2)
    for verifier in ALL[:3]:
        verdict = verifier.verify(DraftTree.chain([0, 2]), scores(rows), chance())
        assert (verdict.path, verdict.token) == ([], 1)


@pytest.mark.parametrize("value", [0, -0.1, 1.1, True, math.nan])
def test_lenience_outside_its_range_is_refused(value):
    with pytest.raises(ValueError, match="lenience"):
        Lenience(value)


def test_lossy_rules_say_so():
    """A30: the default is lossless; lenience below 1 is lossy and named."""
    assert GreedyMatch().lossless and LosslessRejection().lossless and Lenience(1.0).lossless
    assert Lenience().lossless is False and Lenience().name == "lenience"


# ---- every tree ------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(parents=parents_of, seed=st.integers(0, 1000), drawn=st.booleans())
def test_a_verdict_is_a_real_path_and_names_what_was_reached(parents, seed, drawn):
    generator = torch.Generator().manual_seed(seed)
    vocab, n = 4, len(parents)
    rows = torch.randn(n, vocab, generator=generator)
    laws = torch.softmax(torch.randn(n - 1, vocab, generator=generator), dim=-1) if drawn else None
    tokens = torch.randint(vocab, (n,), generator=generator)
    tree = DraftTree(tokens, parents, laws)
    for verifier in ALL[1:]:
        for setting in (GREEDY, SAMPLED):
            verdict = verifier.verify(tree, scores(rows, setting), chance(seed))
            assert verdict.path == (tree.path_to(verdict.path[-1]) if verdict.path else [])
            assert 0 <= verdict.token < vocab
            last = verdict.path[-1] if verdict.path else 0
            assert verdict.kind == ("recovered" if tree.children[last] else "bonus")
            for node, outcome in verdict.outcomes.items():
                assert tree.parents[node] in [0, *verdict.path], "a node is reached only below a kept one"
                assert (node in verdict.path) is (outcome != "rejected")
            assert set(verdict.path) <= set(verdict.outcomes)
            assert set(tree.children[last]) <= set(verdict.outcomes), "it stops only when all children were rejected"


def test_no_branch_of_a_verdict_has_probability_zero():
    """Every outcome that can happen is one that the rule gives weight to, and a rejected token is not recovered."""
    q = torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.float64)
    p = torch.tensor([[0.2, 0.3, 0.5]] * 2, dtype=torch.float64)
    for token in range(3):
        tree = DraftTree.chain([0, token], q)
        for weight, verdict in outcomes(
            lambda c, tree=tree: LosslessRejection().verify(tree, scores(p.log(), SAMPLED), c)
        ):
            assert weight > 0
            assert verdict.path or verdict.token == 2, "the residual of these laws lies on token 2 alone"
