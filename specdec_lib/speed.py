"""What a benchmark's calls say: speed-ups with intervals, predictions beside them, and what explains the difference.

Our own words and choices; the predictions follow Leviathan et al. 2023 (arXiv 2211.17192), theorem 3.8, and its exact
form without independence. A speed-up here is a ratio of totals, not a mean of ratios.
Left out: making the calls (bench.py).
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from specdec_lib import theory
from specdec_lib import trace as figures
from specdec_lib.hf_arms import PassWatch
from specdec_lib.methods import method_label
from specdec_lib.pocket.checker import mark
from specdec_lib.pocket.tokenizer import world_tokens
from specdec_lib.sampling import COLDEST
from specdec_lib.stats import share_interval, totals_interval
from specdec_lib.tasks import Task
from specdec_lib.trace import Trace
from specdec_lib.zoo import Pair


@dataclass
class Call:
    """One timed answer. arm, repeat, prompt: indices from 0. trace: None for Hugging Face's arms."""

    arm: int
    repeat: int
    prompt: int
    seconds: float
    ids: list[int]
    trace: Trace | None


@dataclass
class Costs:
    """T(k) of the target and D(1) of the draft at each draft length, as measured after each prompt."""

    measured: list[tuple[int, dict[int, float], dict[int, float | None]]] = field(default_factory=list)

    def add(self, context: int, target_s: dict[int, float], draft_step_s: dict[int, float | None]) -> None:
        self.measured.append((context, target_s, draft_step_s))

    @property
    def context(self) -> int:
        """Tokens before a measured pass: the median."""
        return int(statistics.median(m[0] for m in self.measured))

    @property
    def target_s(self) -> dict[int, float]:
        """k -> T(k)."""
        return {k: statistics.median(m[1][k] for m in self.measured) for k in self.measured[0][1]}

    @property
    def draft_step_s(self) -> dict[int, float]:
        """gamma -> D(1); without the gammas for which there was no room."""
        at = {gamma: [m[2][gamma] for m in self.measured] for gamma in self.measured[0][2]}
        return {gamma: statistics.median(taken) for gamma, taken in at.items() if None not in taken}


@dataclass
class Watched:
    """Answers whose passes were counted, not timed for the record. seconds: of the calls as a whole.

    draft: None where its passes are compiled and cannot be seen.
    """

    prompts: int
    tokens: int
    seconds: float
    target: PassWatch
    draft: PassWatch | None

    @property
    def row(self) -> dict:
        """outside_passes: share of the calls' time outside both models' passes; None on a GPU, or with a pass unseen.

        A target that is its own draft has all passes counted as target_passes.
        """
        of_its_own = self.draft is not None and self.draft.model is not self.target.model
        watches = [self.target, self.draft] if of_its_own else [self.target]
        unknown = self.draft is None or self.target.seconds is None
        inside = None if unknown else sum(watch.seconds for watch in watches)
        return {
            "prompts": self.prompts,
            "tokens": self.tokens,
            "target_passes": len(self.target.new_tokens),
            "draft_passes": len(self.draft.new_tokens) if of_its_own else None,
            "outside_passes": None if inside is None else 1 - inside / self.seconds,
        }


def results(
    arms: Sequence, calls: list[Call], costs: Costs, watched: Sequence[Watched], tasks: Sequence[Task], pair: Pair,
    temperature: float, seed: int,
) -> dict:  # fmt: skip
    """rows, one an arm, the first arm being plain decoding; beside them T(k), D(1) and the context they hold at.

    A row: method, settings, lossless; accuracy (pocket problems only: share of right final numbers) with its 95 %
    interval; mat, kept, alpha, gamma, c, share (of the rounds' time in draft, score, verify, other), drafted (mean
    proposed tokens a round); tok_per_s, seconds, tokens and calls of all repeats; speedup over the first arm with its
    95 % interval, whole calls; rounds_speedup, without the prefill; predicted_speedup, formula_speedup; attained =
    rounds_speedup / predicted_speedup and its factors, explained; prefill_share of the calls' time; same_text: share of
    answers equal to the first arm's (lossless arms at temperature 0); groups: the same speeds for each kind of prompt;
    watched: passes counted beforehand. What does not apply is None.
    """
    rows = []
    base = [call for call in calls if call.arm == 0]
    for at, arm in enumerate(arms):
        mine = [call for call in calls if call.arm == at]
        row = {
            "method": arm.name,
            "settings": {**arm.knobs, "temperature": temperature},
            "lossless": arm.lossless,
            **accuracy(mine, tasks, pair),
            **trace_figures(mine, base, arm, costs),
        }
        row["gamma"] = arm.knobs.get("gamma")
        row |= speeds(mine, base, is_base=at == 0, seed=seed)
        row["same_text"] = same_text(mine, base) if at > 0 and arm.lossless and temperature < COLDEST else None
        row["groups"] = groups(mine, base, tasks, seed)
        row["watched"] = watched[at].row
        rows.append({name: row[name] for name in ORDER})
    return {
        "rows": rows,
        "context": costs.context,
        "pass_s": {str(k): seconds for k, seconds in costs.target_s.items()},
        "draft_step_s": {str(gamma): seconds for gamma, seconds in costs.draft_step_s.items()},
    }


