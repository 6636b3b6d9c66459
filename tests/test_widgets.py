"""The widgets without a browser: what they show is right, and they show what the pure functions give.

Our own; the laws are those of Leviathan et al. 2023 (arXiv 2211.17192), appendix A.1.
Left out: the page in a real browser (ui/test_widgets_in_a_browser.py), the dial's numbers (test_dial.py).
"""

import ipywidgets
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from specdec_lib import views, widgets
from specdec_lib.colours import COLOURS
from specdec_lib.dial import dial_line, draw_dial, read_dial
from specdec_lib.drafters import LogitSpec
from specdec_lib.experiments.recording import Recorded
from specdec_lib.forest import draw_step, step_html
from specdec_lib.guessing import read_step, step_line
from specdec_lib.knob import KNOBS, draw_knob, knob_html, knob_line, read_knobs
from specdec_lib.render import round_view
from specdec_lib.scored import ScoredText
from specdec_lib.trace import Round, Trace


class Words:
    """A tokenizer of four words."""

    words = ["\u2581so", "\u2581x", "</s>", "\u2581<b>"]

    def decode(self, ids, skip_special_tokens=False):
        return "".join(self.words[i] for i in ids).replace("\u2581", " ").strip()

    def convert_ids_to_tokens(self, token):
        return self.words[token]


def make_trace() -> Trace:
    """Three tokens drafted and the second rejected; then one drafted and accepted."""
    first = Round([0, 0, 1, 1], [-1, 0, 1, 2], [0, 0.9, 0.1, 0.2], [0, 0.8, 0.7, 0.6], [0, 0.8, 0.3, 0.5],
                  [1], {1: "exact", 2: "rejected"}, [0, 3], "recovered")  # fmt: skip
    second = Round([3, 1], [-1, 0], [0, 0.5], [0, 0.4], [0, 0.7], [1], {1: "exact"}, [1, 2], "bonus")
    return Trace([0], "lossless", True, rounds=[first, second])


def make_scored(question: str = "how many?") -> ScoredText:
    """Two right tokens: the argmax, and one of rank 1 with a judge's score of .88."""
    return ScoredText(question, [" a", " b"], ["right"] * 2, [" a", " c"], [0, 1], [-0.1, -3.0], [-0.1, -0.1],
                      [0.3, 0.5], [4.0, 2.0])  # fmt: skip


def make_recorded(prompt: list[int], text: list[int]) -> Recorded:
    """Rows of three: the text's token and two that stand nowhere."""
    rows = np.array([[token, 90 + i, 95 + i] for i, token in enumerate(text)])
    return Recorded("made", prompt, text, rows, np.broadcast_to(-np.arange(3), rows.shape))


COPIES = [make_recorded([5, 6, 7, 8, 5, 6], [7, 8, 9, 4]), make_recorded([1, 2, 1], [2, 1, 2])]


# ---- two laws


def test_the_emitted_law_is_the_target_s_for_any_two_laws():
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        p, q = torch.rand(2, 4, generator=generator, dtype=torch.float64) * (
            torch.rand(2, 4, generator=generator) > 0.2
        )
        p[0], q[3] = p[0] + 0.1, q[3] + 0.1  # never all zero
        laws = views.two_laws(p.tolist(), q.tolist())
        p, q = p / p.sum(), q / q.sum()
        assert torch.allclose(laws.emitted, p, atol=1e-12, rtol=0)
        assert laws.alpha == pytest.approx(1 - 0.5 * (p - q).abs().sum().item(), abs=1e-12)
        assert torch.allclose(laws.accept[q > 0], (p / q).clamp(max=1)[q > 0])
        assert (laws.residual[q >= p] == 0).all() and laws.residual.sum() == pytest.approx(1)


def test_equal_laws_accept_everything():
    laws = views.two_laws([1, 2, 3], [2, 4, 6])
    assert laws.accept.tolist() == [1, 1, 1]
    assert laws.alpha == pytest.approx(1)
    assert "less than 1e-12" in views.two_laws_line(laws)


