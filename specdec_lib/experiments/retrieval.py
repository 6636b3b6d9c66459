"""Drafters without a model on recorded greedy texts: what each finds, what it brings, and what it costs by T(k).

Follows LogitSpec (arXiv 2507.01449), section 4, in what is compared: retrieval success, branches cut by rank, capacity,
guesses and retrieval apart. Texts are replayed (recording.py), so MAT is exact; a speed-up is T(1) tokens / sum T(k).
Left out: the drafters' own time (in the loop: bench.py), drafters that read the rows of rejected nodes, and what is
replayed by which name (retrieval_parts.py).

Definitions, which the paper does not give: a step finds nothing if its tree is the root alone, and retrieves if a key,
that of the text's end or of a guess, stood before. MAT counts rounds, the prefill is none. The T(k) of a GPU is flat up
to a number of tokens and then proportional (roofline.py): a prediction, for trees of up to 64 nodes.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from specdec_lib.drafters import Drafter, LogitSpecCost, PromptLookup
from specdec_lib.drafters.logitspec_cost import PRIORS
from specdec_lib.experiments.base import Lab, between, percent, table
from specdec_lib.experiments.recording import Recorded, replay, texts_of
from specdec_lib.experiments.retrieval_figure import figure
from specdec_lib.experiments.retrieval_parts import PARTS, drafters
from specdec_lib.pricing import round_times
from specdec_lib.roofline import roofline_times
from specdec_lib.stats import ratio_interval, totals_interval
from specdec_lib.theory import pass_time
from specdec_lib.trace import Trace
from specdec_lib.tree import depths

__all__ = ["ANY_PAIR", "PROBLEMS", "WHAT", "figure", "replays", "row_of", "run", "text"]

WHAT = "drafters without a model on recorded texts: found, MAT, nodes, and speed-up by T(k), here and on GPUs"
PROBLEMS = 60
ANY_PAIR = True
GPUS = {"H100": 295.0, "A100": 153.0, "RTX 4090": 164.0, "4 bits on a 4090": 41.0}  # tokens up to which T(k) is flat
SIZES = range(1, 65)
ON_GPUS = ("pld", "logitspec", "logitspec-cost")


def run(lab: Lab) -> dict:
    """rows: one a drafter. mat and its 95 % bootstrap interval over texts; over_pld, over_whole: beside "pld" and "pld,
    whole", over_all: a part beside its whole drafter (see over); per_text: tokens, rounds and seconds by T(k) of each
    text; nothing: share of rounds that proposed nothing; retrieved: see replays; nodes: mean proposed; emitted: share
    of rounds by tokens emitted; speedup_by_t: with its interval; apart_by_t: the same nodes priced as chains that share
    the root alone; groups: mat, nodes and speedup_by_t of each; gpus: predicted speed-up with T(k) flat up to so many
    tokens.
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
    whole = {part: by_name[name] for name, parts in PARTS.items() for part in parts}
    for row in rows:
        row["over_pld"], row["over_whole"] = over(row, by_name["pld"]), over(row, by_name["pld, whole"])
        row["over_all"] = over(row, whole[row["drafter"]]) if row["drafter"] in whole else None
    odds = lab.rows.get("odds", lambda: {"odds": odds_of(lab.watch("odds", texts))})["odds"]
    return {"rows": rows, "times": measured["times"], "gpus_flat_to": GPUS, "odds": odds}


def over(row: dict, base: dict) -> dict:
    """mat and speedup, a drafter's over another's on the same texts, each with its interval: 95 % bootstrap, texts
    drawn together.
    """
    items = np.hstack([row["per_text"], base["per_text"]])
    return {
        "mat": row["mat"] / base["mat"],
        "interval": totals_interval(items, lambda n, r, s, n0, r0, s0: n / r * r0 / n0),
        "speedup": row["speedup_by_t"] / base["speedup_by_t"],
        "speedup_interval": totals_interval(items, lambda n, r, s, n0, r0, s0: n / s * s0 / n0),
    }


def odds_of(texts: Iterable[Recorded]) -> list[dict]:
    """How often each kind of offer of logitspec-cost was right, where nodes are free, beside the prior in its code.

    On the recorded texts of data/prompts/chat.jsonl these shares, rounded, are the priors.
    """
    drafter = LogitSpecCost(dict.fromkeys((1, 64), 1.0), keep=True)
    for recorded in texts:
        replay(drafter, recorded)
    return [
        {"offer": list(key), "prior": PRIORS[key], "accepted": accepted, "tested": tested}
        for key, (accepted, tested) in sorted(drafter.odds.counts.items())
    ]


