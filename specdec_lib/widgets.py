"""Small widgets: a recorded trace (lesson 02), two laws (03), speed (04), a knob (05), a tree (06), a memory (07).

Our own. Core ipywidgets only: controls, a pure function of the file that draws, a picture and a line of text.
Left out: what is computed and drawn, which is in those files and tested without a browser.
"""

import html
from collections.abc import Callable, Mapping, Sequence

import ipywidgets as widgets

from specdec_lib import views
from specdec_lib.dial import dial_line, draw_dial, read_dial
from specdec_lib.drafters import LogitSpec
from specdec_lib.experiments.recording import Recorded
from specdec_lib.filling import Filling, accepts, draw_filling, fates, filling_line, read_filling
from specdec_lib.forest import draw_step, step_html
from specdec_lib.guessing import read_step, step_line
from specdec_lib.knob import KNOBS, draw_knob, fates_html, knob_html, knob_line, read_knobs
from specdec_lib.render import round_view
from specdec_lib.scored import ScoredText
from specdec_lib.trace import Trace

DEFAULT_TARGET, DEFAULT_DRAFT = (5, 3, 2, 0), (2, 5, 1, 2)  # weights; the picture beside the widget has the same


def two_laws_widget(
    target_weights: Sequence[float] = DEFAULT_TARGET, draft_weights: Sequence[float] = DEFAULT_DRAFT
) -> widgets.VBox:
    """Sliders for the weights of p and q; overlap, residual and emitted law are redrawn when one is let go."""
    sliders = [
        [
            widgets.FloatSlider(
                value=value, min=0, max=10, step=0.5, description=f"{law}({name})", continuous_update=False
            )
            for name, value in zip("ABCD", weights, strict=False)
        ]
        for law, weights in (("p", target_weights), ("q", draft_weights))
    ]
    picture, line = widgets.Image(format="png"), widgets.HTML()
    picture.layout.max_width = "100%"

    def redraw(_=None) -> None:
        try:
            laws = views.two_laws(*([slider.value for slider in column] for column in sliders))
        except ValueError as error:
            line.value = html.escape(str(error))
            return
        picture.value = views.png(views.draw_two_laws(laws))
        line.value = html.escape(views.two_laws_line(laws))

    for slider in (slider for column in sliders for slider in column):
        slider.observe(redraw, names="value")
    redraw()
    return widgets.VBox([widgets.HBox([widgets.VBox(column) for column in sliders]), line, picture])


def trace_widget(traces: Mapping[str, Trace], tokenizer) -> widgets.VBox:
    """Step through recorded traces, by name: proposal, p and q, how each token fared, and the text so far."""
    names = list(traces)
    which = widgets.Dropdown(options=names, description="trace")
    number = widgets.BoundedIntText(min=0, max=len(traces[names[0]].rounds) - 1, description="round")
    back, forward = widgets.Button(description="back"), widgets.Button(description="next")
    picture, text = widgets.Image(format="png"), widgets.HTML()
    picture.layout.max_width = "100%"

    def redraw(_=None) -> None:
        trace = traces[which.value]
        picture.value = views.png(views.draw_round(round_view(trace, number.value, tokenizer)))
        text.value = views.text_so_far(trace, number.value, tokenizer)

    def choose(_=None) -> None:
        number.max = len(traces[which.value].rounds) - 1  # lowers the value too, where there are fewer rounds
        number.value = 0
        redraw()

    def step(by: int) -> None:
        number.value += by  # it keeps itself between its bounds

    number.observe(redraw, names="value")
    which.observe(choose, names="value")
    back.on_click(lambda _: step(-1))
    forward.on_click(lambda _: step(1))
    redraw()
    return widgets.VBox([widgets.HBox([which, back, number, forward]), picture, text])


def speed_dial(
    times: Mapping[str, Mapping[int, float] | None], alpha: float = 0.8, gamma: int = 5, c: float = 0.1
) -> widgets.VBox:
    """Sliders for alpha, gamma, c and batch, and a choice of T(k) by name (see read_dial); redrawn when let go."""
    rates = {"min": 0, "max": 1, "step": 0.01, "continuous_update": False}
    controls = [
        widgets.FloatSlider(value=alpha, description="alpha", **rates),
        widgets.IntSlider(value=gamma, min=1, max=32, description="gamma", continuous_update=False),
        widgets.FloatSlider(value=c, description="c", **rates),
        widgets.Dropdown(options=list(times), description="T(k)"),
        widgets.SelectionSlider(options=[2**i for i in range(11)], description="batch", continuous_update=False),
    ]
    picture, line = widgets.Image(format="png"), widgets.HTML()
    picture.layout.max_width = "100%"

    def redraw(_=None) -> None:
        alpha, gamma, c, name, batch = (control.value for control in controls)
        try:
            reading = read_dial(alpha, gamma, c, times[name], batch)
        except ValueError as error:
            line.value = html.escape(str(error))
            return
        picture.value = views.png(draw_dial(reading))
        line.value = html.escape(dial_line(reading))

    for control in controls:
        control.observe(redraw, names="value")
    redraw()
    return widgets.VBox([widgets.HBox([widgets.VBox(controls[:3]), widgets.VBox(controls[3:])]), line, picture])