@pytest.mark.parametrize("target, draft, whose", [([0, 0], [1, 1], "target"), ([1, 1], [2, -1], "draft")])
def test_weights_of_which_no_law_can_be_made_are_refused(target, draft, whose):
    with pytest.raises(ValueError, match=whose):
        views.two_laws(target, draft)


# ---- a round


def bars(axes) -> list[list[float]]:
    """Heights of each group of bars."""
    return [[round(bar.get_height(), 3) for bar in group] for group in axes.containers]


def test_a_round_is_drawn_with_the_fate_of_every_token():
    figure = views.draw_round(round_view(make_trace(), 0, Words()))
    (axes,) = figure.axes
    assert bars(axes) == [[0.9, 0.1, 0.2], [0.8, 0.7, 0.6]]  # p, then q
    labels = axes.get_xticklabels()
    assert [label.get_text() for label in labels] == ["so\naccepted", "x\nrejected", "x\nnot reached"]
    assert [label.get_color() for label in labels[:2]] == [COLOURS["accepted"], COLOURS["rejected"]]
    assert axes.containers[0][2].get_alpha() < 1 == axes.containers[0][1].get_alpha()


@pytest.mark.parametrize(
    "best, says",
    [("a x c d", "recovered: emitted after the 1 accepted"), ("a b c d", "bonus: emitted after the 3 accepted")],
)
def test_rows_say_what_is_emitted_behind_the_leading_run(best, says):
    figure = views.draw_rows(list("abc"), best.split())
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert says in texts and [text for text in texts if len(text) == 1] == [*"abc", *best.split()]


def test_the_text_so_far_ends_with_the_round_shown():
    first, both = (views.text_so_far(make_trace(), index, Words()) for index in (0, 1))
    assert "recovered" in first and "round 1" not in first
    assert first.split("</div>")[0] in both and "round 1" in both


def test_a_token_cannot_become_markup():
    text = views.text_so_far(make_trace(), 0, Words())
    assert "<b>" not in text and "&lt;b&gt;" in text


def test_a_round_without_a_proposal_can_be_drawn():
    trace = make_trace()
    trace.rounds = [Round([0], [-1], [0], [0], [0], [], {}, [1], "bonus")]
    assert views.png(views.draw_round(round_view(trace, 0, Words()))).startswith(b"\x89PNG")


# ---- the widgets


def parts(box: ipywidgets.Widget, kind: type) -> list:
    """All widgets of a kind inside a box, in order."""
    found = [box] if isinstance(box, kind) else []
    return found + [part for child in getattr(box, "children", ()) for part in parts(child, kind)]


@pytest.fixture(params=["two laws", "trace", "dial", "knob", "step"])
def widget(request):
    made = {
        "two laws": widgets.two_laws_widget,
        "trace": lambda: widgets.trace_widget({"a": make_trace()}, Words()),
        "dial": lambda: widgets.speed_dial({"flat": None}),
        "knob": lambda: widgets.knob_widget([make_scored(), make_scored()]),
        "step": lambda: widgets.step_widget(COPIES, str),
    }
    return made[request.param]()


def test_a_widget_is_made_of_core_widgets_without_an_output(widget):
    for part in parts(widget, ipywidgets.Widget):
        assert type(part).__module__.startswith("ipywidgets.widgets.")
        assert not isinstance(part, ipywidgets.Output)
        assert getattr(part, "continuous_update", False) is False


def test_pictures_do_not_pile_up(widget):
    for part in parts(widget, ipywidgets.FloatSlider) + parts(widget, ipywidgets.BoundedIntText):
        part.value = part.max
        part.value = part.max
    assert plt.get_fignums() == []


def test_the_first_state_is_the_picture_drawn_beside_the_widget():
    box = widgets.two_laws_widget()
    laws = views.two_laws(widgets.DEFAULT_TARGET, widgets.DEFAULT_DRAFT)
    assert parts(box, ipywidgets.Image)[0].value == views.png(views.draw_two_laws(laws))


