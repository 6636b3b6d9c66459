"""What lesson 05 draws: every token is told apart as exact match and the checker say, and the pictures hold the data.

Our own.
Left out: what the lesson measures, and the slider (test_knob.py).
"""

import html
import math
import re
from dataclasses import replace

import pytest
import torch
from matplotlib.colors import to_hex

from specdec_lib import reaction
from specdec_lib.colours import COLOURS
from specdec_lib.reaction import AGREES, BEHIND, OTHER_WORDS, WRONG_AGREED, WRONG_REJECTED
from specdec_lib.scored import ScoredText


def make_text(labels: str, rank: list[int]) -> ScoredText:
    """A token a letter: r right, w wrong, c corrected, a after an error."""
    words = {"r": "right", "w": "wrong", "c": "corrected", "a": "after"}
    n = len(labels)
    best = [math.log(0.9)] * n
    own = [best[0] if r == 0 else math.log(0.009) for r in rank]
    return ScoredText(
        "<how> many?", [f" <{i}>" for i in range(n)], [words[x] for x in labels], [" <b>"] * n, rank,
        own, best, [0.5] * n, [float(i) for i in range(n)],
    )  # fmt: skip


TEXT = make_text("rrwcra", [0, 1, 2, 0, 0, 3])


def test_each_token_is_what_both_judges_say():
    assert reaction.alignment(TEXT) == [AGREES, OTHER_WORDS, WRONG_REJECTED, AGREES, AGREES, BEHIND]
    assert reaction.alignment(make_text("w", [0])) == [WRONG_AGREED]


def test_the_table_counts_them():
    rows = reaction.share_table([TEXT, make_text("rw", [5, 0])])
    assert [row["times"] for row in rows] == [3, 2, 1, 1]
    assert [row["a token of the draft is"] for row in rows] == [AGREES, OTHER_WORDS, WRONG_REJECTED, WRONG_AGREED]


def test_the_coloured_text_names_each_token_s_kind_and_cannot_become_markup():
    shown = reaction.alignment_html([TEXT])
    titles = [part.split('"')[1] for part in shown.split("<span ")[1:] if part.startswith("title")]
    assert [html.unescape(title).split(";")[0] for title in titles] == reaction.alignment(TEXT)
    assert not {"<b>", "<0>", "<how>"} & set(re.findall("<[^ >]*>", shown))
    assert all(f"&lt;{word}&gt;" in shown for word in ("b", "0", "how"))


def test_the_row_before_verifies_and_the_own_row_judges():
    texts = [text.get_text() for text in reaction.draw_two_rows(list("abcd"), judged=2).axes[0].texts]
    assert any(text.startswith("logits of row 1") and text.endswith("verify") for text in texts)
    assert any(text.startswith("hidden state of row 2") and text.endswith("judges") for text in texts)


def test_the_projection_shows_every_token_in_the_colour_of_its_label():
    generator = torch.Generator().manual_seed(0)
    right = torch.tensor([True] * 7 + [False] * 3)
    points = torch.randn(10, 2, generator=generator)
    figure = reaction.draw_reaction(points, torch.randn(10, generator=generator), right, "a title")
    for drawn, chosen, colour in zip(
        figure.axes[0].collections, (right, ~right), ("accepted", "rejected"), strict=True
    ):
        assert torch.allclose(torch.tensor(drawn.get_offsets().data).float(), points[chosen])
        assert to_hex(drawn.get_facecolors()[0]) == COLOURS[colour].lower()
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == [
        "right token (7)",
        "wrong token (3)",
    ]


def test_rejected_tokens_are_those_up_to_the_first_error():
    digits = replace(make_text("rw", [5, 0]), tokens=[" 7", " 8"])
    gaps, logits, words, right = reaction.rejected_tokens([TEXT, digits])
    assert gaps == pytest.approx([-2, -2, -2]) and (logits, right) == ([1, 2, 0], [True, False, True])
    assert words == [True, True, False]


def test_both_rulers_hold_the_rejected_tokens_alone():
    likelihood, head = reaction.draw_two_rulers([TEXT, TEXT]).axes
    right, wrong = likelihood.collections
    assert right.get_offsets()[:, 0].tolist() == pytest.approx([-2, -2]) and len(wrong.get_offsets()) == 2
    assert [points.get_offsets()[:, 0].tolist() for points in head.collections] == [[1, 1], [2, 2]]


def test_scores_along_a_text_are_those_given():
    one = reaction.Along("clear", ["a", "b"], {"right": [0.9, 0.8], "slip": [0.9, 0.1]}, planted=1)
    figure = reaction.draw_along([one, replace(one, title="usual", tokens=["a", "c"])], delta=0.7)
    assert [ax.get_title() for ax in figure.axes] == ["clear", "usual"]
    lines = {line.get_label(): list(line.get_ydata()) for line in figure.axes[0].get_lines()}
    assert lines == {"right": [0.9, 0.8], "slip": [0.9, 0.1], "delta = 0.7": [0.7, 0.7]}
    assert [[label.get_text() for label in ax.get_xticklabels()] for ax in figure.axes] == [["a", "b"], ["a", "c"]]
