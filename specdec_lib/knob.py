"""The knob: what a lossy rule keeps of recorded full answers of the draft as its knob moves, and what it lets through.

Our own; the rules are those of verifiers/ at temperature 0, read off scored texts (scored.py), so no model runs.
Left out: controls (widgets.py), and decoding: there the draft goes on from the target's token, here from its own text.
"""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from specdec_lib.colours import COLOURS
from specdec_lib.judge.train import is_digit
from specdec_lib.plots import figure
from specdec_lib.pocket.checker import AFTER, WRONG
from specdec_lib.scored import ScoredText

GAMMA = 8
# rule: (its knob, values from the strictest to the laxest); every first value but typical's is the standard rule.
# words is no rival but a control: what is no digit passes, whatever the models make of it.
KNOBS = {
    "judge": ("delta", (1.0, 0.999, 0.99, 0.98, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.0)),
    "topk": ("k", (1, 2, 3, 4, 5, 8, 10, 20, 50)),
    "lenience": ("lenience", (1.0, 0.5, 0.3, 0.125, 0.1, 0.05, 0.03, 0.01, 0.005, 0.003, 0.001, 0.0003, 0.0001)),
    "typical": ("epsilon", (0.3, 0.2, 0.09, 0.05, 0.03, 0.01, 0.005, 0.003, 0.001, 0.0003, 0.0001)),
    "fly": ("entropy", (math.inf, 1.5, 1.2, 1.0, 0.8, 0.6, 0.4, 0.2, 0.1, 0.05, 0.0)),
    "words": ("words", (0, 1)),
}
FLY_WINDOW = 6
TYPICAL_SCALE = 0.3  # Medusa's second constant


def accepts(text: ScoredText, rule: str, knob: float) -> list[bool]:
    """Which tokens of a text the rule would accept at temperature 0, each in its own place.

    judge: the argmax, or score > delta. topk: rank < k. lenience: p(x) >= l max p. typical: the argmax, or
    p(x) > min(epsilon, 0.3 exp(-entropy)). fly: the argmax, or entropy >= knob and the next 6 tokens are there and
    argmaxes; the knob is in nats, the paper's threshold times log of the vocabulary's size. words: the argmax, or, at
    1, what is no digit. ValueError for another rule.
    """
    if rule == "judge":
        passes = [score_above(logit, knob) for logit in text.judge]
    elif rule == "topk":
        passes = [rank < knob for rank in text.rank]
    elif rule == "lenience":
        gaps = [own - best for own, best in zip(text.log_prob, text.log_max, strict=True)]
        passes = [knob < 1 and gap >= math.log(knob) for gap in gaps]  # at l = 1 a tie does not pass, as in decoding
    elif rule == "typical":
        bars = [min(knob, TYPICAL_SCALE * math.exp(-entropy)) for entropy in text.entropy]
        passes = [math.exp(own) > bar for own, bar in zip(text.log_prob, bars, strict=True)]
    elif rule == "fly":
        agree = [leading_run([rank == 0 for rank in text.rank[i + 1 :]]) for i in range(len(text.rank))]
        passes = [h >= knob and run >= FLY_WINDOW for h, run in zip(text.entropy, agree, strict=True)]
    elif rule == "words":
        passes = [knob == 1 and not is_digit(token) for token in text.tokens]
    else:
        raise ValueError(f"unknown rule {rule!r}; choose one of {', '.join(KNOBS)}")
    return [rank == 0 or passed for rank, passed in zip(text.rank, passes, strict=True)]


def score_above(logit: float, delta: float) -> bool:
    """sigmoid(logit) > delta, on the scale of logits: delta 0 accepts everything and 1 nothing, without rounding."""
    if delta <= 0 or delta >= 1:
        return delta <= 0
    return logit > math.log(delta / (1 - delta))


def leading_run(accepted: Sequence[bool]) -> int:
    """How many tokens are accepted before the first that is not."""
    return next((i for i, yes in enumerate(accepted) if not yes), len(accepted))


def kept_by_round(accepted: Sequence[bool], gamma: int, looks: Sequence[int] | None = None) -> list[int]:
    """Kept tokens of each round, if every round's draft were the next gamma tokens of this very text.

    After the kept run one token is the target's own; the next round begins behind its place. looks: how many tokens of
    its own round each token needs behind it to be accepted; 0 unless given.
    """
    rounds, at = [], 0
    looks = looks or [0] * len(accepted)
    while at < len(accepted):
        end = at + gamma
        inside = [yes and i + looks[i] < end for i, yes in enumerate(accepted[at:end], start=at)]
        rounds.append(leading_run(inside))
        at += rounds[-1] + 1
    return rounds


@dataclass(frozen=True)
class KnobReading:
    """What a rule does at one setting of its knob, over all texts.

    kept_run: mean leading run of a whole text. kept_round: mean kept a round along the texts (kept_by_round), each up
    to its first wrong token. wrong_in_run: share of texts whose leading run holds a wrong token. wrong_accepted: share
    of texts whose first wrong token the rule accepts, be it behind a token that it rejects. wrong: share of texts
    that hold a wrong token.
    """

    rule: str
    knob: float
    kept_run: float
    kept_round: float
    wrong_in_run: float
    wrong_accepted: float
    wrong: float
    texts: int