def knob_widget(texts: Sequence[ScoredText], rule: str = "judge", knob: float = 0.5, number: int = 0) -> widgets.VBox:
    """A rule, its knob and one of the recorded texts: what is kept of it, and what the rule does to all of them."""
    readings = read_knobs(texts)
    which = widgets.Dropdown(options=list(KNOBS), value=rule, description="rule")
    slider = widgets.SelectionSlider(
        options=_settings(rule), value=knob, description=KNOBS[rule][0], continuous_update=False
    )
    text = widgets.BoundedIntText(value=number, min=0, max=len(texts) - 1, description="text")
    shown, line, picture = widgets.HTML(), widgets.HTML(), widgets.Image(format="png")
    picture.layout.max_width = "100%"

    def redraw(_=None) -> None:
        chosen, at = texts[text.value], (which.value, slider.value)
        shown.value = knob_html(chosen, *at)
        line.value = html.escape(knob_line(readings[at[0]][at[1]], chosen))
        picture.value = views.png(draw_knob(readings, *at))

    def choose(_=None) -> None:
        """Another rule: its own knob, at its strictest."""
        slider.unobserve(redraw, names="value")
        slider.options, slider.description = _settings(which.value), KNOBS[which.value][0]
        slider.index = 0
        slider.observe(redraw, names="value")
        redraw()

    which.observe(choose, names="value")
    for control in (slider, text):
        control.observe(redraw, names="value")
    redraw()
    return widgets.VBox([widgets.HBox([which, slider, text]), line, shown, picture])


CAPACITIES = (1, 2, 4, 8, 16, 24, 32, 48, 64)


def step_widget(texts: Sequence[Recorded], word: Callable[[int], str], at: int = 0, capacity: int = 24) -> widgets.VBox:
    """LogitSpec before any token of recorded texts, by number, with so many nodes: the text, the index, the tree.

    word: the text of a token. next goes to where the round ends.
    """
    text = widgets.BoundedIntText(min=0, max=len(texts) - 1, description="text")
    place = widgets.IntSlider(value=at, min=0, max=len(texts[0].text) - 1, description="place", continuous_update=False)
    nodes = widgets.SelectionSlider(options=CAPACITIES, value=capacity, description="nodes", continuous_update=False)
    forward = widgets.Button(description="next round")
    shown, line, picture = widgets.HTML(), widgets.HTML(), widgets.Image(format="png")
    picture.layout.max_width = "100%"
    emitted = 1

    def redraw(_=None) -> None:
        nonlocal emitted
        step = read_step(texts[text.value], place.value, LogitSpec(nodes.value))
        emitted = len(step.round.emitted)
        shown.value, line.value = step_html(step, word), html.escape(step_line(step))
        picture.value = views.png(draw_step(step, word))

    def choose(_=None) -> None:
        """Another text, from its beginning."""
        place.unobserve(redraw, names="value")
        place.value, place.max = 0, len(texts[text.value].text) - 1
        place.observe(redraw, names="value")
        redraw()

    def step_on(_) -> None:
        place.value = min(place.value + emitted, place.max)

    text.observe(choose, names="value")
    for control in (place, nodes):
        control.observe(redraw, names="value")
    forward.on_click(step_on)
    redraw()
    return widgets.VBox([widgets.HBox([text, place, nodes, forward]), line, shown, picture])


def _settings(rule: str) -> list[tuple[str, float]]:
    return [(f"{value:g}", value) for value in KNOBS[rule][1]]


def filling_widget(filling: Filling, texts: Sequence[ScoredText], number: int = 0) -> widgets.VBox:
    """Prompts seen, lambda and tau, and one of the recorded texts: what is kept of it, the memory, what was decoded."""
    settings = (("prompts", filling.lengths), ("lambda", filling.lambdas), ("tau", filling.taus))
    sliders = [
        widgets.SelectionSlider(
            options=[(f"{value:g}", value) for value in values], description=name, continuous_update=False
        )
        for name, values in settings
    ]
    text = widgets.BoundedIntText(value=number, min=0, max=len(texts) - 1, description="text")
    shown, line, picture = widgets.HTML(), widgets.HTML(), widgets.Image(format="png")
    picture.layout.max_width = "100%"

    def redraw(_=None) -> None:
        at, chosen = [slider.value for slider in sliders], texts[text.value]
        seen, *knobs = at
        shown.value = fates_html(chosen, fates(chosen, accepts(chosen, filling.memory(seen), *knobs)))
        line.value = html.escape(filling_line(read_filling(filling, texts, *at), filling, len(texts)))
        picture.value = views.png(draw_filling(filling, *at))

    for control in (*sliders, text):
        control.observe(redraw, names="value")
    redraw()
    return widgets.VBox([widgets.HBox([*sliders, text]), line, shown, picture])
