"""What widgets and lessons 02 and 03 draw: two laws and what is emitted of them, and one round of a trace.

Follows Leviathan et al. 2023 (arXiv 2211.17192), section 2.3 and appendix A.1, for the picture of two laws.
Left out: controls (widgets.py), and rules other than the lossless one.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure

from specdec_lib.colours import COLOURS
from specdec_lib.render import NOT_REACHED, RoundView, legend_html, pieces, shown_token, text_html
from specdec_lib.trace import Trace
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.lossless import accept_and_recover

PALE = "#AAAAAA"  # of what was not reached


# ---- two laws --------------------------------------------------------------------------------------------------


@dataclass
class TwoLaws:
    """p, q and what the lossless rule makes of them; every field is (vocabulary,), float64.

    accept: the chance that each token, once drafted, is accepted. residual: the law of the recovered token.
    emitted: the law of the emitted token, summed over everything that can happen.
    """

    target_probs: torch.Tensor
    draft_probs: torch.Tensor
    accept: torch.Tensor
    residual: torch.Tensor
    emitted: torch.Tensor

    @property
    def alpha(self) -> float:
        """Chance that a drafted token is accepted: sum min(p, q)."""
        return float(torch.minimum(self.target_probs, self.draft_probs).sum())


def two_laws(target_weights: Sequence[float], draft_weights: Sequence[float]) -> TwoLaws:
    """Weights, scaled to sum 1, through the library's own rule. ValueError for negative or all-zero weights."""
    p, q = (_scaled(weights, whose) for weights, whose in ((target_weights, "target"), (draft_weights, "draft")))
    accept, emitted, residual = torch.zeros_like(p), torch.zeros_like(p), p
    for x in torch.nonzero(q).flatten().tolist():  # what can be drafted
        chance, laws = accept_and_recover(DraftTree.chain([0, x], draft_laws=q[None]), torch.stack([p, p]))
        accept[x], residual = chance[1], laws[0]
        emitted[x] += q[x] * chance[1]
        emitted += q[x] * (1 - chance[1]) * residual
    return TwoLaws(p, q, accept, residual, emitted)


def _scaled(weights: Sequence[float], whose: str) -> torch.Tensor:
    found = torch.tensor(list(weights), dtype=torch.float64)
    if found.min() < 0 or found.sum() <= 0:
        raise ValueError(f"the {whose}'s weights must not be negative, and at least one must be above 0")
    return found / found.sum()


def draw_two_laws(laws: TwoLaws, labels: Sequence[str] = "ABCD") -> Figure:
    """Three panels: p and q with their overlap; the residual; the emitted law, part by part, against p."""
    p, q = laws.target_probs.numpy(), laws.draft_probs.numpy()
    both, rest = torch.minimum(laws.target_probs, laws.draft_probs).numpy(), laws.residual.numpy()
    x, names = range(len(p)), list(labels)[: len(p)]
    fig, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained", sharey=True)
    _outlined_bars(left, p, q, both)
    left.set_title(f"overlap = alpha = {laws.alpha:.3f}")
    middle.bar(x, rest, color=COLOURS["recovered"], width=0.8)
    middle.set_title("a rejection is replaced from here")
    right.bar(x, both, color=COLOURS["accepted"], width=0.8, label="accepted")
    right.bar(x, (1 - laws.alpha) * rest, bottom=both, color=COLOURS["recovered"], width=0.8, label="recovered")
    right.plot(x, p, "D", color=COLOURS["target"], label="p, target", markersize=8)
    right.set_title("emitted = p")
    for ax, what in ((left, "probability"), (middle, ""), (right, "")):
        ax.set(xticks=x, xticklabels=names, xlabel="token", ylabel=what, ylim=(0, 1.05))
    middle.text(0.5, 0.93, "max(p - q, 0), scaled to sum 1", transform=middle.transAxes, ha="center", va="top")
    for ax in (left, right):
        ax.legend(loc="upper right", fontsize=9)
    return fig


def draw_overlap(ax, target_probs: Sequence[float], draft_probs: Sequence[float], labels: Sequence[str]) -> None:
    """One panel: p and q as bars over each other, what they share filled. alpha is the filled area."""
    both = [min(a, b) for a, b in zip(target_probs, draft_probs, strict=True)]
    _outlined_bars(ax, target_probs, draft_probs, both)
    ax.set(xticks=range(len(both)), ylim=(0, 1.05))
    ax.set_xticklabels(labels, rotation=35, ha="right", fontsize=9)


