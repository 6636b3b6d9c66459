"""Remedies for a count that grows with calibration: a rate, a count that grows as well, a sure lower bound of the rate.

Our own: that the papers' count lets common slips pass in the end is what calibration.py shows.
Left out: remedies in the library; but for csd-rate these are rules of this experiment alone.
"""

from specdec_lib.csd.memory import CorrectionMemory
from specdec_lib.drafters import ModelDrafter
from specdec_lib.experiments.base import GAMMA, Lab, beside, between, percent, table
from specdec_lib.experiments.calibration import against_length
from specdec_lib.experiments.memories import memory_after, over, rule_on
from specdec_lib.methods import Method, never_rescued
from specdec_lib.plots import COLOURS
from specdec_lib.stats import share_interval
from specdec_lib.verifiers.csd import CSD
from specdec_lib.zoo import Pair

WHAT = "remedies for calibration that is too long: rate, lambda that grows with it, lower bound of the rate"
PROBLEMS = 150
LENGTHS = (100, 800, 3200)
TAU = 0.001  # a gate so wide that the memory decides
BASE = 100  # calibration problems at which lambda is the pair's own
COUNT, RATE, SCALED, BOUND = "count", "count and rate", "count that grows", "lower bound of the rate"
LOOK = {
    COUNT: ("csd", "o--"), RATE: ("csd-rate", "s-"), SCALED: ("csd-memory", "^-"), BOUND: ("csd-gate", "D-"),
}  # fmt: skip


class SureRate(CSD):
    """CSD with a rate that is surely high: the lower end of its 95 % Wilson interval is at least `rate`; no count."""

    def __init__(self, memory: CorrectionMemory, tau: float, rate: float, never):
        super().__init__(memory, 0, tau, never, "csd-bound")
        self.rate = rate

    def remembers(self, x: int, best: int) -> bool:
        count = self.memory.count(x, best)
        return count > 0 and share_interval(count, self.memory.drafted[x])[0] >= self.rate


def rules(pair: Pair, memory: CorrectionMemory, length: int) -> dict[str, Method]:
    """The four rules on one memory."""
    rated = rule_on(pair, memory, "csd-rate", {"tau": TAU})
    rate = rated.knobs["rate"]
    count = rule_on(pair, memory, "csd", {"tau": TAU})
    grown = {"tau": TAU, "lambda": count.knobs["lambda"] * max(1.0, length / BASE)}
    sure = SureRate(memory, TAU, rate, never_rescued(pair))
    bound = Method("csd-bound", {"gamma": GAMMA, "tau": TAU, "rate": rate}, ModelDrafter(pair.draft, GAMMA), sure)
    return {COUNT: count, RATE: rated, SCALED: rule_on(pair, memory, "csd", grown), BOUND: bound}


def run(lab: Lab) -> dict:
    """rows: greedy speculation, then each remedy on a frozen memory of each length: base.row_of's and memories.over's
    figures, remedy, texts, trusted (pairs that it would rescue).
    """
    tasks = lab.problems()
    plain = lab.measure("greedy", tasks)
    rows = [plain]
    for length in LENGTHS:
        memory = memory_after(lab, length)
        for remedy, method in rules(lab.pair, memory, length).items():
            row = lab.measure(method, tasks, f"after {length} {remedy}")
            trusted = sum(method.verifier.trusts(x, best) for x, best in memory.pairs)
            rows.append(over(row, plain) | {"remedy": remedy, "texts": length, "trusted": trusted})
    return {"rows": rows}


def text(result: dict) -> str:
    plain, *rows = result["rows"]
    heads = ("remedy", "texts", "trusted", "kept", "x greedy", "accuracy %", "change, points", "95 % paired")
    lines = [("greedy speculation", None, None, plain["kept"], 1.0, percent(plain["accuracy"]), None, None)]
    lines += [
        (
            row["remedy"], row["texts"], row["trusted"], row["kept"], row["kept_ratio"], percent(row["accuracy"]),
            f"{100 * row['accuracy_change']:+.1f}", between(row["accuracy_change_interval"], 100, 1),
        )
        for row in sorted(rows, key=lambda row: list(LOOK).index(row["remedy"]))
    ]  # fmt: skip
    last = max(row["texts"] for row in rows)
    grown, rated = (next(r for r in rows if (r["remedy"], r["texts"]) == (what, last)) for what in (SCALED, RATE))
    change = beside(grown, rated)
    said = (
        f"after {last}, {SCALED} keeps {grown['kept'] / rated['kept']:.2f} times what {RATE} does, at "
        f"{100 * change['accuracy_change']:+.1f} points ({between(change['accuracy_change_interval'], 100, 1)})"
    )
    return "\n".join([table(heads, lines), "", said])


def figure(result: dict):
    """Kept and accuracy against the length of the calibration, a line a remedy."""
    plain, *rows = result["rows"]
    last = max(row["texts"] for row in rows)
    said = [f"{r['remedy']} {100 * r['accuracy_change']:+.1f}" for r in rows if r["texts"] == last]
    lines = [
        ([row for row in rows if row["remedy"] == remedy], {"label": remedy, "color": COLOURS[colour], "fmt": mark})
        for remedy, (colour, mark) in LOOK.items()
    ]
    fig = against_length(plain, lines, (11.5, 4.8))
    fig.suptitle(f"Points of accuracy after {last} problems: {', '.join(said)}", fontweight="bold", fontsize=12)
    return fig
