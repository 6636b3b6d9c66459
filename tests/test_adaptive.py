"""Draft lengths that adapt: each stays lossless, does what it says, and forgets the last text.
Follows specdec_lib/drafters/adaptive.py; the schedule is transformers' own (case H16).
Left out: whether they are faster (specdec bench).
"""

import pytest
from laws import SAMPLED, TOLERANCE, first_token_law, law_error, near, plain_law, round_error, whole_text
from test_exact_law import pair
from tiny import disturbed, generated, llama

from specdec_lib.decode import Session, decode
from specdec_lib.drafters import ConfidenceStop, HeuristicLength, LengthController
from specdec_lib.model import CausalLM, TableModel
from specdec_lib.sampling import SamplingSettings
from specdec_lib.theory import best_gamma
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers import BlockVerification

constant = TableModel.constant
SPLIT = [0.5, 0.3, 0.2]


def made(name, draft):
    return {
        "heuristic": lambda: HeuristicLength(draft, 1),
        "confidence": lambda: ConfidenceStop(draft, 3, threshold=0.4),
        "controller": lambda: LengthController(draft, c=0.1, gamma=1),
    }[name]()


names = pytest.mark.parametrize("name", ["heuristic", "confidence", "controller"])


# ---- lossless --------------------------------------------------------------------------------------------------


@names
@pytest.mark.parametrize("verifier", [None, BlockVerification()], ids=["lossless", "block"])
def test_several_rounds_emit_the_targets_law(name, verifier):
    target, draft = pair(3, seed=1)
    emitted = whole_text(target, made(name, draft), 3, verifier)
    assert law_error(emitted, plain_law(target), (0,), 3) < TOLERANCE


@pytest.mark.parametrize("verifier", [None, BlockVerification()], ids=["lossless", "block"])
def test_a_confidence_stop_emits_the_targets_law(verifier):
    """Chains end after different tokens, so their lengths differ from draw to draw."""
    target, draft = pair(4, seed=2)
    drafter = ConfidenceStop(draft, 3, threshold=0.3)
    assert round_error(target, drafter, 4, verifier, reaches=(1, 2, 3, 4)) < TOLERANCE


class DropsTheUnsure(ConfidenceStop):
    """Wrong: takes back the token that ended the draft."""

    def propose(self, context):
        tree = super().propose(context)
        last = tree.draft_laws[-1, tree.tokens[-1]] if len(tree) > 1 else 1.0
        if last >= self.threshold:
            return tree
        return DraftTree.chain(tree.tokens[:-1], tree.draft_laws[:-1] if len(tree) > 2 else None)


def test_a_token_taken_back_bends_the_law():
    """p = (.2, .3, .5), q = (.5, .3, .2): 0 alone is confident. (.2, .3, .5) becomes (.3, .34, .36) and the like."""
    target, draft = constant([0.2, 0.3, 0.5]), constant(SPLIT)
    right, wrong = (first_token_law(target, kind(draft, 1, threshold=0.4)) for kind in (ConfidenceStop, DropsTheUnsure))
    assert right == pytest.approx([0.2, 0.3, 0.5], abs=TOLERANCE)
    # q(0) = .5 is tested: .2 kept, .3 to token 2; else (.5) a draw from p
    assert wrong == pytest.approx([0.2 + 0.5 * 0.2, 0.5 * 0.3, 0.3 + 0.5 * 0.5], abs=TOLERANCE)
    target, draft = pair(4, seed=2)
    assert round_error(target, DropsTheUnsure(draft, 3, threshold=0.3), 4) > 1e-3


@names
def test_greedy_text_is_plain_greedy_text(name):
    target = llama(1)
    draft = CausalLM(disturbed(target, 2, 0.03))
    trace = decode(CausalLM(target), [1, 2, 3], 40, made(name, draft))
    assert trace.ids == generated(target, [1, 2, 3], 40)
    assert len({r.proposed for r in trace.rounds[:-1]}) > 1, "the draft length never changed"


# ---- what each does --------------------------------------------------------------------------------------------


def rounds_of(drafter, n=400, settings=SAMPLED, seed=0):
    """The rounds of a text after the same law everywhere, SPLIT, without those that its end may have cut."""
    session = Session(constant(SPLIT), drafter, settings=settings, seed=seed).start([0])
    found = []
    for r in session.rounds(n):
        if len(session.ids) > 3 * n // 4:
            return found
        found.append(r)


def test_the_heuristic_adds_two_or_takes_one():
    rounds = rounds_of(HeuristicLength(constant([0.3, 0.4, 0.3]), 4))
    assert rounds[0].proposed == 4
    followers = {True: set(), False: set()}
    for r, following in zip(rounds, rounds[1:], strict=False):
        all_accepted = len(r.path) == r.proposed
        assert following.proposed == (r.proposed + 2 if all_accepted else max(1, r.proposed - 1))
        followers[all_accepted].add(following.proposed)
    assert all(followers.values()) and 1 in followers[False]