def _outlined_bars(ax, p, q, both) -> None:
    x = range(len(both))
    ax.bar(x, both, color=COLOURS["accepted"], width=0.8, label="min(p, q)")
    ax.bar(x, p, fill=False, edgecolor=COLOURS["target"], linewidth=2.2, width=0.8, label="p, target")
    ax.bar(x, q, fill=False, edgecolor=COLOURS["draft"], linewidth=2.2, width=0.7, linestyle="--", label="q, draft")


def two_laws_line(laws: TwoLaws) -> str:
    """The figures under the picture, as one line of text."""
    off = float((laws.emitted - laws.target_probs).abs().max())
    chances = ", ".join(f"{chance:.2f}" for chance in laws.accept.tolist())
    return (
        f"alpha = {laws.alpha:.3f} = 1 - total variation; accepted once drafted: {chances}; "
        f"emitted and p differ by {'less than 1e-12' if off < 1e-12 else format(off, '.1e')}"
    )


# ---- one round of a trace --------------------------------------------------------------------------------------


def draw_round(view: RoundView) -> Figure:
    """p and q of every proposed token as bars; each token's name in the colour of how it fared."""
    nodes = view.nodes
    fig, ax = plt.subplots(figsize=(10, 3.2), layout="constrained")
    laws = (
        ("p, target", COLOURS["target"], -0.2, [node.target_prob for node in nodes]),
        ("q, draft", COLOURS["draft"], 0.2, [node.draft_prob for node in nodes]),
    )
    for label, colour, shift, values in laws:
        bars = ax.bar([i + shift for i in range(len(nodes))], values, width=0.4, color=colour, label=label)
        for bar, node in zip(bars, nodes, strict=True):
            bar.set_alpha(0.25 if node.outcome == NOT_REACHED else 1.0)
    names = [f"{node.branch}{node.text.strip() or shown_token(node.text)}\n{node.outcome}" for node in nodes]
    ax.set(title=view.summary, ylim=(0, 1.25), yticks=[0, 0.5, 1], ylabel="probability of the token")
    ax.set_xticks(range(len(nodes)), names, fontsize=9)
    for label, node in zip(ax.get_xticklabels(), nodes, strict=True):
        label.set_color(COLOURS.get(node.outcome, "#777777"))
    if nodes:
        ax.legend(loc="upper right", ncols=2, fontsize=9)
    return fig


def draw_rows(drafted: Sequence[str], best: Sequence[str]) -> Figure:
    """Drafted words above the target's argmax at each place: kept up to the first mismatch.

    best has one word more than drafted; best[i] is what the target says after i drafted words.
    """
    accepted = next((i for i, (x, y) in enumerate(zip(drafted, best, strict=False)) if x != y), len(drafted))
    last = "bonus" if accepted == len(drafted) else "recovered"
    fig, ax = plt.subplots(figsize=(10, 2.4), layout="constrained")
    for i, word in enumerate(drafted):
        fate = "accepted" if i < accepted else "rejected"
        _boxed(ax, i, 1, word, COLOURS[fate] if i <= accepted else PALE)
    for i, word in enumerate(best):
        _boxed(ax, i, 0, word, COLOURS[last] if i == accepted else COLOURS["target"] if i < accepted else PALE)
    for y, name in ((1, "drafted"), (0, "target's argmax")):
        ax.text(-0.7, y, name, ha="right", va="center")
    ax.text(accepted, -0.8, f"{last}: emitted after the {accepted} accepted", ha="center", color=COLOURS[last])
    ax.set(xlim=(-2.2, max(len(best), 8) - 0.4), ylim=(-1, 1.5))
    ax.set_title("Kept up to the first mismatch; what is behind it is thrown away")
    ax.axis("off")
    return fig


def _boxed(ax, x: float, y: float, word: str, colour: str) -> None:
    box = {"boxstyle": "round", "facecolor": "white", "edgecolor": colour, "linewidth": 2}
    ax.text(x, y, word, ha="center", va="center", fontsize=10, color="#888888" if colour == PALE else "black", bbox=box)


def text_so_far(trace: Trace, index: int, tokenizer) -> str:
    """The emitted text up to and including round `index`, coloured by kind, as HTML."""
    seen = [piece for piece in pieces(trace, tokenizer) if piece.round <= index]
    return f'<div style="white-space:pre-wrap;line-height:1.9">{text_html(seen)}</div>{legend_html()}'


def png(fig: Figure) -> bytes:
    """A figure as PNG bytes; the figure is closed, so that pictures do not pile up."""
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png")
    plt.close(fig)
    return buffer.getvalue()
