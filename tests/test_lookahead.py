"""Lookahead: the window's shape, its steps written out again by hand, the pool, exact texts and laws.
Follows Fu et al. 2024 (arXiv 2402.02057) and specdec_lib/drafters/lookahead.py.
Left out: speed.
"""

import pytest
import torch
from laws import TOLERANCE, law_error, plain_law, round_error, whole_text
from retrieval import context_of, kept_beside_plain, pocket_texts

from specdec_lib.decode import Session, decode
from specdec_lib.drafters.lookahead import Lookahead
from specdec_lib.model import TableModel
from specdec_lib.sampling import SamplingSettings


def rounds(target, drafter, prompt, n):
    """(window before, tree, argmax of each node) of every round of a greedy text."""
    seen = []

    class Watched:
        name = "watched"

        def start(self, prompt):
            drafter.start(prompt)

        def propose(self, context):
            window = [list(level) for level in drafter.window]
            self.tree = drafter.propose(context)
            seen.append((window, self.tree, list(context.committed)))
            return self.tree

        def observe(self, feedback):
            seen[-1] += (feedback.scores.best.tolist(),)
            drafter.observe(feedback)

    trace = decode(target, prompt, n, Watched())
    return seen, trace


def argmax(target, ids):
    return max(range(target.vocab_size), key=target.logits_of(tuple(ids)).__getitem__)


@pytest.mark.parametrize("width, ngram", [(7, 5), (3, 4), (1, 3), (4, 3), (15, 5)])
def test_the_window_fills_level_by_level_and_keeps_its_shape(width, ngram):
    target = TableModel.random(6, 3)
    seen, _ = rounds(target, Lookahead(width, ngram, 3), [1, 2, 3], 30)
    for number, (window, tree, *_) in enumerate(seen[:12]):
        filled = min(number, ngram - 2)
        columns = width + ngram - 3 - filled
        assert [len(level) for level in window] == [columns] + [columns + 1] * filled
        assert len(tree.scouts) == sum(map(len, window))
    assert len(seen[ngram][1].scouts) == width - 1 + width * (ngram - 2)


def test_every_guess_is_the_argmax_of_its_columns_history():
    """The window's rules again, from histories alone: a column reads the text, level 0 up to it, and itself."""
    target, width, ngram = TableModel.random(7, 11), 3, 4
    seen, _ = rounds(target, Lookahead(width, ngram, 2), [1, 2, 3, 4], 40)
    pool: dict[int, list] = {}
    for (window, tree, text, _), (after, *_) in zip(seen[:20], seen[1:21], strict=True):
        columns = len(window[-1]) if len(window) > 1 else len(window[0]) + 1
        made = []
        for column in range(columns):
            history = [*text, *window[0][:column], *(level[column] for level in window[1:])]
            made.append(argmax(target, history))
        proposed = {tuple(tree.tokens[tree.path_to(n)].tolist()) for n in range(1, len(tree)) if n not in tree.scouts}
        expected = pool.get(text[-1], [])
        assert proposed == {path[:end] for path in expected for end in range(1, ngram)}
        if len(window) < ngram - 1:
            assert after == [level[1:] for level in window] + [made[1:]]
        else:
            for column, key in enumerate([text[-1], *window[0]]):
                gram = (*(level[column] for level in window[1:]), made[column])
                pool[key] = ([g for g in pool.get(key, []) if g != gram] + [gram])[-2:]
            assert after == [window[1][1:], *window[2:], made]


def test_scouts_are_scored_and_never_kept():
    target = TableModel.random(5, 2)
    drafter = Lookahead(3, 3, 2)
    trace = decode(target, [0, 1], 40, drafter)
    assert sum(len(r.scouts) for r in trace.rounds) > 60
    assert all(not set(r.path) & set(r.scouts) for r in trace.rounds)
    assert all(r.proposed == len(r.tokens) - 1 - len(r.scouts) for r in trace.rounds)
    assert all(len(paths) <= 2 and all(len(path) == 2 for path in paths) for paths in drafter.pool.values())