def test_the_heuristic_is_transformers_schedule(monkeypatch):
    """The same pair, greedy: the candidates' lengths, round by round, until the end of the text cuts them."""
    from transformers.generation.candidate_generator import AssistedCandidateGenerator

    target = llama(1)
    draft = disturbed(target, 2, 0.03)
    config = draft.generation_config
    config.num_assistant_tokens, config.num_assistant_tokens_schedule = 4, "heuristic_transient"
    config.assistant_confidence_threshold = 0.0
    lengths, original = [], AssistedCandidateGenerator.get_candidates

    def watched(self, input_ids, *args, **kwargs):
        found = original(self, input_ids, *args, **kwargs)
        lengths.append(found[0].shape[1] - input_ids.shape[1])
        return found

    monkeypatch.setattr(AssistedCandidateGenerator, "get_candidates", watched)
    theirs = generated(target, [1, 2, 3], 60, assistant_model=draft)
    trace = decode(CausalLM(target), [1, 2, 3], 60, HeuristicLength(CausalLM(draft), 4))
    assert trace.ids == theirs
    ours = [r.proposed for r in trace.rounds]
    assert ours[:-1] == lengths[: len(ours) - 1]
    assert len(set(ours[:-1])) > 2


def test_the_confidence_stop_ends_after_the_first_unsure_token():
    rounds = rounds_of(ConfidenceStop(constant(SPLIT), 4, threshold=0.4))
    for r in rounds:
        unsure = [token != 0 for token in r.tokens[1:]]  # only token 0 has .4 or more
        assert not any(unsure[:-1]), "drafting went on after an unsure token"
        assert unsure[-1] or r.proposed == 4, "drafting ended although the draft was sure"
    assert {r.proposed for r in rounds} == {1, 2, 3, 4}
    assert {r.proposed for r in rounds_of(ConfidenceStop(constant(SPLIT), 4, threshold=0.0))} == {4}


def test_confidence_is_looked_at_at_temperature_0_too():
    """The argmax of (.5, .3, .2) has .5, though the law at temperature 0 is a point mass."""
    for threshold, length in ((0.49, 4), (0.51, 1)):
        rounds = rounds_of(ConfidenceStop(constant(SPLIT), 4, threshold), settings=SamplingSettings())
        assert {r.proposed for r in rounds} == {length}


@pytest.mark.parametrize("q", [[0.5, 0.3, 0.2], [0.3, 0.3, 0.4], [0.05, 0.05, 0.9]], ids=str)
@pytest.mark.parametrize("c", [0.02, 0.3, 0.5])
def test_the_controller_finds_the_best_length(q, c):
    """With constant laws alpha is sum min(p, q); the length settles where the formula has it, at 1 if nothing pays."""
    overlap = sum(map(min, SPLIT, q))
    drafter = LengthController(constant(q), c, gamma=4)
    assert rounds_of(drafter)[0].proposed == 4
    nearly = (1.0 + overlap * 100) / 102  # after a hundred contexts, with the two added ones
    wanted = sorted((max(1, best_gamma(nearly, c)), max(1, best_gamma(overlap, c))))
    assert wanted[0] <= drafter.gamma <= wanted[1]


@names
def test_a_new_text_begins_anew(name):
    """H16: the second text's lengths are those of a fresh drafter; a text that goes on keeps what was learned."""
    target, draft = TableModel.random(4, 1), near(TableModel.random(4, 1), 2)
    used, fresh = made(name, draft), made(name, draft)
    Session(target, used, settings=SAMPLED, seed=1).start([0]).run(40)
    lengths = [[r.proposed for r in decode(target, [1, 2], 30, d, None, SAMPLED).rounds] for d in (used, fresh)]
    assert lengths[0] == lengths[1]


def test_a_text_that_goes_on_keeps_its_draft_length():
    drafter = HeuristicLength(constant(SPLIT), 2)  # the target's own law: all are accepted
    session = Session(constant(SPLIT), drafter, settings=SAMPLED).start([0])
    session.run(20)
    grown = drafter.gamma
    assert grown > 4
    session.extend([1])
    assert next(session.rounds(50)).proposed == grown


def test_a_round_without_room_for_a_draft_teaches_nothing():
    drafter = HeuristicLength(constant(SPLIT), 4)
    session = Session(constant(SPLIT), drafter, settings=SAMPLED).start([0])
    session.run(1)
    assert next(session.rounds(50)).proposed == 4


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan"), True])
def test_a_threshold_outside_its_range_is_refused(threshold):
    with pytest.raises(ValueError, match="confidence threshold must lie"):
        ConfidenceStop(constant(SPLIT), 4, threshold)


@pytest.mark.parametrize("c", [-0.1, float("nan")])
def test_a_cost_that_cannot_be_is_refused(c):
    with pytest.raises(ValueError, match="cost of a draft step"):
        LengthController(constant(SPLIT), c)


def test_drafting_never_leaves_the_room():
    """B17, C3: near the limit the length is cut, whatever the schedule says."""
    for limit in (0, 1, 2, 3):
        trace = decode(constant(SPLIT), [0], limit, HeuristicLength(constant(SPLIT), 9), None, SAMPLED)
        assert len(trace.ids) == limit