def read_knob(texts: Sequence[ScoredText], rule: str, knob: float, gamma: int = GAMMA) -> KnobReading:
    """ValueError for no texts or an unknown rule."""
    if not texts:
        raise ValueError("there are no texts to read; give at least one")
    runs, rounds, in_run, accepted_wrong = [], [], 0, 0
    for text in texts:
        accepted, wrong = accepts(text, rule, knob), text.first_wrong
        runs.append(leading_run(accepted))
        looks = [FLY_WINDOW if rule == "fly" and rank else 0 for rank in text.rank]
        rounds += kept_by_round(accepted if wrong is None else accepted[: wrong + 1], gamma, looks)
        if wrong is not None:
            in_run += runs[-1] > wrong
            accepted_wrong += accepted[wrong]
    n = len(texts)
    wrong = sum(text.first_wrong is not None for text in texts)
    return KnobReading(
        rule, knob, sum(runs) / n, sum(rounds) / len(rounds), in_run / n, accepted_wrong / n, wrong / n, n
    )


def read_knobs(texts: Sequence[ScoredText]) -> dict[str, dict[float, KnobReading]]:
    """Every rule at every setting of its knob: {rule: {knob: reading}}."""
    return {rule: {value: read_knob(texts, rule, value) for value in values} for rule, (_, values) in KNOBS.items()}


def knob_line(reading: KnobReading, text: ScoredText) -> str:
    """The figures under the slider, as one line of text."""
    r, kept = reading, leading_run(accepts(text, reading.rule, reading.knob))
    return (
        f"{KNOBS[r.rule][0]} = {r.knob:g}. This text: {kept} of {len(text.tokens)} tokens kept. "
        f"All {r.texts}: kept run {r.kept_run:.1f}; {r.kept_round:.2f} a round of {GAMMA}; a wrong token in the kept "
        f"run of {r.wrong_in_run:.0%}; a wrong token let through sooner or later in {r.wrong_accepted:.0%}"
    )


def draw_knob(readings: Mapping[str, Mapping[float, KnobReading]], rule: str, knob: float) -> Figure:
    """Every rule's curve as its knob moves: kept a round against the share of texts in which a wrong token passes.

    readings: as read_knobs gives them.
    """
    here = readings[rule][knob]
    fig, ax = figure(
        f"{rule}, {KNOBS[rule][0]} = {knob:g}: {here.kept_round:.2f} kept, a wrong token in {here.wrong_accepted:.0%}",
        f"mean kept a round of {GAMMA}, along the draft's own texts",
        "texts in which a wrong\ntoken passes, %",
        (8, 3.8),
    )
    for name, curve in readings.items():
        ax.plot(
            [r.kept_round for r in curve.values()], [100 * r.wrong_accepted for r in curve.values()], "o-",
            color=COLOURS[name], label=name, markersize=4, linewidth=3 if name == rule else 1.5,
        )  # fmt: skip
    ax.plot(here.kept_round, 100 * here.wrong_accepted, "D", color="black", markersize=11, label="here", zorder=5)
    ax.axhline(100 * here.wrong, color=COLOURS["autoregressive"], linestyle=":", label="texts with a wrong token")
    ax.set(xlim=(0, GAMMA + 0.4), ylim=(-2, 120 * here.wrong + 2))
    ax.legend(fontsize=10, loc="upper left")
    return fig


def knob_html(text: ScoredText, rule: str, knob: float) -> str:
    """A text in colours: the kept run, the token that ends it with what the target writes instead, and the rest."""
    run = leading_run(accepts(text, rule, knob))
    fates = [
        "not reached" if i > run else "rejected" if i == run else "accepted" if token == best else "rescued"
        for i, (token, best) in enumerate(zip(text.tokens, text.best, strict=True))
    ]
    return fates_html(text, fates)


def fates_html(text: ScoredText, fates: Sequence[str]) -> str:
    """A text in the colours of its tokens' fates: accepted, rescued, rejected or not reached, one a token.

    Behind each rejected token stands what the target writes in its place.
    """
    pieces = []
    for token, best, label, fate in zip(text.tokens, text.best, text.labels, fates, strict=True):
        pieces.append(_token(token, fate, label))
        if fate == "rejected":
            pieces.append(_token(best, "recovered", ""))
    legend = " ".join(
        f'<span style="{style}">{name}</span>'
        for name, style in (
            ("kept: the target's own choice", _STYLES["accepted"]),
            ("kept by the rule alone", _STYLES["rescued"]),
            ("rejected", _STYLES["rejected"]),
            ("the target's token in its place", _STYLES["recovered"]),
            ("not reached", _STYLES["not reached"]),
            ("wrong, by the checker", _WRONG),
        )
    )
    return (
        f'<div style="max-width:60em;line-height:1.9"><div style="color:#555">{html.escape(text.question)}</div>'
        f'<div style="white-space:pre-wrap">{"".join(pieces)}</div><div style="font-size:85%">{legend}</div></div>'
    )


_STYLES = {
    kind: f"background:{COLOURS[kind]}{tint};border-bottom:2px solid {COLOURS[kind]}{more}"
    for kind, tint, more in (
        ("accepted", "33", ""),
        ("rescued", "55", ""),
        ("rejected", "55", ";text-decoration:line-through"),
        ("recovered", "00", ";font-style:italic"),
    )
} | {"not reached": "color:#777"}
_WRONG = "color:#B00000;font-weight:700;outline:2px solid #B00000"


def _token(token: str, fate: str, label: str) -> str:
    style = _STYLES[fate] + (f";{_WRONG}" if label == WRONG else ";opacity:.6" if label == AFTER else "")
    title = fate if label in ("", "right") else f"{fate}, {label}"
    return f'<span title="{title}" style="{style}">{html.escape(token)}</span>'
