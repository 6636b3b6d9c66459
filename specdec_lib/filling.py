"""The memory as it fills: what CSD keeps of recorded texts, and what it kept and got right when it decoded.

Our own; the rule is verifiers/csd.py at temperature 0. `specdec experiment csd-filling` records memories and decodings,
scored.py the draft's texts; no model runs here.
Left out: controls (widgets.py), and a memory that goes on learning while it is used.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from specdec_lib.colours import COLOURS
from specdec_lib.knob import GAMMA, kept_by_round
from specdec_lib.pocket.world import EOS
from specdec_lib.scored import ScoredText

BARS = 8  # pairs drawn of each kind


@dataclass(frozen=True)
class Filling:
    """Memories after each of `lengths` prompts, 0 the first, and what was measured with them.

    counts: (draft's word, target's word) -> how often it was rejected, after each length. drafted: a word -> how often
    it was drafted where it was reached. measured: (length, lambda, tau) -> (kept, accuracy), decoded on n problems;
    plain: the same of greedy speculation. lambdas, taus: those decoded, from the strictest.
    """

    lengths: tuple[int, ...]
    lambdas: tuple[float, ...]
    taus: tuple[float, ...]
    counts: dict[tuple[str, str], tuple[int, ...]]
    drafted: dict[str, tuple[int, ...]]
    measured: dict[tuple[int, float, float], tuple[float, float]]
    plain: tuple[float, float]
    n: int

    def memory(self, seen: int) -> dict[tuple[str, str], int]:
        """What is counted after `seen` prompts. ValueError for a length that is not recorded."""
        if seen not in self.lengths:
            raise ValueError(f"no memory of {seen} prompts is recorded; choose one of {self.lengths}")
        at = self.lengths.index(seen)
        return {pair: counts[at] for pair, counts in self.counts.items() if counts[at]}

    def rate(self, pair: tuple[str, str], seen: int) -> float:
        """Of the times that the pair's word was drafted and reached, the share in which this was wanted for it."""
        at = self.lengths.index(seen)
        return self.counts[pair][at] / self.drafted[pair[0]][at] if self.counts[pair][at] else 0.0


