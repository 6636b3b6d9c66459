"""Every two arms of a benchmark, one over the other: tokens a second and MAT, each with an interval over prompts.

Our own. Both arms answered the same prompts in the same run, and a resample draws prompts, so that what makes a prompt
easy, or the machine slow for a while, is in both.
Left out: each arm over plain decoding, by kind of prompt too (speed.py).
"""

from collections.abc import Sequence

import numpy as np

from specdec_lib.speed import Call, per_prompt, ratio_of_totals, speedup_interval
from specdec_lib.stats import totals_interval


def ratios(names: Sequence[str], calls: Sequence[Call], seed: int = 0) -> list[dict]:
    """One for every ordered pair of arms. names: the arms' labels, in the order of Call.arm.

    method, over; speed, the ratio of tokens a second, each from totals over whole calls, with its 95 % bootstrap
    interval; mat, the ratio of mean emitted tokens a round, with its interval. None without tokens, without two prompts
    for an interval, and for the MAT of arms that leave no trace.
    """
    by_arm = [[call for call in calls if call.arm == at] for at in range(len(names))]
    found = []
    for name, mine in zip(names, by_arm, strict=True):
        for other, base in zip(names, by_arm, strict=True):
            if name == other:
                continue
            mat, mat_interval = mat_ratio(mine, base, seed)
            found.append(
                {
                    "method": name,
                    "over": other,
                    "speed": ratio_of_totals(per_prompt(mine), per_prompt(base)),
                    "speed_interval": speedup_interval(mine, base, seed),
                    "mat": mat,
                    "mat_interval": mat_interval,
                }
            )
    return found


def mat_ratio(mine: list[Call], base: list[Call], seed: int) -> tuple[float | None, list[float] | None]:
    """MAT over MAT, and its 95 % bootstrap interval over prompts."""
    if any(call.trace is None for call in (*mine, *base)):
        return None, None
    a, b = (_rounds(calls) for calls in (mine, base))
    if not (a.sum(axis=0).all() and b.sum(axis=0).all()):
        return None, None
    (tokens, rounds), (base_tokens, base_rounds) = a.sum(axis=0), b.sum(axis=0)
    value = float(tokens / rounds * base_rounds / base_tokens)
    if len(a) < 2 or not (a[:, 1].all() and b[:, 0].all()):
        return value, None
    return value, list(totals_interval(np.hstack([a, b]), lambda t, r, t0, r0: t / r * r0 / t0, seed))


def _rounds(calls: list[Call]) -> np.ndarray:
    """(prompts, 2): tokens and rounds of each prompt over all repeats."""
    sums: dict[int, list[int]] = {}
    for call in calls:
        total = sums.setdefault(call.prompt, [0, 0])
        total[0] += len(call.trace.ids)
        total[1] += len(call.trace.rounds)
    return np.array([sums[prompt] for prompt in sorted(sums)], dtype=float).reshape(-1, 2)


def table(found: Sequence[dict], base: str) -> str:
    """As text, the faster arm of each two over the slower one; without those over `base`, which have a table."""
    rows = [r for r in found if base not in (r["method"], r["over"]) and (r["speed"] or 0) >= 1]
    if not rows:
        return ""
    width = max(len(f"{r['method']} over {r['over']}") for r in rows)
    lines = [f"{'one over another':{width}} {'tokens/s':>22} {'MAT':>22}"]
    for r in sorted(rows, key=lambda r: -r["speed"]):
        cells = (_cell(r["speed"], r["speed_interval"]), _cell(r["mat"], r["mat_interval"]))
        lines.append(f"{r['method'] + ' over ' + r['over']:{width}} {cells[0]:>22} {cells[1]:>22}")
    return "\n".join(lines)


def _cell(value: float | None, interval: Sequence[float] | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" + ("" if interval is None else f" ({interval[0]:.2f} to {interval[1]:.2f})")
