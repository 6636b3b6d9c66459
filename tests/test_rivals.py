"""The lossy rules on numbers worked by hand, at their limits, and against wrong versions, each of which is caught.
Follows specdec_lib/verifiers: topk, typical, lossy, cascade, fly, kl; lenience where it is one of them.
Left out: lenience's own numbers (test_verifiers.py), rules with a trained head, and what a rule costs in accuracy.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import SAMPLED, FixedTree, first_token_law, near, one_round, round_error
from test_tree import parents_of
from test_verifiers import GREEDY, chance, one_hots, scores

from specdec_lib.decode import Session
from specdec_lib.drafters import ModelDrafter
from specdec_lib.model import TableModel
from specdec_lib.sampling import SamplingSettings
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers import (
    KL,
    Cascade,
    FLy,
    FLyCode,
    GreedyMatch,
    Lenience,
    LosslessRejection,
    Lossy,
    TopK,
    Typical,
    fly,
    kl,
    soft,
    topk,
    typical,
)
from specdec_lib.verifiers.fly import followed_by_matches
from specdec_lib.verifiers.kl import divergences
from specdec_lib.verifiers.soft import entropies

# each rule at its lossless setting, and at one that keeps everything
STRICT = [TopK(0), Typical(1, math.inf), Lossy(1, 1), Cascade(0), FLy(math.inf), FLyCode(math.inf), KL(0)]
LAX = [TopK(99), Typical(0), Lossy(1e-30), Cascade(1), FLy(0, 0), FLyCode(0, 0), KL(math.inf, 1)]
GREEDY_ONLY = ("fly", "fly-code")
named = {"ids": lambda v: v.name}
TARGET = TableModel.random(4, 1)
DRAFT = near(TARGET, 2)


def law(*probabilities):
    return torch.tensor(probabilities, dtype=torch.float64).log()


def kept(rule, tree, rows, setting=GREEDY):
    return rule.verify(tree, scores(rows, setting), chance()).path


def passes(rule, row, draft_row=None) -> list[int]:
    """Which tokens the rule keeps as a draft of one token, greedily, below a target row of logits.

    The draft's own row is another one: to read that is a mistake.
    """
    draft_rows = None if draft_row is None else draft_row[None]
    trees = [DraftTree(torch.tensor([0, x]), [-1, 0], draft_rows=draft_rows) for x in range(len(row))]
    return [x for x, tree in enumerate(trees) if kept(rule, tree, torch.stack([row, -row]))]


def emitted(rule, p, q) -> list[float]:
    return first_token_law(TableModel.constant(p), ModelDrafter(TableModel.constant(q), 1), rule)


# ---- by hand ---------------------------------------------------------------------------------------------------


def check_topk(rule=TopK):
    row = law(0.3, 0.1, 0.4, 0.2)
    assert [passes(rule(k), row) for k in (1, 2, 3, 4)] == [[2], [0, 2], [0, 2, 3], [0, 1, 2, 3]]
    tied = law(0.3, 0.2, 0.3, 0.2)
    assert [passes(rule(k), tied) for k in (1, 2, 3)] == [[0], [0, 2], [0, 1, 2]], "lowest id first on a tie"
    # sampled: 0 and 2 are the top two; 0 is kept always, 1 with .1 / .3, else 2 follows
    assert emitted(rule(2), [0.4, 0.1, 0.5], [0.6, 0.3, 0.1]) == pytest.approx([0.6, 0.1, 0.3])
    assert emitted(rule(1), [0.4, 0.1, 0.5], [0.6, 0.3, 0.1]) == pytest.approx([0.4, 0.1, 0.5])
    assert emitted(rule(1), [0.5, 0.3, 0.2], [0.8, 0.1, 0.1]) == pytest.approx([0.8, 0.1, 0.1])


def check_typical(rule=Typical):
    row = law(0.5, 0.3, 0.2)  # H = 1.0297 nats, exp(-H) = .3571
    assert passes(rule(1, 0.7), row) == [0, 1], "threshold .25"
    assert passes(rule(1, 0.5), row) == [0, 1, 2], "threshold .179"
    assert passes(rule(0.25, 1), row) == [0, 1], "threshold .25, from epsilon"
    assert passes(rule(0.09, 0.3), law(0.86, 0.095, 0.045)) == [0, 1], "the defaults: threshold .09"
    assert passes(rule(0.25, math.inf), torch.zeros(4)) == [0], "strict: p = epsilon does not pass"
    # sampled: 0 does not pass, and p takes its place: (.6 * .2, .3 + .6 * .3, .1 + .6 * .5)
    assert emitted(rule(1, 0.7), [0.2, 0.3, 0.5], [0.6, 0.3, 0.1]) == pytest.approx([0.12, 0.48, 0.4])


def check_lossy(rule=Lossy):
    p, q = [0.1, 0.6, 0.3], [0.5, 0.3, 0.2]
    assert emitted(rule(0.5, 1), p, q) == pytest.approx([0.2, 0.525, 0.275])  # residual (0, .3, .1)
    assert emitted(rule(0.5, 0.5), p, q) == pytest.approx([0.2, 0.3 + 0.3 * 9 / 13, 0.2 + 0.3 * 4 / 13])  # (0, .9, .4)
    assert emitted(rule(0.5, 3), p, q) == pytest.approx([0.23, 0.48, 0.29])  # no residual: p
    assert emitted(rule(1, 0.5), p, q) == pytest.approx([0.1, 0.3 + 0.4 * 9 / 13, 0.2 + 0.4 * 4 / 13])
    assert passes(rule(0.5, 7), law(0.5, 0.26, 0.24)) == [0, 1]


def check_cascade(rule=Cascade):
    assert passes(rule(0.5), law(0.5, 0.26, 0.24)) == [0, 1]
    assert passes(rule(0.25), law(0.5, 0.26, 0.24)) == [0]
    assert passes(rule(0.5), torch.tensor([0.5, 0.25, 0.125], dtype=torch.float64).log2() * math.log(2)) == [0, 1]
    # sampled: 1 and 2 have p >= .24; (0, .3, .2) of q, and p for its other half
    assert emitted(rule(0.6), [0.1, 0.6, 0.3], [0.5, 0.3, 0.2]) == pytest.approx([0.05, 0.6, 0.35])


SURE, UNSURE = law(0.98, 0.01, 0.01), law(0.4, 0.3, 0.3)  # normalised entropies .102 and .991


def chain_kept(rule, right, unsure) -> int:
    """How many of a chain's drafts are kept. right: which of them match. unsure: at which of them the target is so."""
    rows = torch.stack([UNSURE if j in unsure else SURE for j in range(1, len(right) + 2)])
    return len(kept(rule, DraftTree.chain([0, *(0 if ok else 1 for ok in right)]), rows))


