"""One round at any place of a recorded text, and its pictures: the loop's own round, its lookups, every node once.

Our own; the rules are those of LogitSpec (arXiv 2507.01449), tested in test_logitspec.py.
Left out: the widget (test_widgets.py, ui/).
"""

import numpy as np
import pytest
import tiny
from matplotlib.colors import to_hex

from specdec_lib import forest, guessing
from specdec_lib.colours import COLOURS
from specdec_lib.decode import decode
from specdec_lib.drafters import LogitSpec
from specdec_lib.experiments.recording import Recorded, Replay, _rows, replay
from specdec_lib.model import CausalLM


def made(prompt, text, best=None) -> Recorded:
    """A text of our choice; best: the runners-up of each of its rows, by default tokens that stand nowhere."""
    runners_up = [[90 + i, 91 + i] for i in range(len(text))] if best is None else best
    rows = np.array([[token, *others] for token, others in zip(text, runners_up, strict=True)])
    return Recorded("made", list(prompt), list(text), rows, np.broadcast_to(-np.arange(rows.shape[1]), rows.shape))


# After "5 6 7" came "8 5 6 7 8" before; the row that wrote the first 7 ranks 70 second, the one behind it 9.
COPY = made([5, 6, 7, 8, 5, 6], [7, 8, 9, 4, 4, 3], [[70, 71], [9, 72], [73, 74], [75, 76], [77, 78], [79, 80]])


def word(token: int) -> str:
    return f" <{token}>"


@pytest.fixture(scope="module")
def real():
    """A recorded text of a tiny model."""
    target, prompt = CausalLM(tiny.llama()), tiny.prompts(1)[0]
    return _rows(target, "a", prompt, decode(target, prompt, 24))


# ---- the step


@pytest.mark.parametrize("capacity", [1, 4, 64])
def test_a_step_where_a_round_begins_is_that_round(real, capacity):
    known, at = Replay(real).known, 0
    for r in replay(LogitSpec(capacity), real).rounds:
        step = guessing.read_step(real, at, LogitSpec(capacity))
        assert step.round.tokens == [known[token] for token in r.tokens]
        assert (step.round.parents, step.round.path, step.round.outcomes) == (r.parents, r.path, r.outcomes)
        assert step.round.emitted == real.text[at : at + len(r.emitted)] == step.ahead[: len(r.emitted)]
        assert step.ids == [*real.prompt, *real.text[:at]]
        at += len(r.emitted)
    assert at == len(real.text)


@pytest.mark.parametrize("at", [-1, 6, 100])
def test_a_place_outside_the_text_is_refused(at):
    with pytest.raises(ValueError, match=f"6 tokens; got {at}"):
        guessing.read_step(COPY, at, LogitSpec())


# The made texts have two runners-up a row: three tokens with the argmax.


def test_the_keys_asked_for_and_where_they_stood():
    step = guessing.read_step(COPY, 1, LogitSpec(8, guesses=3))
    assert step.asked[:3] == [([5, 6, 7], 3), ([6, 7], 3), ([7], 3)]
    assert step.asked[3:] == [([70], None), ([71], None)]
    assert guessing.retrieved(step) == (3, 3, 4), "8 5 6 7 followed; the text ends there"
    begins = guessing.read_step(COPY, 0, LogitSpec(8, guesses=3))
    assert begins.asked == [([8, 5, 6], None), ([5, 6], 2), ([6], 2)] and guessing.retrieved(begins)[:2] == (2, 2)
    unseen = guessing.read_step(COPY, 3, LogitSpec(8, guesses=3))
    assert [at for _, at in unseen.asked] == [None] * 5 and guessing.retrieved(unseen) is None


def test_what_a_small_tree_has_room_for_is_what_was_retrieved():
    assert guessing.retrieved(guessing.read_step(COPY, 1, LogitSpec(3, guesses=3))) == (3, 3, 2)


def test_a_guess_is_known_by_its_rank_in_the_last_row():
    step = guessing.read_step(COPY, 2, LogitSpec(16, guesses=3))
    (node,) = (node for node, rank in step.guesses.items() if rank == 1)
    assert step.round.tokens[node] == 9 and step.outcomes[node] == "accepted"
    assert guessing.step_line(step).endswith("; the right next token: guess #1")
    assert "no guesses tried" in guessing.step_line(guessing.read_step(COPY, 0, LogitSpec(16, guesses=3)))
    assert "not among the guesses" in guessing.step_line(guessing.read_step(COPY, 3, LogitSpec(16, guesses=3)))


# ---- what is drawn


