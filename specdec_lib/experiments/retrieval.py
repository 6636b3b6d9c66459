"""Drafters without a model on recorded greedy texts: what each finds, what it brings, and what it costs by T(k).

Follows LogitSpec (arXiv 2507.01449), section 4, in what is compared: retrieval success, pruning and capacity, guesses
and retrieval apart. Texts are replayed (recording.py), so MAT is exact, and a speed-up is T(1) tokens / sum of T(k).
Left out: the drafters' own time (in the loop: bench.py), and drafters that read the rows of rejected nodes.

Definitions, which the paper does not give: a step finds nothing if its tree is the root alone. MAT counts rounds, the
prefill is none. The T(k) of a GPU is flat up to a number of tokens and then proportional (roofline.py): a prediction.
"pld, whole" proposes only where all ten tokens of a continuation stand, as the original prompt lookup does.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from specdec_lib.drafters import CostAware, Drafter, LogitSpec, LogitSpecCost, PromptLookup
from specdec_lib.drafters.logitspec_cost import PRIORS
from specdec_lib.experiments.base import Lab, between, percent, table
from specdec_lib.experiments.recording import Recorded, replay, texts_of
from specdec_lib.experiments.retrieval_figure import figure
from specdec_lib.pricing import round_times
from specdec_lib.roofline import roofline_times
from specdec_lib.stats import ratio_interval, totals_interval
from specdec_lib.theory import pass_time

__all__ = ["ANY_PAIR", "PROBLEMS", "WHAT", "drafters", "figure", "row_of", "run", "text"]

WHAT = "drafters without a model on recorded texts: found, MAT, nodes, and speed-up by T(k), here and on GPUs"
PROBLEMS = 60
ANY_PAIR = True
GPUS = {"H100": 295.0, "A100": 153.0, "RTX 4090": 164.0, "4 bits on a 4090": 41.0}  # tokens up to which T(k) is flat
CAPACITIES = (2, 4, 8, 16, 32, 64)
SIZES = range(1, 129)
ON_GPUS = ("pld", "logitspec", "logitspec-cost")


class Separate(LogitSpec):
    """LogitSpec that counts what its branches would take as separate chains."""

    nodes = 0

    def paths(self, context):
        found = super().paths(context)
        self.nodes += sum(map(len, found))
        return found


class Whole(PromptLookup):
    """Prompt lookup that takes no continuation of fewer than gamma tokens; the leftmost one is the longest there is."""

    def _position(self):
        ids, longest = self.index.ids, self.index.longest
        while longest and (found := self.index.find(ids[-longest:])):
            at, length = found
            if at + self.gamma <= len(ids):
                return at
            longest = length - 1
        return None


def drafters(times: Mapping[int, float]) -> dict[str, Callable[[], Drafter]]:
    """What is replayed, by name: the methods, then parts of LogitSpec, capacities, and cost-aware forms."""
    return {
        "pld": PromptLookup,
        "pld:gamma=4": lambda: PromptLookup(4),
        "pld, whole": Whole,
        "logitspec": Separate,
        "logitspec-cost": lambda: LogitSpecCost(times),
        "guesses alone": lambda: LogitSpec(retrieval=False),
        "retrieval alone": lambda: LogitSpec(guesses=0),
        **{f"logitspec:capacity={c}": lambda c=c: LogitSpec(c) for c in CAPACITIES[:-1]},
        **{f"logitspec:guesses={g}": lambda g=g: LogitSpec(guesses=g) for g in (8, 32)},
        "pld, cost-aware": lambda: CostAware(PromptLookup(), times),
        "logitspec, cost-aware": lambda: CostAware(LogitSpec(), times),
        "logitspec-cost:keep=1": lambda: LogitSpecCost(times, keep=True),
    }


def run(lab: Lab) -> dict:
    """rows: one a drafter. mat and its 95 % bootstrap interval over texts; over_pld, over_whole: MAT over that of "pld"
    and of "pld, whole" (see over); per_text: tokens and rounds of each text; nothing: share of rounds that proposed
    nothing; nodes: mean proposed; emitted: share of rounds by tokens emitted; speedup_by_t: with its interval; groups:
    mat and speedup_by_t of each; gpus: predicted speed-up with T(k) flat up to so many tokens.
    Beside them times: T(k) measured now, in seconds (pricing.py); odds: see odds_of.
    """
    texts = texts_of(lab)
    measured = lab.rows.get("times", lambda: {"times": {str(k): s for k, s in round_times(lab.pair.target).items()}})
    times = {int(k): seconds for k, seconds in measured["times"].items()}

    def replayed(name: str, make: Callable[[], Drafter], at: Mapping[int, float], where: str = "here") -> dict:
        label = f"{name}, {where}"
        return lab.rows.get(label, lambda: row_of(name, make(), lab.watch(label, texts), at))

    rows = [replayed(name, make, times) | {"gpus": {}} for name, make in drafters(times).items()]
    for row in rows:
        for gpu, turnover in GPUS.items() if row["drafter"] in ON_GPUS else ():
            flat = roofline_times(turnover, ks=SIZES)
            found = replayed(row["drafter"], drafters(flat)[row["drafter"]], flat, gpu)
            row["gpus"][gpu] = {"speedup": found["speedup_by_t"], "mat": found["mat"], "nodes": found["nodes"]}
    by_name = {row["drafter"]: row for row in rows}
    rows = [
        row | {"over_pld": over(row, by_name["pld"]), "over_whole": over(row, by_name["pld, whole"])} for row in rows
    ]
    odds = lab.rows.get("odds", lambda: {"odds": odds_of(lab.watch("odds", texts))})["odds"]
    return {"rows": rows, "times": measured["times"], "gpus_flat_to": GPUS, "odds": odds}


def over(row: dict, base: dict) -> dict:
    """mat, a drafter's over another's on the same texts, and interval: 95 % bootstrap, texts drawn together."""
    items = np.hstack([row["per_text"], base["per_text"]])
    interval = totals_interval(items, lambda n, rounds, n0, rounds0: n / rounds * rounds0 / n0)
    return {"mat": row["mat"] / base["mat"], "interval": interval}


def odds_of(texts: Iterable[Recorded]) -> list[dict]:
    """How often each kind of offer of logitspec-cost was right, where nodes are free, beside the prior in its code.

    On the texts of data/prompts/chat.jsonl this is what the priors were taken from, rounded.
    """
    drafter = LogitSpecCost(dict.fromkeys((1, 64), 1.0), keep=True)
    for recorded in texts:
        replay(drafter, recorded)
    return [
        {"offer": list(key), "prior": PRIORS[key], "accepted": accepted, "tested": tested}
        for key, (accepted, tested) in sorted(drafter.odds.counts.items())
    ]


def row_of(name: str, drafter: Drafter, texts: Iterable[Recorded], times: Mapping[int, float]) -> dict:
    """A drafter, replayed on the texts in their order."""
    per_text, groups, emitted, nothing, proposed = [], defaultdict(list), Counter(), 0, 0
    for recorded in texts:
        trace = replay(drafter, recorded)
        rounds = trace.rounds
        spent = sum(pass_time(times, len(r.tokens)) for r in rounds)
        per_text.append((len(trace.ids), len(rounds), spent))
        groups[recorded.group].append(per_text[-1])
        emitted.update(len(r.emitted) for r in rounds)
        nothing += sum(r.proposed == 0 for r in rounds)
        proposed += sum(r.proposed for r in rounds)
    tokens, counts, spent = (list(column) for column in zip(*per_text, strict=True))
    rounds = sum(counts)
    row = {
        "drafter": name,
        "texts": len(per_text),
        "rounds": rounds,
        **_figures(per_text, times),
        "mat_interval": ratio_interval(tokens, counts),
        "speedup_interval": ratio_interval([times[1] * n for n in tokens], spent),
        "per_text": [[n, count] for n, count, _ in per_text],
        "nothing": nothing / rounds,
        "nodes": proposed / rounds,
        "emitted": {str(n): emitted[n] / rounds for n in sorted(emitted)},
        "groups": {group: _figures(found, times) for group, found in sorted(groups.items())},
    }
    if isinstance(drafter, Separate):  # what merging equal beginnings frees
        row["nodes_as_separate_chains"] = drafter.nodes / rounds
    return row


def _figures(per_text: list[tuple[int, int, float]], times: Mapping[int, float]) -> dict:
    tokens, rounds, spent = (sum(column) for column in zip(*per_text, strict=True))
    return {"mat": tokens / rounds, "speedup_by_t": times[1] * tokens / spent}


def text(result: dict) -> str:
    rows = result["rows"]
    heads = ("drafter", "MAT", "95 %", "over pld", "95 %", "nothing %", "nodes", "emit 1 %", "by T(k)", "95 %")
    shown = table(
        heads,
        [
            (
                row["drafter"], row["mat"], between(row["mat_interval"]), row["over_pld"]["mat"],
                between(row["over_pld"]["interval"]), percent(row["nothing"]), row["nodes"],
                percent(row["emitted"].get("1", 0.0)), row["speedup_by_t"], between(row["speedup_interval"]),
            )
            for row in rows
        ],
    )  # fmt: skip
    whole = next(row["over_whole"] for row in rows if row["drafter"] == "logitspec")
    shown += f"\n\nlogitspec's MAT over that of pld, whole: {whole['mat']:.2f} ({between(whole['interval'])})"
    groups = list(rows[0]["groups"])
    by_group = table(
        ("MAT / by T(k)", *groups),
        [
            (row["drafter"], *(f"{g['mat']:.2f} / {g['speedup_by_t']:.2f}" for g in row["groups"].values()))
            for row in rows[:5]
        ],
    )
    gpus = table(
        ("predicted", *(f"{gpu} ({flat:g})" for gpu, flat in result["gpus_flat_to"].items())),
        [(row["drafter"], *(f"{g['speedup']:.2f}" for g in row["gpus"].values())) for row in rows if row["gpus"]],
    )
    times = ", ".join(f"{k}: {1000 * s:.1f}" for k, s in result["times"].items())
    return f"{shown}\n\n{by_group}\n\n{gpus}\n\nT(k) here, ms: {times}"