def check_fly(rule=FLy):
    for j, run in [(1, 8), (2, 8), (3, 2)]:  # K = 8, W = 6: a mismatch at 3 has only five drafts behind it
        assert chain_kept(rule(0.3, 6), [i != j for i in range(1, 9)], {j}) == run, f"mismatch at {j}"
    assert chain_kept(rule(0.3, 6), [False, *[True] * 7], {2, 3, 4}) == 0, "the target is sure at 1"
    assert chain_kept(rule(0.3, 6), [False, *[True] * 5, False, True], {1}) == 0, "draft 7 is in the window"
    assert chain_kept(rule(0.3, 6), [False, *[True] * 6, False], {1}) == 7, "draft 8 is not"
    assert chain_kept(rule(0.3, 2), [False, False, True, True], {1, 2}) == 0, "a mismatch in the window, rescued or not"
    assert chain_kept(rule(0.3, 1), [False, True, False, True, False], {1, 3, 5}) == 4
    even = law(0.5, 0.2, 0.1, 0.1, 0.1)  # entropy 1.3593 / log 5 = .8446
    assert [passes(rule(t, 0), even) for t in (0.83, 0.86)] == [[0, 1, 2, 3, 4], [0]]


def check_fly_code(rule=FLyCode):
    even = law(0.6, 0.1, 0.1, 0.1, 0.1)  # of the top three, in nats: .7670; scaled to one .7356; of all / log 5 .7627
    assert [passes(rule(t, 0), even) for t in (0.765, 0.769)] == [[0, 1, 2, 3, 4], [0]]
    assert passes(rule(0.6, 0), law(0.6, 0.4)) == [0, 1], "a vocabulary of two: entropy .673"


