"""What lesson 05 draws: where the target rejects what the checker calls right, and how its state reacts to an error.

Follows Judge Decoding (Bachmann et al. 2025, arXiv 2501.19309): alignment against correctness; the pictures are ours.
Left out: training a head (judge/), the slider (knob.py).
"""

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure

from specdec_lib.colours import COLOURS
from specdec_lib.judge.train import is_digit
from specdec_lib.pocket.checker import AFTER, WRONG
from specdec_lib.scored import ScoredText

AGREES, OTHER_WORDS, WRONG_AGREED, WRONG_REJECTED, BEHIND = (
    "the target's own choice",
    "rejected, and right",
    "wrong, and the target's choice",
    "rejected, and wrong",
    "behind an error",
)
_STYLES = {
    AGREES: f"background:{COLOURS['accepted']}26;border-bottom:2px solid {COLOURS['accepted']}",
    OTHER_WORDS: f"background:{COLOURS['rescued']}66;border-bottom:2px solid {COLOURS['rescued']};font-weight:600",
    WRONG_AGREED: "color:#B00000;font-weight:700;outline:2px dashed #B00000",
    WRONG_REJECTED: "color:#B00000;font-weight:700;outline:2px solid #B00000",
    BEHIND: "color:#777",
}


def alignment(text: ScoredText) -> list[str]:
    """For each token, how exact match and the checker see it: one of the five words above."""
    found = []
    for rank, label in zip(text.rank, text.labels, strict=True):
        if label == AFTER:
            found.append(BEHIND)
        elif label == WRONG:
            found.append(WRONG_AGREED if rank == 0 else WRONG_REJECTED)
        else:
            found.append(AGREES if rank == 0 else OTHER_WORDS)
    return found


def alignment_html(texts: Sequence[ScoredText]) -> str:
    """Texts whose every token shows how exact match and the checker see it; point at one to see the target's choice."""
    blocks = []
    for text in texts:
        spans = [
            f'<span title="{html.escape(kind)}; the target would write{html.escape(best)}" style="{_STYLES[kind]}">'
            f"{html.escape(token)}</span>"
            for token, best, kind in zip(text.tokens, text.best, alignment(text), strict=True)
        ]
        blocks.append(
            f'<div style="color:#555">{html.escape(text.question)}</div>'
            f'<div style="white-space:pre-wrap;margin-bottom:.6em">{"".join(spans)}</div>'
        )
    legend = " ".join(f'<span style="{style}">{html.escape(kind)}</span>' for kind, style in _STYLES.items())
    return (
        f'<div style="line-height:1.9;max-width:60em">{"".join(blocks)}<div style="font-size:85%">{legend}</div></div>'
    )


def draw_two_rows(tokens: Sequence[str], judged: int) -> Figure:
    """Which row verifies a token and which one judges it. judged: the index of the token in question, above 0."""
    fig, ax = plt.subplots(figsize=(9, 2.9), layout="constrained")
    for i, token in enumerate(tokens):
        colour = COLOURS["draft"] if i == judged else "#AAAAAA"
        box = {"boxstyle": "round", "facecolor": "white", "edgecolor": colour, "linewidth": 2}
        ax.text(i, 0, token, ha="center", va="center", fontsize=12, bbox=box)
        ax.text(i, 1, f"row {i}", ha="center", va="center", fontsize=10, color="#555555")
        ax.annotate("", (i, 0.82), (i, 0.25), arrowprops={"arrowstyle": "->", "color": "#AAAAAA"})
    before, own = judged - 1, judged
    for row, colour, words, x, side in (
        (before, COLOURS["target"], f"logits of row {before}:\nwhat should come next?\nthey verify", -1.3, "right"),
        (own, COLOURS["accepted"], f"hidden state of row {own}:\nwhat do I make of it?\nit judges", 1.3, "left"),
    ):
        ax.annotate(
            words, (row, 1.2), (judged - 0.5 + x, 2.0), ha=side, va="center", fontsize=11, color=colour,
            arrowprops={"arrowstyle": "<-", "color": colour, "linewidth": 2},
        )  # fmt: skip
    ax.text(judged, -0.62, "the token in question", ha="center", color=COLOURS["draft"], fontsize=11)
    ax.set(xlim=(-0.7, len(tokens) - 0.3), ylim=(-0.9, 2.6))
    ax.axis("off")
    return fig