def test_an_ngram_found_again_stays_and_the_oldest_falls_out():
    drafter = Lookahead(2, 3, 2)
    for gram in ((1, 1), (2, 2), (1, 1), (3, 3)):
        drafter._remember(0, gram)
    assert list(drafter.pool[0]) == [(1, 1), (3, 3)]


def test_the_window_rests_where_it_does_not_fit():
    drafter = Lookahead(3, 4, 2)
    drafter.start([1, 2])
    before = [list(level) for level in drafter.window]
    assert not drafter.propose(context_of([1, 2], room=3)).scouts  # the window is 4 deep
    assert drafter.propose(context_of([1, 2], room=4)).depth == 4
    target = TableModel.random(5, 2, context=12)
    trace = decode(target, [1, 2], 50, Lookahead(3, 4, 2))
    assert len(trace.ids) == 10 and trace.reason == "context"
    assert before == drafter.window


def test_a_text_leaves_nothing_behind():
    """G7: the second text is drafted as in a new session, random tokens included."""
    target = TableModel.random(6, 9)
    drafter, alone = Lookahead(4, 4, 3), Lookahead(4, 4, 3)
    decode(target, [1, 2, 3], 30, drafter)
    again, first = decode(target, [3, 2], 30, drafter), decode(target, [3, 2], 30, alone)
    assert [r.tokens for r in again.rounds] == [r.tokens for r in first.rounds]


def test_greedy_text_is_plain_decodings():
    assert kept_beside_plain(lambda: Lookahead()) > 20


def test_greedy_text_of_the_pocket_pair_is_plain_decodings(pair):
    plain, drafted = pocket_texts(pair, Lookahead(eos_token_ids=pair.stops.eos_token_ids))
    assert drafted.ids == plain.ids


def test_the_law_above_0_is_the_targets():
    """With a pool that is filled already, so that n-grams are tested while the window is scored."""
    target = TableModel.random(3, 5)

    class Filled(Lookahead):
        def start(self, prompt):
            super().start(prompt)
            self.pool = {0: {(1, 2): None, (1, 0): None, (2, 2): None}, 1: {(0, 0): None}}

    assert round_error(target, Filled(2, 3, 3), n=3, reaches=(1, 3)) < TOLERANCE
    emitted = whole_text(target, Filled(2, 3, 3), n=3)
    assert law_error(emitted, plain_law(target), (0,), 3) < TOLERANCE


def test_a_seed_gives_the_same_text_and_an_interrupted_round_is_repeated():
    target = TableModel.random(6, 4)
    settings = SamplingSettings(temperature=1.0)
    texts = [decode(target, [1, 2], 30, Lookahead(3, 3, 2), settings=settings, seed=5).ids for _ in range(2)]
    assert texts[0] == texts[1]
    session = Session(target, Lookahead(3, 3, 2), settings=settings, seed=5).start([1, 2])
    stepped = session.rounds(30)
    for _ in range(4):
        next(stepped)
    verify, session.verifier.verify = session.verifier.verify, None
    with pytest.raises(TypeError):
        next(stepped)
    session.verifier.verify = verify
    assert session.run(30 - len(session.trace.ids)).ids == texts[0]


@pytest.mark.parametrize("arguments, said", [((0,), "width"), ((3, 2), "ngram"), ((3, 3, 0), "guesses")])
def test_bad_numbers_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        Lookahead(*arguments)


def test_only_the_vocabulary_and_nothing_behind_eos_is_proposed():
    drafter = Lookahead(2, 4, 3, eos_token_ids=[7])
    drafter.start([1])
    drafter.pool = {1: {(2, 7, 3): None, (9, 1, 1): None, (4, 9, 5): None}}
    tree = drafter.propose(context_of([1], vocab_size=9))
    assert [int(t) for n, t in enumerate(tree.tokens) if n not in tree.scouts] == [1, 2, 4]
    assert isinstance(tree.tokens, torch.Tensor)
