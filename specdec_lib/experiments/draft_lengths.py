"""Draft lengths swept: where the standard rule stops gaining from longer drafts, and the judge goes on.

Follows Bachmann et al. 2025 (arXiv 2501.19309): M = 25 for the judge, 19.7 kept against about 6.3 [B]. Predicted speeds
are ours, by theory.py, from passes that were timed on a quiet machine (pass-times).
Left out: measured speeds (specdec bench).
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt

from specdec_lib.claims import claim
from specdec_lib.experiments.base import Lab, between, label_of, percent, table
from specdec_lib.plots import COLOURS
from specdec_lib.zoo import data_folder

WHAT = "draft lengths from 1 to 32: kept by the standard rule and by the judge, and the speed that follows"
PROBLEMS = 300
LENGTHS = (1, 2, 4, 8, 12, 16, 25, 32)
RULES = ("greedy", "judge")
NAMES = {"greedy": "standard", "judge": "judge"}
PAPER = {"greedy": "judge-kept-standard", "judge": "judge-kept-judge"}
PAPER_LENGTH = 25


def run(lab: Lab) -> dict:
    """rows: one a rule and draft length, base.row_of's figures and predicted_tok_per_s: MAT over gamma D(1) +
    T(gamma + 1), with the times of data/experiments/pass-times-PAIR.json; None where these have not been recorded, or
    are of other weights.
    """
    tasks = lab.problems()
    rows = [lab.measure(f"{rule}:gamma={gamma}", tasks) for gamma in LENGTHS for rule in RULES]
    times = recorded_times(data_folder() / "experiments" / f"pass-times-{lab.pair.name}.json", lab.pair.checksums)
    for row in rows:
        row["predicted_tok_per_s"] = predicted(row, times)
    plain = None if times is None else 1 / times[0][0]
    return {"rows": rows, "plain_tok_per_s": plain}


def recorded_times(file: Path, checksums: dict) -> dict[int, tuple[float, float]] | None:
    """{gamma: (T(gamma + 1), D(1))} of a file that pass-times wrote for these weights; None where there is none.

    ValueError for a file of another form.
    """
    if not file.is_file():
        return None
    try:
        found = json.loads(file.read_text())
        times = {row["gamma"]: (row["target_s"], row["draft_step_s"] or 0.0) for row in found["rows"]}
        return times if found["provenance"]["checksums"] == checksums else None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} holds no pass times ({error!r}); specdec experiment pass-times makes them") from error


def predicted(row: dict, times: dict[int, tuple[float, float]] | None) -> float | None:
    """Tokens a second of the rounds: MAT / (gamma D(1) + T(gamma + 1))."""
    gamma = row["settings"]["gamma"]
    if times is None or gamma not in times:
        return None
    target_s, draft_step_s = times[gamma]
    return row["mat"] / (gamma * draft_step_s + target_s)


def text(result: dict) -> str:
    heads = ("rule", "kept", "95 % interval", "accuracy %", "predicted tok/s")
    shown = table(
        heads,
        [
            (
                label_of(row) if row["settings"]["gamma"] != 8 else f"{label_of(row)} (gamma 8)", row["kept"],
                between(row["kept_interval"]), percent(row["accuracy"]), row["predicted_tok_per_s"],
            )
            for row in result["rows"]
        ],
    )  # fmt: skip
    best = {rule: best_length(result["rows"], rule) for rule in RULES}
    if None in best.values():
        return f"{shown}\nNo predicted speeds: specdec experiment pass-times has not been recorded for these models."
    return f"{shown}\n" + "; ".join(
        f"{NAMES[rule]}: fastest at {row['settings']['gamma']}, {row['predicted_tok_per_s']:.0f} tok/s predicted"
        for rule, row in best.items()
    )


def best_length(rows: list[dict], rule: str) -> dict | None:
    """The row of the draft length with the highest predicted speed."""
    mine = [row for row in rows if row["method"] == rule and row["predicted_tok_per_s"] is not None]
    return max(mine, key=lambda row: row["predicted_tok_per_s"], default=None)


def figure(result: dict):
    """Kept against the draft length, the paper's pair of values as marks; beside it the predicted speed, if known."""
    rows = result["rows"]
    timed = any(row["predicted_tok_per_s"] is not None for row in rows)
    fig, axes = plt.subplots(1, 1 + timed, figsize=(12 if timed else 8, 4.8), layout="constrained", squeeze=False)
    left, last = axes[0][0], {}
    for rule in RULES:
        mine = [row for row in rows if row["method"] == rule]
        x, y = [row["settings"]["gamma"] for row in mine], [row["kept"] for row in mine]
        off = [[abs(row["kept_interval"][side] - row["kept"]) for row in mine] for side in (0, 1)]
        left.errorbar(x, y, off, color=COLOURS[rule], marker="o", lw=2, capsize=3, label=NAMES[rule])
        paper = claim(PAPER[rule])
        left.plot(
            PAPER_LENGTH, paper.value, "D", color=COLOURS["paper"], mfc=COLOURS[rule], ms=9, ls="",
            label=f"paper, {NAMES[rule]}, 8B/405B [{paper.grade}]",
        )  # fmt: skip
        last[rule] = {row["settings"]["gamma"]: row["kept"] for row in mine}
        if timed:
            speeds = [row["predicted_tok_per_s"] for row in mine]
            axes[0][1].plot(x, speeds, "o-", color=COLOURS[rule], lw=2, label=NAMES[rule])
    left.plot([0, max(LENGTHS)], [0, max(LENGTHS)], ":", color="#888888", label="everything kept")
    left.set(
        xlabel="draft length M", ylabel="kept tokens a round", ylim=(0, max(22, *(row["kept"] + 1 for row in rows)))
    )
    left.legend(fontsize=9, title="bars: 95 % bootstrap over problems", title_fontsize=9)
    gains = {rule: kept[max(LENGTHS)] - kept[8] for rule, kept in last.items()}
    left.set_title(
        f"From 8 to {max(LENGTHS)} drafts: standard {gains['greedy']:+.1f} kept, judge {gains['judge']:+.1f}"
    )
    if timed:
        right = axes[0][1]
        if result["plain_tok_per_s"]:
            right.axhline(result["plain_tok_per_s"], color=COLOURS["autoregressive"], ls="--", label="plain decoding")
        best = {rule: best_length(rows, rule)["settings"]["gamma"] for rule in RULES}
        right.set(xlabel="draft length M", ylabel="predicted tokens a second", ylim=(0, None))
        right.set_title(f"Predicted fastest: M = {best['greedy']} and {best['judge']} (judge)")
        right.legend(fontsize=9)
    return fig