ORDER = (
    "method", "settings", "lossless", "accuracy", "accuracy_interval", "mat", "kept", "alpha", "gamma", "c",
    "tok_per_s", "speedup", "speedup_interval", "predicted_speedup", "formula_speedup", "share", "rounds_speedup",
    "attained", "explained", "prefill_share", "same_text", "drafted", "tokens", "seconds", "calls", "groups", "watched",
)  # fmt: skip


# ---- speeds ----------------------------------------------------------------------------------------------------


def speeds(mine: list[Call], base: list[Call], is_base: bool, seed: int) -> dict:
    tokens, seconds = sum(len(call.ids) for call in mine), sum(call.seconds for call in mine)
    return {
        "tok_per_s": per(tokens, seconds),
        "speedup": speedup(mine, base),
        "speedup_interval": None if is_base else speedup_interval(mine, base, seed),
        "tokens": tokens,
        "seconds": seconds,
        "calls": len(mine),
    }


def per(amount: float, of: float) -> float | None:
    """amount / of, or None for no `of`."""
    return amount / of if of else None


def speedup(mine: list[Call], base: list[Call]) -> float | None:
    """Tokens a second over the base's, both from totals: the long answers count for more than the short ones."""
    return ratio_of_totals(*(per_prompt(calls) for calls in (mine, base)))


def per_prompt(calls: list[Call]) -> np.ndarray:
    """(prompts, 2): tokens and seconds of each prompt over all repeats, in the order of the prompts."""
    sums: dict[int, list[float]] = {}
    for call in calls:
        total = sums.setdefault(call.prompt, [0, 0.0])
        total[0] += len(call.ids)
        total[1] += call.seconds
    return np.array([sums[prompt] for prompt in sorted(sums)], dtype=float).reshape(-1, 2)


def ratio_of_totals(mine: np.ndarray, base: np.ndarray) -> float | None:
    (tokens, seconds), (base_tokens, base_seconds) = mine.sum(axis=0), base.sum(axis=0)
    return float(tokens * base_seconds / (base_tokens * seconds)) if base_tokens * seconds else None


def speedup_interval(mine: list[Call], base: list[Call], seed: int) -> list[float] | None:
    """95 % percentile bootstrap of the ratio of totals, prompts drawn with replacement, both arms on the same ones.

    None for fewer than two prompts. It tells how the figure depends on the prompts, not on the machine's mood.
    """
    mine, base = per_prompt(mine), per_prompt(base)
    if len(mine) < 2 or not (base[:, 0].all() and mine[:, 1].all()):
        return None
    return list(totals_interval(np.hstack([mine, base]), lambda m0, m1, b0, b1: m0 / m1 * b1 / b0, seed))


def groups(mine: list[Call], base: list[Call], tasks: Sequence[Task], seed: int = 0) -> dict[str, dict]:
    """For each kind of prompt: prompts, tok_per_s, speedup with its 95 % interval (as over all prompts), mat."""
    found = {}
    for group in dict.fromkeys(task.group for task in tasks):
        here = {i for i, task in enumerate(tasks) if task.group == group}
        some, plain = ([call for call in calls if call.prompt in here] for calls in (mine, base))
        found[group] = {
            "prompts": len(here),
            "tok_per_s": per(sum(len(call.ids) for call in some), sum(call.seconds for call in some)),
            "speedup": speedup(some, plain),
            "speedup_interval": speedup_interval(some, plain, seed),
            "mat": figures.mat(traces_of(some)),
        }
    return found


