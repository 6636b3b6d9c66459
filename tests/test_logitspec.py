"""LogitSpec: every proposal against a step written out by hand, a worked example, equal texts, exact laws.
Follows the step as drafters/logitspec.py describes it; the reference scans the text and keeps no state.
Left out: the cost-aware form (test_costing.py).
"""

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import SAMPLED, TOLERANCE, law_error, plain_law, round_error, whole_text
from test_ngrams import scanned

from specdec_lib.decode import Session, decode
from specdec_lib.drafters import DraftContext
from specdec_lib.drafters.logitspec import LogitSpec, branch_length
from specdec_lib.model import CausalLM, TableModel
from specdec_lib.sampling import Adjuster, RandomChance
from specdec_lib.tree import DraftTree


def ranked(row):
    return sorted(range(len(row)), key=lambda token: -row[token])


def step(text, row, capacity, k, room):
    """Branches of a LogitSpec step, as separate chains. row: logits that emitted text[-1]; None before the first."""

    def followed(tail, most):
        hit = scanned(text, tail[-3:], 3, 20)
        return text[hit[0] : hit[0] + most] if hit else []

    branches = [followed(text, 20)]
    for rank, guess in enumerate(ranked(row)[:k] if row is not None else []):
        if guess != text[-1]:
            total = 4 if rank <= 8 else 3 if rank <= 32 else 1
            branches.append(([guess] + followed([*text, guess], 20))[:total])
    found, left = [], capacity - 1
    for branch in branches:
        branch = branch[:room][:left]
        left -= len(branch)
        if branch:
            found.append(branch)
    return found


class Watched(LogitSpec):
    """Notes the text and the branches of every round."""

    def start(self, prompt):
        super().start(prompt)
        self.seen = []

    def paths(self, context):
        paths = super().paths(context)
        self.seen.append((list(context.committed), paths, context.room))
        return paths


def most_matches(branches, truth):
    """Tokens kept by the rule of separate chains: the branch with the longest right beginning."""

    def matches(branch):
        n = 0
        while n < min(len(branch), len(truth)) and branch[n] == truth[n]:
            n += 1
        return n

    return max(map(matches, branches), default=0)


@settings(max_examples=25)
@given(
    st.integers(0, 10**6), st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(1, 64), st.integers(0, 8)
)
def test_every_proposal_and_every_round_equals_the_step_by_hand(seed, prompt, capacity, k):
    target = TableModel.random(6, seed, spread=3.0)
    drafter = Watched(capacity, k)
    trace = decode(target, prompt, 24, drafter)
    text = [*prompt, *trace.ids]
    assert trace.ids == decode(target, prompt, 24).ids
    for (committed, paths, room), round_ in zip(drafter.seen, trace.rounds, strict=True):
        row = target.logits_of(tuple(committed[:-1])) if len(committed) > len(prompt) else None
        expected = step(committed, row, capacity, k, room)
        assert paths == expected
        assert sum(map(len, paths)) < capacity and round_.proposed <= sum(map(len, paths))
        assert len(round_.path) == most_matches(expected, text[len(committed) : len(committed) + room])


def test_a_worked_example():
    #       0  1  2  3  4  5  6
    text = [5, 6, 7, 8, 5, 6, 9]  # the root is 9; the row that emitted it ranks 9, 5, 8, 1
    drafter = LogitSpec(capacity=64, guesses=4)
    drafter.index.sync(text)
    drafter.best, drafter.best_for = [9, 5, 8, 1], len(text)
    assert drafter.paths(context(text)) == [
        # branch A: (5, 6, 9), (6, 9) and 9 never stood before
        [5, 6, 7, 8],  # (6, 9, 5) and (9, 5) are new; 5 first stood at 0: 6 7 8 follow, cut to four in all
        [8, 5, 6, 9],  # 8 stood at 3
        [1],  # no hit: the guess alone
    ]


def context(text, room=50, vocab=20):
    return DraftContext(text, room, vocab, Adjuster(), RandomChance(torch.Generator()), torch.device("cpu"))


def test_a_branch_may_run_to_the_texts_own_end_and_repeat_it():
    drafter = LogitSpec()
    assert drafter.paths(context([1, 2, 1, 2])) == [[1, 2]]  # (1, 2) stood at 0: what follows is 1 2
    assert LogitSpec().paths(context([3] * 30)) == [[3] * 20]  # the latest with 20 tokens after it


def test_lengths_of_branches_by_rank():
    assert [branch_length(rank) for rank in (0, 8, 9, 32, 33, 63)] == [4, 4, 3, 3, 1, 1]
    for most in (1, 3):
        drafter = LogitSpec(lengths=lambda rank, most=most: most)
        drafter.best, drafter.best_for = [5, 9], 8
        assert drafter.paths(context([5, 6, 7, 8, 5, 6, 7, 4])) == [[5, 6, 7][:most], [9]]