def replays(drafter: Drafter, texts: Iterable[Recorded]) -> tuple[list[Trace], int]:
    """The texts' traces, and the number of rounds that retrieve: where prompt lookup proposes something; where another
    drafter's index, asked for the end of the text, for a guess or for tokens below them, finds something.
    """
    asked = getattr(drafter, "inner", drafter)
    find, hits = asked.index.find, set()

    def watched(tail):
        found = find(tail)
        if found:
            hits.add(len(asked.index.ids))  # no two rounds of a text begin at the same length
        return found

    asked.index.find = watched
    traces, retrieved = [], 0
    for recorded in texts:
        hits.clear()
        traces.append(replay(drafter, recorded))
        lookup = isinstance(asked, PromptLookup)  # what it finds may overlap its key, and is then of no use to it
        retrieved += sum(r.proposed > 0 for r in traces[-1].rounds) if lookup else len(hits)
    return traces, retrieved


def row_of(name: str, drafter: Drafter, texts: Iterable[Recorded], times: Mapping[int, float]) -> dict:
    """A drafter, replayed on the texts in their order."""
    texts = list(texts)
    traces, retrieved = replays(drafter, texts)
    per_text, groups = [], defaultdict(list)
    for recorded, trace in zip(texts, traces, strict=True):
        spent = sum(pass_time(times, len(r.tokens)) for r in trace.rounds)
        per_text.append((len(trace.ids), len(trace.rounds), spent))
        groups[recorded.group].append((*per_text[-1], sum(r.proposed for r in trace.rounds)))
    tokens, counts, spent = (list(column) for column in zip(*per_text, strict=True))
    rounds = [r for trace in traces for r in trace.rounds]
    apart = sum(pass_time(times, min(nodes_apart(r.parents), max(times))) for r in rounds)
    emitted = Counter(len(r.emitted) for r in rounds)
    every = [item for found in groups.values() for item in found]
    return {
        "drafter": name,
        "texts": len(per_text),
        "rounds": len(rounds),
        **_figures(every, times),
        "mat_interval": ratio_interval(tokens, counts),
        "speedup_interval": ratio_interval([times[1] * n for n in tokens], spent),
        "apart_by_t": times[1] * sum(tokens) / apart,
        "per_text": [list(numbers) for numbers in per_text],
        "nothing": sum(r.proposed == 0 for r in rounds) / len(rounds),
        "retrieved": retrieved / len(rounds),
        "emitted": {str(n): emitted[n] / len(rounds) for n in sorted(emitted)},
        "groups": {group: _figures(found, times) for group, found in sorted(groups.items())},
    }


def nodes_apart(parents: Sequence[int]) -> int:
    """Nodes of a tree whose branches share the root alone: 1 and the depth of every leaf below it."""
    deep, inner = depths(parents), set(parents)
    return 1 + sum(depth for node, depth in enumerate(deep) if node not in inner)


def _figures(items: list[tuple], times: Mapping[int, float]) -> dict:
    """items: (tokens, rounds, seconds, proposed)."""
    tokens, rounds, spent, proposed = (sum(column) for column in zip(*items, strict=True))
    return {"mat": tokens / rounds, "nodes": proposed / rounds, "speedup_by_t": times[1] * tokens / spent}


def text(result: dict) -> str:
    rows = result["rows"]
    heads = (
        "drafter", "MAT", "95 %", "over pld", "95 %", "nothing %", "retrieved %", "nodes", "emit 1 %", "by T(k)",
        "95 %", "chains apart",
    )  # fmt: skip
    shown = table(
        heads,
        [
            (
                row["drafter"], row["mat"], between(row["mat_interval"]), row["over_pld"]["mat"],
                between(row["over_pld"]["interval"]), percent(row["nothing"]), percent(row["retrieved"]), row["nodes"],
                percent(row["emitted"].get("1", 0.0)), row["speedup_by_t"], between(row["speedup_interval"]),
                row["apart_by_t"],
            )
            for row in rows
        ],
    )  # fmt: skip
    whole = next(row["over_whole"] for row in rows if row["drafter"] == "logitspec")
    shown += f"\n\nlogitspec's MAT over that of pld, whole: {whole['mat']:.2f} ({between(whole['interval'])})"
    parts = table(
        ("part, over the whole drafter", "nodes", "MAT", "95 %", "by T(k)", "95 %"),
        [
            (
                row["drafter"], row["nodes"], f"{found['mat']:.3f}", between(found["interval"], 1, 3),
                f"{found['speedup']:.3f}", between(found["speedup_interval"], 1, 3),
            )
            for row in rows
            if (found := row["over_all"])
        ],
    )  # fmt: skip
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
    return f"{shown}\n\n{parts}\n\n{by_group}\n\n{gpus}\n\nT(k) here, ms: {times}"