def check_kl(rule=KL):
    p, q = law(0.5, 0.3, 0.2), law(0.1, 0.3, 0.6)  # KL(q || p) = .4982 nats (.7188 bits), KL(p || q) = .5850
    assert [passes(rule(tau, 0.9), p, q) for tau in (0.49, 0.51, 0.54)] == [[0], [0, 1, 2], [0, 1, 2]]
    assert [passes(rule(0.54, sure), p, q) for sure in (0.45, 0.55)] == [[0], [0, 1, 2]]
    assert passes(rule(9, 0.9), law(0.92, 0.05, 0.03), q) == [0], "the target is sure: the standard rule"
    assert passes(rule(1e-9, 1), p, p + 7) == [0, 1, 2], "equal laws, logits apart"
    # sampled, max p = .5: with tau above .4982 every token is kept, so the draft's law is emitted
    assert emitted(rule(0.54, 0.9), [0.5, 0.3, 0.2], [0.1, 0.3, 0.6]) == pytest.approx([0.1, 0.3, 0.6])
    assert emitted(rule(0.49, 0.9), [0.5, 0.3, 0.2], [0.1, 0.3, 0.6]) == pytest.approx([0.5, 0.3, 0.2])


CHECKS = [check_topk, check_typical, check_lossy, check_cascade, check_fly, check_fly_code, check_kl]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_by_hand(check):
    check()


def test_entropy_and_divergence_of_laws_with_zeros():
    assert entropies(torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])).tolist() == pytest.approx([math.log(2), 0])
    found = divergences(law(0.5, 0.5, 0.0)[None], law(0.25, 0.75, 0.0)[None])
    assert found.tolist() == pytest.approx([0.5 * math.log(2) + 0.5 * math.log(2 / 3)])
    assert divergences(law(0.5, 0.5)[None], law(1.0, 0.0)[None]).tolist() == [math.inf]


# ---- limits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", STRICT, **named)
def test_the_lossless_setting_is_the_standard_rule_greedily(rule):
    """The same rounds, not only the same text."""
    assert rule.lossless is True

    def rounds(verifier):
        trace = Session(TARGET, ModelDrafter(DRAFT, 3), verifier).start([0]).run(30)
        return [(r.path, r.outcomes, r.emitted) for r in trace.rounds]

    standard = rounds(GreedyMatch())
    assert rounds(rule) == standard
    assert {"exact", "rejected"} <= {outcome for r in standard for outcome in r[1].values()}


@pytest.mark.parametrize("rule", [rule for rule in STRICT if rule.name not in (*GREEDY_ONLY, "cascade")], **named)
def test_the_lossless_setting_emits_the_targets_law(rule):
    """Typical acceptance keeps nothing there; the others are the standard rule, outcome by outcome."""
    drafter = ModelDrafter(DRAFT, 2)
    assert round_error(TARGET, drafter, n=3, verifier=rule) < 1e-9
    outcomes = one_round(TARGET, drafter, rule)
    if rule.name == "typical":
        assert {len(ids) for _, ids in outcomes} == {1}
    else:
        assert outcomes == one_round(TARGET, drafter, LosslessRejection())


@pytest.mark.parametrize("rule", LAX, **named)
def test_the_laxest_setting_keeps_everything(rule):
    assert rule.lossless is False
    trace = Session(TARGET, ModelDrafter(DRAFT, 3), rule).start([0]).run(21)
    assert [len(r.path) for r in trace.rounds[:-1]] == [3] * (len(trace.rounds) - 1)
    assert "rescued" in {outcome for r in trace.rounds for outcome in r.outcomes.values()}
    if rule.name in GREEDY_ONLY:
        return
    draft = Session(TARGET, ModelDrafter(DRAFT, 2), rule, SAMPLED).start([0]).run(30)
    assert [len(r.path) for r in draft.rounds[:-1]] == [2] * (len(draft.rounds) - 1)


@pytest.mark.parametrize("check", [test_the_laxest_setting_keeps_everything], ids=["lax"])
def test_a_middle_setting_is_between(check):
    """A control: a rule in between fails both limits."""
    with pytest.raises(AssertionError):
        check(Lossy(0.5))
    with pytest.raises(AssertionError):
        test_the_lossless_setting_is_the_standard_rule_greedily(Lossy(0.5))