# ---- answers ---------------------------------------------------------------------------------------------------


def accuracy(mine: list[Call], tasks: Sequence[Task], pair: Pair) -> dict:
    """Of the first repeat's answers, the share with the right final number; None where nothing can be checked."""
    if any(task.problem is None for task in tasks):
        return {"accuracy": None, "accuracy_interval": None}
    right = [
        mark(tasks[call.prompt].problem, world_tokens(pair.tokenizer, call.ids)).final_right
        for call in mine
        if call.repeat == 0
    ]
    return {"accuracy": figures.mean(right), "accuracy_interval": share_interval(sum(right), len(right))}


def same_text(mine: list[Call], base: list[Call]) -> float | None:
    """Share of answers, over all repeats, that equal the base's first one token for token."""
    plain = {call.prompt: call.ids for call in base if call.repeat == 0}
    return figures.mean(call.ids == plain[call.prompt] for call in mine)


# ---- traces ----------------------------------------------------------------------------------------------------


def traces_of(calls: list[Call]) -> list[Trace]:
    return [call.trace for call in calls if call.trace is not None]


def trace_figures(mine: list[Call], base: list[Call], arm, costs: Costs) -> dict:
    """What a row has from traces; of the arm, lossless, has_draft_model and fixed_gamma are read."""
    names = ("mat", "kept", "alpha", "c", "share", "drafted", "rounds_speedup", "predicted_speedup")
    found = dict.fromkeys((*names, "formula_speedup", "attained", "explained", "prefill_share"))
    traces, plain = traces_of(mine), traces_of(base)
    rounds, plain_rounds = figures.rounds_of(traces), figures.rounds_of(plain)
    if not rounds or not plain_rounds:
        return found
    rounds_s, plain_s = (figures.mean(r.seconds for r in some) for some in (rounds, plain_rounds))
    found |= {
        "mat": figures.mat(traces),
        "kept": figures.kept(traces),
        "alpha": figures.alpha(traces),
        "share": figures.time_shares(traces),
        "drafted": figures.mean(r.proposed for r in rounds),
        "prefill_share": sum(t.prefill_s for t in traces) / sum(call.seconds for call in mine),
    }
    found["rounds_speedup"] = found["mat"] / rounds_s * plain_s / figures.mat(plain)
    if arm.has_draft_model:
        found["c"] = figures.draft_over_target(rounds, plain_rounds)
    gamma = arm.fixed_gamma
    if gamma is None:
        return found
    rate = found["alpha"] if arm.lossless and found["alpha"] is not None else figures.accepted_over_tested(traces)
    if rate is not None and found["c"] is not None:
        found["formula_speedup"] = theory.speedup(rate, gamma, found["c"])
    if gamma in costs.draft_step_s:
        emitted = theory.expected_emitted_by_position(figures.acceptance_by_position(traces))
        one, round_s = costs.target_s[1], theory.round_time(gamma, costs.target_s, costs.draft_step_s[gamma])
        found["predicted_speedup"] = emitted * one / round_s
        found["attained"] = found["rounds_speedup"] / found["predicted_speedup"]
        found["explained"] = {  # their product is `attained`
            "cut": found["mat"] / emitted,
            "plain_step": plain_s / figures.mat(plain) / one,
            "round": round_s / rounds_s,
        }
    return found


# ---- in words --------------------------------------------------------------------------------------------------


SPEEDS_LEGEND = """\
speed-up: tokens a second over plain decoding's, a ratio of totals over whole calls, prefill included; its interval is
a bootstrap over prompts. MAT, kept: a round, the prefill not counted. predicted: E[emitted] T(1) / (gamma D(1) +
T(gamma + 1)); formula: with acceptances taken as independent. right: final numbers; same text: as plain decoding's.
"""
REASONS_LEGEND = """
rounds: speed-up of the rounds alone. attained: that over the prediction; it is cut (below 1 where answers end inside
a round) x plain (a plain step over T(1)) x round (a round as predicted over as measured). d/s/v/o: share of the
rounds' time in draft, score, verify, other; prefill: of the whole time. The last four come from {watched} prompts
answered beforehand: tokens, passes of target and draft, share of the time outside these passes."""