def spans(shown: str) -> list[tuple[str, str]]:
    """(style, text) of the spans of the text, without the legend."""
    text = shown.split('<div style="font-size')[0]
    return [tuple(part.split("</span>")[0].split('">', 1)) for part in text.split('<span style="')[1:]]


def test_the_text_shows_the_end_the_place_before_and_what_followed():
    shown = spans(forest.step_html(guessing.read_step(COPY, 1, LogitSpec(3, guesses=3)), word))
    found = {kind: [text for style, text in shown if style == look] for kind, look in forest.STYLES.items()}
    assert found["before"] == [" &lt;5&gt; &lt;6&gt; &lt;7&gt;"] == found["key"]
    assert found["followed"] == [" &lt;8&gt;"], "the 5 behind it is part of the key"
    assert found["accepted"] == [" &lt;8&gt;"] and found["own"] == [" &lt;9&gt;"]
    assert found["ahead"] == [" &lt;4&gt; &lt;4&gt; &lt;3&gt;"]


def test_the_table_says_never_where_a_key_did_not_stand():
    shown = forest.step_html(guessing.read_step(COPY, 1, LogitSpec(3, guesses=3)), word)
    assert "<td>last 3</td>" in shown and "place 3: &lt;8&gt; &lt;5&gt;" in shown
    assert "<td>guess #1</td><td> &lt;70&gt;</td><td>never</td>" in shown
    assert "<5>" not in shown


def test_branches_run_to_the_right_and_are_laid_side_by_side():
    parents = [-1, 0, 1, 2, 0, 0, 5]  # a chain of 3, one alone, a chain of 2
    assert forest.layout(parents, columns=6) == {1: (0, 0), 2: (1, 0), 3: (2, 0), 4: (3, 0), 5: (4, 0), 6: (5, 0)}
    assert forest.layout(parents, columns=5) == {1: (0, 0), 2: (1, 0), 3: (2, 0), 4: (3, 0), 5: (0, 1), 6: (1, 1)}
    assert 3 not in forest.layout(parents, columns=2), "no place beyond the last column"


def test_a_fork_takes_a_row_of_its_own_below():
    parents = [-1, 0, 1, 1, 3, 0]  # two below node 1; node 5 alone
    assert forest.layout(parents, columns=4) == {1: (0, 0), 2: (1, 0), 3: (1, 1), 4: (2, 1), 5: (3, 0)}
    assert forest.layout(parents, columns=3)[5] == (0, 2), "below the fork"


@pytest.mark.parametrize("seed", range(20))
def test_no_two_nodes_share_a_place_and_children_stand_right_of_their_parents(seed):
    draws = np.random.default_rng(seed)
    parents = [-1, *(int(draws.integers(0, node)) for node in range(1, 40))]
    places = forest.layout(parents)
    assert len(set(places.values())) == len(places)
    for node, (column, row) in places.items():
        if parents[node]:
            assert places[parents[node]][0] == column - 1 and places[parents[node]][1] <= row
        assert 0 <= column < forest.COLUMNS


def test_every_node_is_a_box_in_the_colour_of_its_fate():
    step = guessing.read_step(COPY, 1, LogitSpec(8, guesses=3))
    (axes,) = forest.draw_step(step, word).axes
    boxes = {t.get_text(): to_hex(t.get_bbox_patch().get_edgecolor()).upper() for t in axes.texts if t.get_bbox_patch()}
    assert boxes == {
        "<7>": forest.PALE, "<8>": COLOURS["accepted"], "<5>": COLOURS["rejected"], "<6>": forest.PALE,
        "<70>": forest.PALE, "<71>": forest.PALE,
    }  # fmt: skip
    assert sum(t.get_bbox_patch() is not None for t in axes.texts) == len(step.round.tokens)
    assert [t.get_text() for t in axes.texts if t.get_text().startswith("#")] == ["#1", "#2"]
    assert axes.get_title() == "7 nodes with the root, 1 accepted"


def test_a_token_that_goes_on_with_a_word_shows_it():
    step = guessing.read_step(COPY, 3, LogitSpec(8, guesses=3))
    (axes,) = forest.draw_step(step, str).axes
    assert "\u202690" not in [t.get_text() for t in axes.texts] and "\u202673" in [t.get_text() for t in axes.texts]


def test_a_round_without_a_proposal_is_drawn_as_its_root():
    (axes,) = forest.draw_step(guessing.read_step(COPY, 3, LogitSpec(1, guesses=3)), word).axes
    assert [t.get_text() for t in axes.texts] == ["<9>", "the root; nothing is proposed"]