@settings(max_examples=40, deadline=None)
@given(parents=parents_of, seed=st.integers(0, 1000), alpha=st.floats(0, 0.999))
def test_cascade_lenience_and_lossy_are_one_rule_at_temperature_0(parents, seed, alpha):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(len(parents), 4, generator=generator)
    tree = DraftTree(torch.randint(4, (len(parents),), generator=generator), parents)
    verdicts = [
        rule.verify(tree, scores(rows), chance())
        for rule in (Cascade(alpha), Lenience(1 - alpha), Lossy(1 - alpha, 3.0))
    ]
    assert verdicts[0] == verdicts[1] == verdicts[2]


def test_lossy_with_b_1_is_lenience_above_temperature_0():
    drafter = ModelDrafter(DRAFT, 2)
    assert one_round(TARGET, drafter, Lossy(0.4, 1)) == one_round(TARGET, drafter, Lenience(0.4))
    assert one_round(TARGET, drafter, Lossy(0.4, 2)) != one_round(TARGET, drafter, Lenience(0.4))


def test_a_rule_that_truncates_does_not_sample_from_the_truncated_target():
    """arXiv 2607.26627: p = (.4, .1, .5) cut to its top two is (.444, 0, .556), whatever the draft."""
    p, q = [0.4, 0.1, 0.5], [0.6, 0.3, 0.1]
    truncated = [4 / 9, 0, 5 / 9]
    assert first_token_law(
        TableModel.constant(p), ModelDrafter(TableModel.constant(q), 1), settings=SamplingSettings(1.0, top_k=2)
    ) == pytest.approx(truncated)
    for rule in (TopK(2), Typical(0.3, math.inf)):  # the same two tokens pass
        assert emitted(rule, p, q) != pytest.approx(truncated, abs=0.05)


def test_topk_1_is_the_standard_rule_greedily_and_still_says_lossy():
    tree = DraftTree.from_paths(0, [[1, 2], [3, 4]])
    rows = one_hots(3, 0, 0, 4, 1)
    assert TopK(1).verify(tree, scores(rows), chance()) == GreedyMatch().verify(tree, scores(rows), chance())
    assert TopK(1).lossless is False


# ---- trees, what is forbidden, and refusals --------------------------------------------------------------------


@pytest.mark.parametrize("rule", [rule for rule in LAX if rule.name not in GREEDY_ONLY], **named)
def test_the_exact_child_comes_before_an_earlier_one_that_would_be_rescued(rule):
    tree = DraftTree(torch.tensor([0, 1, 2]), [-1, 0, 0], draft_rows=torch.zeros(2, 9))
    verdict = rule.verify(tree, scores(one_hots(2, 5, 6)), chance())
    assert (verdict.path, verdict.outcomes, verdict.token) == ([2], {1: "rejected", 2: "exact"}, 6)
    tree = DraftTree(torch.tensor([0, 1, 2]), [-1, 0, 0], draft_rows=torch.zeros(2, 9))
    verdict = rule.verify(tree, scores(one_hots(3, 5, 6)), chance())
    assert (verdict.path, verdict.outcomes) == ([1], {1: "rescued", 2: "rejected"}), "else the first one"


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("rule", LAX, **named)
def test_what_the_settings_forbid_is_never_kept(rule, temperature):
    """A banned word, an early end, and an id that the target does not have."""
    if temperature and rule.name in GREEDY_ONLY:
        return
    banned = SamplingSettings(temperature, bad_words_ids=((2,),))
    early = SamplingSettings(temperature, min_new_tokens=5)
    for token, setting, eos in [(2, banned, ()), (1, early, (1,)), (7, SamplingSettings(temperature), ())]:
        tree = DraftTree(torch.tensor([0, 0, token]), [-1, 0, 1], draft_rows=torch.zeros(2, 4))
        rows = torch.tensor([[9.0, 0, 0, 0], [0.0, 1, 3, 2], [0.0, 0, 0, 1]])
        verdict = rule.verify(tree, adjusted_scores(rows, setting, eos), chance())
        assert verdict.path == [1] and verdict.outcomes[2] == "rejected" and verdict.token not in (token, 7)