def draw_reaction(components: torch.Tensor, logits: torch.Tensor, right: torch.Tensor, title: str) -> Figure:
    """Two views of the same states. components (tokens, 2): the two largest directions of variation.

    logits (tokens,): the head's. right (tokens,) bool: the checker's word.
    """
    fig, (left, right_ax) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    kinds = (
        (right, COLOURS["accepted"], "right token", 6, 0.25),
        (~right, COLOURS["rejected"], "wrong token", 16, 0.9),
    )
    for chosen, colour, name, size, alpha in kinds:
        x, y = components[chosen].T.numpy()
        left.scatter(x, y, s=size, color=colour, alpha=alpha, label=f"{name} ({int(chosen.sum()):,})", linewidths=0)
        right_ax.hist(
            logits[chosen].numpy(), bins=40, range=(float(logits.min()), float(logits.max())), density=True,
            color=colour, alpha=0.6, label=name,
        )  # fmt: skip
    left.set(xlabel="first principal direction", ylabel="second", title="Where states vary most")
    left.legend(fontsize=10, markerscale=1.5)
    right_ax.axvline(0, color="black", linestyle=":", label="score 0.5")
    right_ax.set(
        xlabel="w.e + b, the head's logit", ylabel="share of tokens, per unit", title="Along the head's direction"
    )
    right_ax.legend(fontsize=10)
    fig.suptitle(title, weight="bold")
    return fig


@dataclass(frozen=True)
class Along:
    """A text in at most two versions.

    tokens: the labels of the axis; scores: {version: one a token}; planted: where the versions part.
    """

    title: str
    tokens: Sequence[str]
    scores: Mapping[str, Sequence[float]]
    planted: int


def draw_along(texts: Sequence[Along], delta: float) -> Figure:
    """Scores of texts, token by token, a panel a text."""
    fig, axes = plt.subplots(1, len(texts), figsize=(13, 4.2), layout="constrained", sharey=True, squeeze=False)
    for ax, text in zip(axes[0], texts, strict=True):
        _draw_one_along(ax, text, delta)
    axes[0][0].set_ylabel("score: sigmoid(w.e + b)")
    axes[0][0].legend(fontsize=10, loc="lower left")
    return fig


def _draw_one_along(ax, text: Along, delta: float) -> None:
    for (name, values), colour, mark in zip(
        text.scores.items(), (COLOURS["accepted"], COLOURS["rejected"]), ("o-", "s-"), strict=False
    ):
        ax.plot(range(len(values)), values, mark, color=colour, label=name, markersize=6)
    ax.axhline(delta, color="black", linestyle=":", label=f"delta = {delta:g}")
    ax.axvspan(text.planted - 0.5, text.planted + 0.5, color=COLOURS["draft"], alpha=0.25)
    ax.set(ylim=(-0.04, 1.06), xlim=(-0.6, len(text.tokens) - 0.4), title=text.title)
    ax.set_xticks(range(len(text.tokens)), text.tokens, rotation=60, ha="right", rotation_mode="anchor", fontsize=10)


def share_table(texts: Sequence[ScoredText]) -> list[dict]:
    """Tokens up to the first error by what exact match and the checker say of them: rows for notebook.table."""
    kinds = [kind for text in texts for kind in alignment(text)]
    words = (AGREES, OTHER_WORDS, WRONG_REJECTED, WRONG_AGREED)
    return [{"a token of the draft is": kind, "times": kinds.count(kind)} for kind in words]


def rejected_tokens(texts: Sequence[ScoredText]) -> tuple[list[float], list[float], list[bool], list[bool]]:
    """The tokens up to the first error that exact match rejects: log10 of p(x) / max p, the head's logit, whether it is
    no digit, and whether it is right.
    """
    gaps, logits, words, right = [], [], [], []
    for text in texts:
        for i, kind in enumerate(alignment(text)):
            if kind in (OTHER_WORDS, WRONG_REJECTED):
                gaps.append((text.log_prob[i] - text.log_max[i]) / math.log(10))
                logits.append(text.judge[i])
                words.append(not is_digit(text.tokens[i]))
                right.append(kind == OTHER_WORDS)
    return gaps, logits, words, right


def draw_two_rulers(texts: Sequence[ScoredText]) -> Figure:
    """The tokens that exact match rejects, right and wrong ones, on two scales: p(x) / max p, and the head's logit."""
    fig, axes = plt.subplots(1, 2, figsize=(11, 3.2), layout="constrained", sharey=True)
    gaps, logits, _, right = rejected_tokens(texts)
    for ax, values in zip(axes, (gaps, logits), strict=True):
        for height, (wanted, colour) in enumerate(((True, "accepted"), (False, "rejected"))):
            x = [value for value, is_right in zip(values, right, strict=True) if is_right == wanted]
            spread = [height + 0.3 * math.sin(2.4 * i) for i in range(len(x))]  # so that dots do not hide others
            ax.scatter(x, spread, s=18, alpha=0.45 if wanted else 0.9, color=COLOURS[colour], lw=0)
    axes[0].set(
        xlabel="log10 of p(x) / max p, one row before", title="How likely the target found it",
        yticks=[0, 1], yticklabels=["right,\nrejected", "wrong,\nrejected"], ylim=(-0.6, 1.6),
    )  # fmt: skip
    axes[1].set(xlabel="the head's logit, own row", title="What its state says once it is read")
    return fig