def name_of(row: dict) -> str:
    """The method with its knobs."""
    return method_label(row["method"], {k: v for k, v in row["settings"].items() if k != "temperature"})


def table(found: dict) -> str:
    """The results as plain text: every arm, also those that lose, and below it what explains each speed-up."""
    rows = found["rows"]
    width = max(26, *(len(name_of(row)) for row in rows))
    lines = [
        f"{'':{width}} {'tok/s':>7} {'speed-up':>8} {'95 % interval':>14} {'MAT':>5} {'kept':>5} {'alpha':>5} {'c':>5} "
        f"{'predicted':>9} {'formula':>7} {'right':>5} {'same text':>9}"
    ]
    for row in rows:
        lines.append(
            f"{name_of(row):{width}} {_n(row['tok_per_s'], 7, 1)} {_n(row['speedup'], 8)} "
            f"{_interval(row['speedup_interval']):>14} {_n(row['mat'], 5)} {_n(row['kept'], 5)} {_n(row['alpha'], 5)} "
            f"{_n(row['c'], 5)} {_n(row['predicted_speedup'], 9)} {_n(row['formula_speedup'], 7)} "
            f"{_n(row['accuracy'], 5)} {_n(row['same_text'], 9)}"
        )
    slower = [name_of(row) for row in rows if row["speedup"] is not None and row["speedup"] < 1]
    lines += [f"Slower than plain decoding here: {', '.join(slower)}."] if slower else []
    stopped = " (stopped early)" if found["interrupted"] else ""
    lines += [
        "",
        f"{found['n']} prompts, {found['repeats']} repeats{stopped}, interleaved; T, D at {found['context']} tokens.",
        SPEEDS_LEGEND,
        f"{'':{width}} {'rounds':>7} {'attained':>8} {'cut':>5} {'plain':>5} {'round':>5} {'d/s/v/o %':>19} "
        f"{'prefill':>7} {'tokens':>6} {'target':>6} {'draft':>6} {'outside':>7}",
    ]
    for row in rows:
        e, w = row["explained"] or dict.fromkeys(("cut", "plain_step", "round")), row["watched"]
        share = "/".join(f"{100 * part:.1f}" for part in row["share"].values()) if row["share"] else "-"
        lines.append(
            f"{name_of(row):{width}} {_n(row['rounds_speedup'], 7)} {_n(row['attained'], 8)} {_n(e['cut'], 5)} "
            f"{_n(e['plain_step'], 5)} {_n(e['round'], 5)} {share:>19} {_percent(row['prefill_share']):>7} "
            f"{w['tokens']:6} {w['target_passes']:6} {_n(w['draft_passes'], 6, 0)} {_percent(w['outside_passes']):>7}"
        )
    lines += [REASONS_LEGEND.format(watched=rows[0]["watched"]["prompts"])]
    kinds = rows[0]["groups"]
    if len(kinds) > 1:
        lines += ["", f"{'speed-up by kind of prompt':{width}} " + " ".join(f"{kind:>{_wide(kind)}}" for kind in kinds)]
        for row in rows:
            each = " ".join(_of_kind(row["groups"][kind], _wide(kind)) for kind in kinds)
            lines.append(f"{name_of(row):{width}} {each}".rstrip())
        if any("<" in line for line in lines[-len(rows) :]):
            lines.append("<: the 95 % interval lies below 1.")
    return "\n".join(lines)


def _wide(kind: str) -> int:
    return max(len(kind), 6)


def _of_kind(group: dict, width: int) -> str:
    """A speed-up, with a mark where it is significantly a slow-down."""
    interval = group.get("speedup_interval")
    return _n(group["speedup"], width - 1) + ("<" if interval and interval[1] < 1 else " ")


def _n(value: float | None, width: int, digits: int = 2) -> str:
    return f"{'-' if value is None else f'{value:.{digits}f}':>{width}}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _interval(bounds: list[float] | None) -> str:
    return "-" if bounds is None else f"{bounds[0]:.2f} to {bounds[1]:.2f}"
