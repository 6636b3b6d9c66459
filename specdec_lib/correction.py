"""What lesson 07 draws: mismatches of recorded texts, how often each was seen before, how near to the gate it is.

Follows Calibrated Speculative Decoding (Zhou et al. 2026, arXiv 2604.13634), memory and gate; the pictures are ours.
Left out: the rule (verifiers/csd.py), the memory as it fills (filling.py).
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from specdec_lib.colours import COLOURS
from specdec_lib.pocket.checker import AFTER, WRONG
from specdec_lib.scored import ScoredText

NEVER = 0.5  # where a count of 0 stands on a logarithmic axis
RIGHT_LOOK, WRONG_LOOK = (COLOURS["accepted"], "o", "right"), ("#B00000", "X", "wrong")  # colour, mark, word


@dataclass(frozen=True)
class Mismatch:
    """A drafted token that is not the target's argmax. gap: z[x] - z[t*], nats. right: the checker's word for it."""

    draft: str
    target: str
    gap: float
    right: bool


def mismatches(texts: Sequence[ScoredText]) -> list[Mismatch]:
    """Those of the texts, each up to and with its first wrong token."""
    return [
        Mismatch(token, best, own - top, label != WRONG)
        for text in texts
        for token, best, label, rank, own, top in zip(
            text.tokens, text.best, text.labels, text.rank, text.log_prob, text.log_max, strict=True
        )
        if rank > 0 and label != AFTER
    ]


def patterns(found: Sequence[Mismatch]) -> list[dict]:
    """A row a directed pair, the most frequent first, for notebook.table: draft said, target wanted, times, right."""
    times = Counter((m.draft, m.target) for m in found)
    right = Counter((m.draft, m.target) for m in found if m.right)
    return [
        {"draft said": x.strip(), "target wanted": best.strip(), "times": n, "right": right[x, best]}
        for (x, best), n in times.most_common()
    ]


def share_of_top(times: Iterable[int], share: float = 0.2) -> float:
    """Share of all that the most frequent `share` of the patterns make, the last one counted in part.

    ValueError for no patterns.
    """
    ordered = sorted(times, reverse=True)
    if not ordered:
        raise ValueError("there are no patterns to count; give at least one")
    whole, rest = divmod(share * len(ordered), 1)
    top = sum(ordered[: int(whole)]) + (rest * ordered[int(whole)] if int(whole) < len(ordered) else 0)
    return top / sum(ordered)


def draw_gate(found: Sequence[Mismatch], taus: Sequence[float] = (0.1, 0.01, 0.001)) -> Figure:
    """Every mismatch by its logit gap, right ones above wrong ones, with the lines that some taus draw."""
    fig, ax = plt.subplots(figsize=(10, 3.4), layout="constrained")
    for height, (colour, mark, word) in ((1, RIGHT_LOOK), (0, WRONG_LOOK)):
        gaps = [m.gap for m in found if m.right == (word == "right")]
        spread = [height + 0.3 * math.sin(2.4 * i) for i in range(len(gaps))]  # so that marks do not hide others
        ax.scatter(gaps, spread, s=26, marker=mark, color=colour, alpha=0.5 if height else 0.9, linewidths=0)
    for tau in taus:
        ax.axvline(math.log(tau), color="black", linestyle=":")
        ax.text(math.log(tau), 1.55, f"tau {tau:g}", ha="center", fontsize=10, backgroundcolor="white")
    ax.set(
        xlabel="gap z[x] - z[t*] of the raw logits, nats (what lies right of a line passes)",
        yticks=[1, 0], yticklabels=["right,\nrejected", "wrong,\nrejected"], ylim=(-0.5, 1.75), xlim=(None, 0.3),
    )  # fmt: skip
    right, wrong = ([m for m in found if m.right is kind] for kind in (True, False))
    said = [
        f"tau {tau:g}: {sum(m.gap >= math.log(tau) for m in right)} right, "
        f"{sum(m.gap >= math.log(tau) for m in wrong)} wrong"
        for tau in taus
    ]
    ax.set_title(f"What passes, of {len(right)} right and {len(wrong)} wrong tokens\n{'; '.join(said)}")
    return fig


def draw_two_locks(
    found: Sequence[Mismatch], counts: Mapping[tuple[str, str], int], lambda_: float, tau: float
) -> Figure:
    """Every mismatch by how often its pair is remembered and by its gap; what lies above both lines is rescued.

    counts: of (draft's word, target's word). lambda_ and tau above 0: no line could be drawn.
    """
    fig, ax = plt.subplots(figsize=(10, 4.6), layout="constrained")
    rescued = dict.fromkeys((True, False), 0)
    for colour, mark, word in (RIGHT_LOOK, WRONG_LOOK):
        mine = [m for m in found if m.right == (word == "right")]
        x = [_spread(counts.get((m.draft, m.target), 0), i, lambda_) for i, m in enumerate(mine)]
        ax.scatter(
            x, [m.gap for m in mine], s=34, marker=mark, color=colour, alpha=0.5 if word == "right" else 0.95,
            linewidths=0, label=f"{word}, by the checker ({len(mine)})", zorder=3,
        )  # fmt: skip
        passed = [counts.get((m.draft, m.target), 0) > lambda_ and m.gap >= math.log(tau) for m in mine]
        rescued[word == "right"] = sum(passed)
    ax.set(xscale="log", xlabel="times this very pair was rejected before", ylabel="gap z[x] - z[t*], nats")
    low, high = ax.get_ylim()[0], 0.4
    end = max([*counts.values(), lambda_, 1]) * 2
    ax.set(ylim=(low, high))
    ax.axvline(lambda_ + 0.5, color="black", linestyle="--")
    ax.axhline(math.log(tau), color="black", linestyle="--")
    ax.fill_between([lambda_ + 0.5, end], math.log(tau), high, color=COLOURS["rescued"], alpha=0.25, lw=0)
    ax.text(lambda_ + 0.5, low, f" lambda {lambda_:g}", va="bottom", fontsize=10)
    ax.text(end, math.log(tau), f"log tau, tau {tau:g} ", ha="right", va="bottom", fontsize=10)
    ax.set_title(f"Rescued: {rescued[True]} right and {rescued[False]} wrong tokens (the shaded corner)")
    ax.set_xticks([NEVER, 1, 10, 100, 1000], ["never", "1", "10", "100", "1000"])
    ax.set_xlim(NEVER / 1.6, end)
    ax.legend(fontsize=10, loc="lower right")
    return fig


def _spread(count: int, i: int, lambda_: float) -> float:
    """A count's place on the axis, moved a little so that marks do not hide others, but never past lambda's line."""
    by = 0.35 if 0 < count < 2 * lambda_ else 0.15 * max(count, NEVER)
    return max(count, NEVER) + by * math.sin(2.4 * i)