def filling_of(results: Mapping) -> Filling:
    """The record of the experiment csd-filling. ValueError for anything else."""
    try:
        plain, *rows = results["rows"]
        lengths = (0, *results["lengths"])
        counts = {(row["draft"], row["target"]): (0, *row["counts"]) for row in results["pairs"]}
        drafted = {row["word"]: (0, *row["times"]) for row in results["drafted"]}
        measured = {
            (row["texts"], row["settings"]["lambda"], row["settings"]["tau"]): (row["kept"], row["accuracy"])
            for row in rows
        }
        lambdas = tuple(sorted({key[1] for key in measured}, reverse=True))
        taus = tuple(sorted({key[2] for key in measured}, reverse=True))
        known = Filling(
            lengths, lambdas, taus, counts, drafted, measured, (plain["kept"], plain["accuracy"]), plain["n"]
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ValueError(
            f"this is no record of csd-filling ({error!r}); specdec experiment csd-filling makes one"
        ) from (error)
    if any(len(times) != len(lengths) for times in (*counts.values(), *drafted.values())):
        raise ValueError("a record of csd-filling has a count for each of its lengths; this one does not")
    grid = {(seen, lambda_, tau) for seen in lengths[1:] for lambda_ in lambdas for tau in taus}
    if measured.keys() != grid:
        raise ValueError("a record of csd-filling has a row for every length, lambda and tau; this one is not whole")
    return known


def accepts(text: ScoredText, memory: Mapping[tuple[str, str], int], lambda_: float, tau: float) -> list[bool]:
    """Which tokens of a text CSD would accept at temperature 0, each in its own place: the argmax, or
    count(x, t*) > lambda and z[x] - z[t*] >= log tau. The end of the text is never rescued.
    """
    log_tau = math.log(tau) if tau > 0 else -math.inf
    return [
        rank == 0 or (token != EOS and memory.get((token, best), 0) > lambda_ and own - top >= log_tau)
        for token, best, rank, own, top in zip(
            text.tokens, text.best, text.rank, text.log_prob, text.log_max, strict=True
        )
    ]


def fates(text: ScoredText, accepted: Sequence[bool]) -> list[str]:
    """accepted, rescued or rejected for each token, for knob.fates_html."""
    return [
        "rejected" if not yes else "accepted" if rank == 0 else "rescued"
        for yes, rank in zip(accepted, text.rank, strict=True)
    ]


@dataclass(frozen=True)
class FillingReading:
    """One setting of the three knobs.

    pairs, trusted: in the memory, and above lambda. kept_round, wrong_passes: read off the recorded texts as knob.py
    does (kept_round, wrong_accepted). kept, accuracy: decoded.
    """

    seen: int
    lambda_: float
    tau: float
    pairs: int
    trusted: int
    kept_round: float
    wrong_passes: float
    kept: float
    accuracy: float


def read_filling(
    filling: Filling, texts: Sequence[ScoredText], seen: int, lambda_: float, tau: float, gamma: int = GAMMA
) -> FillingReading:
    """ValueError for no texts, or a setting that is not recorded."""
    if not texts:
        raise ValueError("there are no texts to read; give at least one")
    memory, rounds, passes = filling.memory(seen), [], 0
    kept, accuracy = measured_at(filling, seen, lambda_, tau)
    for text in texts:
        accepted, wrong = accepts(text, memory, lambda_, tau), text.first_wrong
        rounds += kept_by_round(accepted if wrong is None else accepted[: wrong + 1], gamma)
        passes += wrong is not None and accepted[wrong]
    trusted = sum(count > lambda_ for count in memory.values())
    return FillingReading(
        seen, lambda_, tau, len(memory), trusted, sum(rounds) / len(rounds), passes / len(texts), kept, accuracy
    )


def measured_at(filling: Filling, seen: int, lambda_: float, tau: float) -> tuple[float, float]:
    """(kept, accuracy) as decoded; after 0 prompts those of greedy speculation. ValueError if it is not recorded."""
    if seen == 0:
        return filling.plain
    if (seen, lambda_, tau) not in filling.measured:
        raise ValueError(
            f"{seen} prompts with lambda {lambda_:g} and tau {tau:g} are not recorded; recorded are the prompts "
            f"{filling.lengths}, lambda {filling.lambdas}, tau {filling.taus}"
        )
    return filling.measured[seen, lambda_, tau]


def filling_line(reading: FillingReading, filling: Filling, texts: int) -> str:
    """The figures under the sliders, as one line of text. texts: how many were read."""
    r = reading
    return (
        f"After {r.seen} prompts: {r.pairs} pairs, {r.trusted} of them seen more than {r.lambda_:g} times. Recorded "
        f"texts ({texts}): {r.kept_round:.2f} kept a round of {GAMMA}, a wrong token let through in "
        f"{r.wrong_passes:.0%}. Decoded ({filling.n} problems): kept {r.kept:.2f}, answers right {r.accuracy:.1%}; "
        f"greedy speculation {filling.plain[0]:.2f} and {filling.plain[1]:.1%}"
    )


def draw_filling(filling: Filling, seen: int, lambda_: float, tau: float) -> Figure:
    """Left, the counts of the most frequent pairs of words and of digits, with lambda; right, what was decoded: kept
    against accuracy from memory to memory, the line of each tau at this lambda.
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(12, 4.8), layout="constrained", width_ratios=(1, 1.1))
    kept, accuracy = measured_at(filling, seen, lambda_, tau)
    fig.suptitle(
        f"{seen} prompts, lambda {lambda_:g}, tau {tau:g}: kept {kept:.2f} of {GAMMA}, {accuracy:.1%} right",
        weight="bold",
    )
    _draw_counts(left, filling, seen, lambda_)
    for value in filling.taus:
        points = [measured_at(filling, length, lambda_, value) for length in filling.lengths]
        chosen = value == tau
        right.plot(
            [k for k, _ in points], [100 * a for _, a in points], "o-", color=COLOURS["csd"] if chosen else "#BBBBBB",
            lw=2.5 if chosen else 1.2, ms=6 if chosen else 3, zorder=3 if chosen else 2,
            label=f"tau {tau:g}, 0 to {filling.lengths[-1]} prompts" if chosen else None,
        )  # fmt: skip
        if not chosen:
            right.annotate(f"tau {value:g}", (points[-1][0], 100 * points[-1][1]), (4, 4), textcoords="offset points",
                           fontsize=9, color="#777777")  # fmt: skip
    right.plot(kept, 100 * accuracy, "D", color="black", ms=11, label=f"here: {seen} prompts", zorder=5)
    right.axhline(100 * filling.plain[1], color=COLOURS["greedy"], ls=":", label="greedy speculation's accuracy")
    lowest = min(100 * a for _, a in (*filling.measured.values(), filling.plain))
    right.set(
        xlim=(0, GAMMA + 0.2), ylim=(lowest - 6, 102), xlabel=f"kept tokens a round of {GAMMA}, decoded",
        ylabel="answers right, %",
    )  # fmt: skip
    right.legend(fontsize=9, loc="lower left")
    return fig


def drawn_pairs(filling: Filling) -> list[tuple[str, str]]:
    """The pairs in the picture, the same at every setting: the most frequent ones at the last length, words above
    pairs of digits.
    """
    by_count = sorted(filling.counts, key=lambda pair: -filling.counts[pair][-1])
    digits = [pair for pair in by_count if all(word.strip().isdigit() for word in pair)]
    words = [pair for pair in by_count if pair not in digits]
    return words[:BARS] + digits[:BARS]


def _draw_counts(ax, filling: Filling, seen: int, lambda_: float) -> None:
    memory, pairs = filling.memory(seen), drawn_pairs(filling)
    counts = [memory.get(pair, 0) for pair in pairs]
    colours = [COLOURS["rescued"] if count > lambda_ else "#BBBBBB" for count in counts]
    ax.barh(range(len(pairs)), counts, color=colours)
    for i, count in enumerate(counts):
        ax.text(max(count, 0.7) * 1.1, i, str(count), va="center", fontsize=9)
    ax.axvline(lambda_, color="black", linestyle="--", label=f"lambda {lambda_:g}: above it a pair is trusted")
    ax.set_yticks(range(len(pairs)), [f"{x.strip()} for {best.strip()}" for x, best in pairs], fontsize=10)
    ax.invert_yaxis()
    most = max((counts[-1] for counts in filling.counts.values()), default=1)
    ax.set(xscale="log", xlim=(0.6, 12 * max(most, lambda_)), xlabel="times that the drafted one was rejected")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_title("The memory, drafted for wanted: words, below them digits", fontsize=11)
    ax.legend(fontsize=9, loc="lower right")