def test_a_slider_changes_picture_and_line():
    box = widgets.two_laws_widget([1, 1], [1, 1])
    picture, line = parts(box, ipywidgets.Image)[0], parts(box, ipywidgets.HTML)[0]
    before = picture.value
    assert "alpha = 1.000" in line.value
    parts(box, ipywidgets.FloatSlider)[0].value = 3
    assert "alpha = 0.750" in line.value
    assert picture.value != before


def test_all_zero_weights_are_explained_and_can_be_put_right():
    box = widgets.two_laws_widget([1, 0], [1, 1])
    line, slider = parts(box, ipywidgets.HTML)[0], parts(box, ipywidgets.FloatSlider)[0]
    slider.value = 0
    assert "target" in line.value and "alpha" not in line.value
    slider.value = 2
    assert "alpha = 0.500" in line.value


def test_stepping_stays_inside_the_trace():
    box = widgets.trace_widget({"a": make_trace()}, Words())
    back, forward = parts(box, ipywidgets.Button)
    kinds = (ipywidgets.BoundedIntText, ipywidgets.HTML, ipywidgets.Image)
    number, text, picture = (parts(box, kind)[0] for kind in kinds)
    seen = [number.value]
    for button in (back, forward, forward, back):
        button.click()
        seen.append(number.value)
    assert seen == [0, 0, 1, 1, 0]
    forward.click()
    assert text.value == views.text_so_far(make_trace(), 1, Words())
    assert picture.value == views.png(views.draw_round(round_view(make_trace(), 1, Words())))


def test_another_trace_starts_at_its_first_round():
    short = make_trace()
    short.rounds = short.rounds[1:]
    box = widgets.trace_widget({"long": make_trace(), "short": short, "again": make_trace()}, Words())
    number, which = parts(box, ipywidgets.BoundedIntText)[0], parts(box, ipywidgets.Dropdown)[0]
    for name, last in (("short", 0), ("long", 1), ("again", 1)):
        number.value = number.max
        which.value = name
        assert (number.value, number.max) == (0, last)
        trace = short if name == "short" else make_trace()
        assert parts(box, ipywidgets.HTML)[0].value == views.text_so_far(trace, 0, Words())


# ---- the dial


def test_the_dial_s_first_state_is_the_picture_drawn_beside_it():
    box, reading = widgets.speed_dial({"flat": None}), read_dial(alpha=0.8, gamma=5, c=0.1)
    assert parts(box, ipywidgets.HTML)[0].value == dial_line(reading)
    assert parts(box, ipywidgets.Image)[0].value == views.png(draw_dial(reading))


def test_every_control_of_the_dial_moves_the_reading():
    times = {1: 1.0, 100: 4.0}
    box = widgets.speed_dial({"flat": None, "here": times})
    alpha, c = parts(box, ipywidgets.FloatSlider)
    gamma, batch = parts(box, ipywidgets.IntSlider) + parts(box, ipywidgets.SelectionSlider)
    which, line = parts(box, ipywidgets.Dropdown)[0], parts(box, ipywidgets.HTML)[0]
    alpha.value, c.value, gamma.value = 0.6, 0.2, 3
    assert line.value == dial_line(read_dial(0.6, 3, 0.2))
    which.value, batch.value = "here", 8
    assert line.value == dial_line(read_dial(0.6, 3, 0.2, times, 8))


def test_the_dial_explains_a_pass_that_was_not_measured_and_can_be_put_right():
    box = widgets.speed_dial({"here": {1: 1.0, 20: 2.0}})
    batch, line = parts(box, ipywidgets.SelectionSlider)[0], parts(box, ipywidgets.HTML)[0]
    batch.value = 16
    assert "lower gamma or the batch" in line.value
    batch.value = 2
    assert "speed-up" in line.value and "lower" not in line.value


# ---- the knob


def knob_controls(box):
    """(rule, slider, number of the text)."""
    kinds = (ipywidgets.Dropdown, ipywidgets.SelectionSlider, ipywidgets.BoundedIntText)
    return tuple(parts(box, kind)[0] for kind in kinds)


