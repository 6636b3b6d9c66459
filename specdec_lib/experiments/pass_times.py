"""What passes cost: T(k) of the target and D(1) of the draft, on a machine that has nothing else to do.

Our own; the times enter the predictions of draft-lengths (theory.py).
Left out: whole answers timed (bench.py), which is what a speed-up is.
"""

import statistics

from specdec_lib import plots
from specdec_lib.bench import draft_step_s
from specdec_lib.experiments.base import Lab, table
from specdec_lib.experiments.draft_lengths import LENGTHS
from specdec_lib.machine import pass_times
from specdec_lib.plots import COLOURS
from specdec_lib.pocket.tokenizer import prompt_ids
from specdec_lib.sampling import SamplingSettings

WHAT = "what passes cost: T(k) and a draft step (needs a quiet machine; draft-lengths reads the recorded result)"
PROBLEMS = 20
CONTEXT = 90  # tokens before the timed passes: the middle of an answer


def run(lab: Lab) -> dict:
    """rows: one a draft length gamma: target_s, T(gamma + 1), and draft_step_s, D(1) as the loop takes a step; gamma 0
    is a plain step. Medians over n contexts, in seconds.
    """
    target, steps = {gamma: [] for gamma in (0, *LENGTHS)}, {gamma: [] for gamma in LENGTHS}
    for problem in lab.watch("pass times", lab.problems()):
        ids = prompt_ids(lab.pair.tokenizer, problem.question)
        ids = [ids[i % len(ids)] for i in range(CONTEXT)]
        times = pass_times(lab.pair.target, [gamma + 1 for gamma in target], CONTEXT, repeats=1)
        for gamma in target:
            target[gamma].append(times[gamma + 1])
            if gamma:
                steps[gamma].append(draft_step_s(lab.pair, gamma, ids, SamplingSettings()))
    rows = [
        {
            "gamma": gamma,
            "target_s": statistics.median(taken),
            "draft_step_s": statistics.median(steps[gamma]) if gamma else None,
        }
        for gamma, taken in target.items()
    ]
    return {"rows": rows, "context": CONTEXT}


def text(result: dict) -> str:
    rows = result["rows"]
    return table(
        ("draft length", "T(gamma + 1), ms", "over T(1)", "D(1), ms"),
        [
            (
                str(row["gamma"]), 1000 * row["target_s"], row["target_s"] / rows[0]["target_s"],
                1000 * row["draft_step_s"] if row["draft_step_s"] else None,
            )
            for row in rows
        ],
    )  # fmt: skip


def figure(result: dict):
    """T(k) and gamma D(1), the two parts of a round."""
    rows = result["rows"]
    most = rows[-1]["target_s"] / rows[0]["target_s"]
    title = f"A pass over {rows[-1]['gamma'] + 1} tokens costs {most:.1f} times what a pass over one costs"
    fig, ax = plots.figure(title, "draft length gamma", "median milliseconds")
    x = [row["gamma"] for row in rows]
    ax.plot(x, [1000 * row["target_s"] for row in rows], "o-", color=COLOURS["target"], label="target, T(gamma + 1)")
    drafts = [1000 * row["gamma"] * (row["draft_step_s"] or 0) for row in rows]
    ax.plot(x, drafts, "s-", color=COLOURS["draft"], label="draft, gamma steps")
    ax.set(ylim=(0, None))
    ax.legend(fontsize=10)
    return fig