def adjusted_scores(rows, setting, eos):
    from specdec_lib.verifiers import Scores

    return Scores(rows.double(), setting.adjuster(1, eos), lambda node: [3, 0][: node + 1])


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: TopK(-1), "k of topk must be a whole number, 0 or more; got -1"),
        (lambda: TopK(2.0), "got 2.0"),
        (lambda: TopK(True), "got True"),
        (lambda: Typical(1.1), "epsilon of typical must be between 0 and 1; got 1.1"),
        (lambda: Typical(math.nan), "epsilon of typical"),
        (lambda: Typical(0.1, 0), "delta of typical must be above 0; got 0"),
        (lambda: Typical(0.1, math.nan), "delta of typical"),
        (lambda: Lossy(0), "a of lossy must be above 0 and at most 1; got 0"),
        (lambda: Lossy(1.5), "a of lossy"),
        (lambda: Lossy(0.5, 0), "b of lossy must be above 0 and finite; got 0"),
        (lambda: Lossy(0.5, math.inf), "b of lossy"),
        (lambda: Cascade(-0.1), "alpha of cascade must be between 0 and 1; got -0.1"),
        (lambda: Cascade(math.nan), "alpha of cascade"),
        (lambda: FLy(-0.1), "threshold of fly must be 0 or more; got -0.1"),
        (lambda: FLyCode(math.nan), "threshold of fly-code"),
        (lambda: FLy(0.3, -1), "window of fly must be a whole number, 0 or more; got -1"),
        (lambda: KL(-1), "tau of kl must be 0 or more; got -1"),
        (lambda: KL(math.nan), "tau of kl"),
        (lambda: KL(1, 1.1), "confidence of kl must be between 0 and 1; got 1.1"),
    ],
)
def test_a_knob_outside_its_range_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_what_a_rule_is_not_defined_for_is_refused():
    fork = DraftTree(torch.tensor([0, 1, 2]), [-1, 0, 0])
    scout = DraftTree(torch.tensor([0, 1]), [-1, 0], scouts=frozenset({1}))
    for rule in (FLy(), FLyCode()):
        with pytest.raises(ValueError, match="temperature 0 only"):
            kept(rule, DraftTree.chain([0, 1]), one_hots(1, 1), SAMPLED)
        for tree in (fork, scout):
            with pytest.raises(ValueError, match="single chain"):
                kept(rule, tree, one_hots(*[1] * len(tree)))
    with pytest.raises(ValueError, match="needs a draft model"):
        Session(TARGET, FixedTree([1]), KL()).start([0]).run(5)
    with pytest.raises(ValueError, match="single chain"):
        kept(Cascade(), fork, one_hots(1, 1, 1), SAMPLED)
    with pytest.raises(ValueError, match="temperature 0 only"):
        kept(Cascade(0), DraftTree.chain([0, 1]), one_hots(1, 1), SAMPLED)


@pytest.mark.parametrize("rule", LAX, **named)
def test_rows_that_make_no_law_raise(rule):
    from specdec_lib.sampling import LogitsError

    tree = DraftTree(torch.tensor([0, 1]), [-1, 0], draft_rows=torch.zeros(1, 3))
    for bad in ([math.nan] * 3, [0, math.nan, 0], [-math.inf] * 3, [0.0, math.inf, 0.0]):
        for rows in ([bad, [0.0, 1, 0]], [[0.0, 0, 1], bad]):
            with pytest.raises(LogitsError, match="target's logits"):
                kept(rule, tree, torch.tensor(rows))


@pytest.mark.parametrize("rule", LAX, **named)
def test_a_plain_step_needs_nothing(rule):
    assert rule.verify(DraftTree.chain([0]), scores(one_hots(4)), chance()).token == 4


# ---- wrong versions --------------------------------------------------------------------------------------------


def patched(module, name, wrong):
    return lambda monkeypatch: monkeypatch.setattr(module, name, wrong)


def ties_pass(tree, scores):
    rows = soft.parent_rows(tree, scores.adjusted)
    return (rows > rows.gather(1, tree.tokens[:, None])).sum(-1)


def one_more(tree, scores):
    return soft.ranks(tree, scores) - 1


def in_bits(laws):
    return entropies(laws) / math.log(2)


class TypicalNotStrict(Typical):
    def verify(self, tree, scores, chance):
        self.epsilon = math.nextafter(self.epsilon, 0)
        return super().verify(tree, scores, chance)


class TypicalFromResidual(Typical):
    """Above temperature 0 a token that fails the test leaves the standard residual."""

    def verify(self, tree, scores, chance):
        if scores.greedy:
            return super().verify(tree, scores, chance)
        laws = soft.parent_rows(tree, scores.laws)
        threshold = (self.delta * torch.exp(-entropies(laws))).clamp_max(self.epsilon)
        accept = typical.probability_of(laws, tree.tokens) > threshold
        from specdec_lib.verifiers.lossless import accept_and_recover

        return typical.walk(tree, scores, accept.double(), chance.roll(accept_and_recover(tree, scores.laws)[1]))