def test_the_knob_s_first_state_is_what_is_drawn_beside_it():
    text = make_scored()
    box, readings = widgets.knob_widget([text]), read_knobs([text])
    line, shown = parts(box, ipywidgets.HTML)
    assert line.value == knob_line(readings["judge"][0.5], text)
    assert shown.value == knob_html(text, "judge", 0.5)
    assert parts(box, ipywidgets.Image)[0].value == views.png(draw_knob(readings, "judge", 0.5))


def test_the_slider_moves_the_kept_run_and_another_text_is_shown_whole():
    box = widgets.knob_widget([make_scored("first?"), make_scored("second?")])
    _, slider, number = knob_controls(box)
    line, shown = parts(box, ipywidgets.HTML)
    assert "2 of 2 tokens kept" in line.value
    slider.value = 0.9  # sigmoid(2) is .88
    assert "1 of 2 tokens kept" in line.value and "line-through" in shown.value and "first?" in shown.value
    number.value = 1
    assert "second?" in shown.value and "delta = 0.9" in line.value


def test_another_rule_brings_its_own_knob_at_its_strictest():
    box = widgets.knob_widget([make_scored()])
    rule, slider, _ = knob_controls(box)
    line = parts(box, ipywidgets.HTML)[0]
    for name in reversed(KNOBS):  # the first of them is there already
        (knob, values), rule.value = KNOBS[name], name
        assert slider.description == knob and [value for _, value in slider.options] == list(values)
        assert slider.value == values[0] and line.value.startswith(f"{knob} = {values[0]:g}. This text: 1 of 2")
        slider.index = len(values) - 1
        most = 1 if name == "fly" else 2  # FLy wants six tokens behind a mismatch
        assert line.value.startswith(f"{knob} = {values[-1]:g}. This text: {most} of 2")


# ---- the tree of a step


def step_controls(box):
    """(number of the text, place, nodes, next)."""
    kinds = (ipywidgets.BoundedIntText, ipywidgets.IntSlider, ipywidgets.SelectionSlider, ipywidgets.Button)
    return tuple(parts(box, kind)[0] for kind in kinds)


def shows(box, recorded: Recorded, at: int, capacity: int) -> bool:
    """Is the widget's line, text and picture that of this step?"""
    step = read_step(recorded, at, LogitSpec(capacity))
    line, shown = parts(box, ipywidgets.HTML)
    picture = parts(box, ipywidgets.Image)[0].value
    return (line.value, shown.value, picture) == (
        step_line(step),
        step_html(step, str),
        views.png(draw_step(step, str)),
    )


def test_the_step_s_first_state_is_what_is_drawn_beside_it():
    assert shows(widgets.step_widget(COPIES, str, 1, 4), COPIES[0], 1, 4)


def test_place_and_nodes_move_the_step():
    box = widgets.step_widget(COPIES, str, 1, 4)
    _, place, nodes, _ = step_controls(box)
    place.value = 2
    assert shows(box, COPIES[0], 2, 4)
    nodes.value = 64
    assert shows(box, COPIES[0], 2, 64)
    place.value = 1
    assert shows(box, COPIES[0], 1, 64)


def test_next_goes_to_where_the_round_ends_and_stays_inside_the_text():
    box = widgets.step_widget(COPIES, str, 0, 1)
    _, place, nodes, forward = step_controls(box)
    seen = []
    for capacity in (1, 4, 4):
        nodes.value = capacity
        forward.click()
        seen.append(place.value)
    assert seen == [1, 3, 3], "one token without a draft, then 8 and 9; the last place has nowhere to go"
    assert shows(box, COPIES[0], 3, 4)


def test_another_text_begins_at_its_beginning():
    box = widgets.step_widget(COPIES, str, 3, 4)
    number, place, _, _ = step_controls(box)
    for at, text in ((1, COPIES[1]), (0, COPIES[0])):
        place.value = place.max
        number.value = at
        assert (place.value, place.max) == (0, len(text.text) - 1) and shows(box, text, 0, 4)