def test_nothing_is_proposed_where_nothing_fits():
    text = [1, 2, 1]
    assert len(LogitSpec(1).propose(context(text))) == 1
    assert len(LogitSpec().propose(context(text, room=0))) == 1
    assert LogitSpec().propose(context(text, room=1)).tokens.tolist() == [1, 2]


def test_guesses_or_retrieval_alone():
    text = [1, 2, 3, 1, 2]
    for drafter, expected in ((LogitSpec(guesses=0), [[3, 1, 2]]), (LogitSpec(retrieval=False), [[7], [3]])):
        drafter.best, drafter.best_for = [2, 7, 3], len(text)
        if not drafter.guesses:
            drafter.best = []
        assert drafter.paths(context(text)) == expected


def test_guesses_are_of_the_newest_row_and_go_out_of_date_when_the_user_adds_tokens():
    target = TableModel.random(6, 4, spread=3.0)
    drafter = Watched(guesses=2)
    session = Session(target, drafter).start([0, 1])
    session.run(5)
    assert drafter.best == ranked(target.logits_of(tuple(session.ids[:-1])))[:2]
    rounds = len(drafter.seen)
    session.extend([2, 3])
    session.run(6)
    committed, paths, room = drafter.seen[rounds]
    assert committed[-2:] == [2, 3] and room == 5 and paths == step(committed, None, 64, 2, room)


@pytest.mark.parametrize("capacity", [1, 8, 64, 256])
def test_texts_equal_plain_greedy_decoding_on_a_real_model(capacity):
    target = CausalLM(tiny.llama())
    for prompt in tiny.prompts(2):
        trace = decode(target, prompt, 30, LogitSpec(capacity))
        assert trace.ids == tiny.generated(target.model, prompt, 30)
        assert capacity == 1 or max(len(r.path) for r in trace.rounds) > 0


def test_nothing_is_left_of_the_last_text():
    target, drafter, prompt = TableModel.random(6, 2, spread=3.0), LogitSpec(), [1, 2, 3] * 4
    alone = decode(target, prompt, 20, LogitSpec())
    for tokens in (2, 8, 30):  # a text shorter than the next prompt, one as long, and a longer one
        decode(target, [3, 1, 3, 2], tokens, drafter)
        again = decode(target, prompt, 20, drafter)
        assert [r.tokens for r in again.rounds] == [r.tokens for r in alone.rounds]


def test_the_law_of_three_tokens_is_exact_over_every_outcome():
    target = TableModel.random(3, 5)
    emitted = whole_text(target, LogitSpec(), 3, prompt=(0, 1, 0, 2, 0))
    assert law_error(emitted, plain_law(target), (0, 1, 0, 2, 0), 3) < TOLERANCE
    assert round_error(target, LogitSpec(), 3, prompt=(0, 1, 0, 2, 0), reaches=(1, 2)) < TOLERANCE


def test_a_sampled_text_gets_drafts_accepted_and_keeps_its_seed():
    target = TableModel.random(4, 5, spread=2.0)
    first, again = (decode(target, [0, 1, 0], 30, LogitSpec(), settings=SAMPLED, seed=3) for _ in range(2))
    assert first.ids == again.ids and sum(len(r.path) for r in first.rounds) > 3


def test_separate_chains_with_a_draw_each_are_biased_and_merged_ones_are_not():
    """p = (.4, .3, .3), chains 0 and 1 below the root. Each chain's draw: keep what matches most, else emit a draw."""
    p, target = [0.4, 0.3, 0.3], TableModel.constant([0.4, 0.3, 0.3])
    biased = [0.0] * 3
    for one in range(3):
        for other in range(3):
            if one == 0:  # the first chain's draw matches
                token = 0
            elif other == 1:
                token = 1
            else:
                token = one
            biased[token] += p[one] * p[other]
    assert [round(mass, 2) for mass in biased] == [0.4, 0.39, 0.21]

    class Two(LogitSpec):
        def paths(self, context):
            return [[0], [1]]

    assert round_error(target, Two(), 2) < TOLERANCE


@pytest.mark.parametrize("bad", [{"capacity": 0}, {"guesses": -1}, {"capacity": True}])
def test_numbers_that_cannot_be_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        LogitSpec(**bad)


def test_a_tree_of_it_has_equal_beginnings_once():
    text = [1, 2, 3, 9, 1, 2]
    drafter = LogitSpec()
    drafter.index.sync(text)
    drafter.best, drafter.best_for = [2, 3], len(text)
    assert drafter.paths(context(text)) == [[3, 9, 1, 2], [3, 9, 1, 2]]
    assert drafter.propose(context(text)).tokens.tolist() == DraftTree.chain([2, 3, 9, 1, 2]).tokens.tolist()