class LossySwapped(Lossy):
    def __init__(self, a, b=1.0):
        super().__init__(a, b)
        self.a, self.b = self.b, self.a


class LossyOneKnob(Lossy):
    def __init__(self, a, b=1.0):
        super().__init__(a, 1.0)


class CascadeAlpha(Cascade):
    """Keeps from alpha max p in place of (1 - alpha) max p."""

    def __init__(self, alpha):
        super().__init__(1 - alpha)


class FLyRescuedCounts(FLy):
    """A rescued mismatch in the window counts as a match."""

    def verify(self, tree, scores, chance):
        unsure = self.uncertainty(soft.parent_rows(tree, soft.soft_laws(scores))) >= self.threshold
        match = fly.matches(tree, scores)
        either = match.bool() | unsure
        either[0] = False
        rescued = unsure & followed_by_matches(either.double(), self.window)
        return fly.walk(tree, scores, match, fly.SureRoll(scores.best), rescued)


class FLyNotNormalised(FLy):
    def uncertainty(self, laws):
        return entropies(laws)


class FLyCodeRescaled(FLyCode):
    def uncertainty(self, laws):
        top = laws.topk(min(3, laws.shape[-1]), dim=-1).values
        return entropies(top / top.sum(-1, keepdim=True))


class FLyCodeNormalised(FLyCode):
    def uncertainty(self, laws):
        return super().uncertainty(laws) / math.log(3)


def window_off_by(by):
    return lambda match, window: followed_by_matches(match, max(0, window + by))


def beyond_the_end(match, window):
    """Drafts that are not there count as matches."""
    longer = torch.cat([match, torch.ones(window, dtype=match.dtype)])
    return followed_by_matches(longer, window)[: len(match)]


MUTANTS = {
    "topk: ties all pass": (check_topk, TopK, patched(topk, "ranks", ties_pass)),
    "topk: one token more": (check_topk, TopK, patched(topk, "ranks", one_more)),
    "typical: entropy in bits": (check_typical, Typical, patched(typical, "entropies", in_bits)),
    "typical: >= for >": (check_typical, TypicalNotStrict, None),
    "typical: rejected into the residual": (check_typical, TypicalFromResidual, None),
    "lossy: a and b swapped": (check_lossy, LossySwapped, None),
    "lossy: b has no effect": (check_lossy, LossyOneKnob, None),
    "cascade: alpha for 1 - alpha": (check_cascade, CascadeAlpha, None),
    "fly: window one short": (check_fly, FLy, patched(fly, "followed_by_matches", window_off_by(-1))),
    "fly: window one long": (check_fly, FLy, patched(fly, "followed_by_matches", window_off_by(1))),
    "fly: j + W beyond K": (check_fly, FLy, patched(fly, "followed_by_matches", beyond_the_end)),
    "fly: a rescued draft counts as a match": (check_fly, FLyRescuedCounts, None),
    "fly: entropy not normalised": (check_fly, FLyNotNormalised, None),
    "fly: the code's entropy": (check_fly, FLyCode, None),
    "fly-code: the paper's entropy": (check_fly_code, FLy, None),
    "fly-code: the top three scaled to one": (check_fly_code, FLyCodeRescaled, None),
    "fly-code: over log 3": (check_fly_code, FLyCodeNormalised, None),
    "kl: the other direction": (check_kl, KL, patched(kl, "divergences", lambda q, p: divergences(p, q))),
    "kl: in bits": (check_kl, KL, patched(kl, "divergences", lambda q, p: divergences(q, p) / math.log(2))),
    "kl: the draft's own row": (check_kl, KL, patched(kl, "parent_rows", lambda tree, rows: rows)),
    "typical: the draft's own row": (check_typical, Typical, patched(typical, "parent_rows", lambda tree, rows: rows)),
    "topk: the draft's own row": (check_topk, TopK, patched(soft, "parent_rows", lambda tree, rows: rows)),
    "fly: the draft's own row": (check_fly, FLy, patched(fly, "parent_rows", lambda tree, rows: rows)),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_version_is_caught(name, monkeypatch):
    check, rule, change = MUTANTS[name]
    check()
    if change is not None:
        change(monkeypatch)
    with pytest.raises(AssertionError):
        check(rule)
