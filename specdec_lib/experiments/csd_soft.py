"""When a rate no longer tells a wording from a slip: the draft made worse, step by step, by noise in its weights.

Our own. A word with one other wording has a rate near 1, one with several splits it among them, and a slip has one near
0; a draft that slips often could have pairs in between, where right and wrong rescues mix.
Left out: other remedies (csd_remedies.py).
"""

import copy
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import matplotlib.pyplot as plt
import torch

from specdec_lib.csd.file import owner_of
from specdec_lib.csd.memory import CorrectionMemory
from specdec_lib.evaluate import Answer, is_right_next
from specdec_lib.experiments.base import Lab, answers_by, between, label_of, percent, table
from specdec_lib.experiments.memories import over, rule_on
from specdec_lib.experiments.tradeoff import draft_alone
from specdec_lib.methods import build_method
from specdec_lib.model import CausalLM
from specdec_lib.plots import COLOURS
from specdec_lib.pocket.world import problems
from specdec_lib.verifiers.base import REJECTED
from specdec_lib.zoo import Pair

WHAT = "csd-rate with ever worse drafts: what the rejected tokens of each rate are, and what rescuing them costs"
PROBLEMS = 60
LENGTH = 300  # calibration problems, for each draft
NOISES = (0.0, 0.1, 0.2)  # standard deviation, over that of a weight's own matrix
TAU = 0.001
RATES = (0.1, 0.3, 0.6, 0.9)  # bounds between the groups of pairs, and thresholds of csd-rate


def softened(pair: Pair, noise: float, seed: int = 0) -> Pair:
    """The pair with normal noise in its draft's weights, in units of each matrix's standard deviation; 0: itself."""
    if not noise:
        return pair
    generator, model = torch.Generator().manual_seed(seed), copy.deepcopy(pair.draft.model)
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() > 1:
                weights += noise * weights.std() * torch.randn(weights.shape, generator=generator)
    draft = CausalLM(model, pair.draft.vocab_size)
    return replace(pair, draft=draft, checksums=pair.checksums | {"draft": f"{pair.checksums['draft']} + {noise:g}"})


def run(lab: Lab) -> dict:
    """rows, for each noise: the draft alone, greedy speculation, csd, and csd-rate at each rate on one frozen memory;
    base.row_of's figures, noise, and over greedy speculation memories.over's.

    groups: for each noise, what `grouped` says of the calibration problems' rejections.
    """
    rows, groups = [], []
    for noise in NOISES:
        mine = replace(lab, pair=softened(lab.pair, noise, lab.seed))
        tasks, key = mine.problems(), f"noise {noise:g}"
        asked = problems("calibration", LENGTH, lab.seed)
        answers = answers_by(mine.pair, build_method("greedy", mine.pair), mine.watch(key, asked))
        memory = CorrectionMemory(owner_of(mine.pair))
        for answer in answers:
            memory.teach_trace(answer.trace)
        memory.freeze()
        groups.append({"noise": noise, "rates": grouped(mine.pair, memory, answers)})
        rules = [rule_on(mine.pair, memory, "csd", {"tau": TAU})]
        rules += [rule_on(mine.pair, memory, "csd-rate", {"tau": TAU, "rate": rate}) for rate in RATES]
        plain = mine.measure("greedy", tasks, key)
        rows += [draft_alone(mine, tasks, key) | {"noise": noise}, plain | {"noise": noise}]
        rows += [over(mine.measure(rule, tasks, key), plain) | {"noise": noise} for rule in rules]
    return {"rows": rows, "groups": groups, "texts": LENGTH}


def grouped(pair: Pair, memory: CorrectionMemory, answers: Sequence[Answer]) -> list[dict]:
    """First rejected tokens behind a right beginning, by the rate of their pair: from and to (rates), pairs,
    rejections, right_share: of them, those that the checker calls right (None for none).
    """
    bounds = [0.0, *RATES, 1.0]
    labels, pairs = defaultdict(list), defaultdict(set)
    for answer in answers:
        before: list[int] = []
        for r in answer.trace.rounds:
            for node, outcome in r.outcomes.items():
                if outcome == REJECTED and len(r.path) < len(r.emitted):
                    x, wanted = r.tokens[node], r.best[r.parents[node]]
                    right = is_right_next(pair, answer.problem, [*before, *(r.tokens[n] for n in r.path)], x)
                    if right is not None:
                        group = sum(memory.rate(x, wanted) >= bound for bound in RATES)
                        labels[group].append(right)
                        pairs[group].add((x, wanted))
            before += r.emitted
    return [
        {
            "from": low, "to": high, "pairs": len(pairs[group]), "rejections": len(labels[group]),
            "right_share": sum(labels[group]) / len(labels[group]) if labels[group] else None,
        }
        for group, (low, high) in enumerate(zip(bounds, bounds[1:], strict=False))
    ]  # fmt: skip


def text(result: dict) -> str:
    heads = ("rule", "noise", "kept", "x greedy", "accuracy %", "change, points", "95 % paired")
    lines = [
        (
            label_of(row), f"{row['noise']:g}", row["kept"], row.get("kept_ratio"), percent(row["accuracy"]),
            None if "kept_ratio" not in row else f"{100 * row['accuracy_change']:+.1f}",
            between(row.get("accuracy_change_interval"), 100, 1),
        )
        for row in result["rows"]
    ]  # fmt: skip
    rates = [
        (
            f"noise {group['noise']:g}, rate {rate['from']:g} to {rate['to']:g}", rate["pairs"], rate["rejections"],
            percent(rate["right_share"]),
        )
        for group in result["groups"]
        for rate in group["rates"]
    ]  # fmt: skip
    return "\n".join([table(heads, lines), "", table(("pairs by rate", "pairs", "rejections", "right %"), rates)])


def figure(result: dict):
    """Rejections by the rate of their pair, right and wrong ones, for each noise; and csd-rate's change in accuracy
    with its intervals.
    """
    groups, n = result["groups"], len(result["groups"])
    fig, axes = plt.subplots(1, n + 1, figsize=(3.4 * (n + 1), 4.6), layout="constrained")
    alone = {row["noise"]: row for row in result["rows"] if row["method"] == "draft alone"}
    rated = [row for row in result["rows"] if row["method"] == "csd-rate"]
    worst = min(rated, key=lambda row: row["accuracy_change"])
    fig.suptitle(
        f"csd-rate with ever worse drafts: at its worst {100 * worst['accuracy_change']:+.1f} "
        f"points (noise {worst['noise']:g}, rate {worst['settings']['rate']:g})",
        fontweight="bold", fontsize=12,
    )  # fmt: skip
    for ax, group in zip(axes, groups, strict=False):
        for x, rate in enumerate(group["rates"]):
            right = rate["rejections"] * (rate["right_share"] or 0)
            ax.bar(x, right, color=COLOURS["accepted"], label=None if x else "right")
            ax.bar(x, rate["rejections"] - right, bottom=right, color=COLOURS["rejected"], label=None if x else "wrong")
        ax.set_xticks(
            range(len(group["rates"])), [f"{r['from']:g} to {r['to']:g}" for r in group["rates"]], rotation=45
        )
        accuracy = percent(alone[group["noise"]]["accuracy"])
        ax.set(title=f"noise {group['noise']:g}, draft {accuracy} %", xlabel="rate of the pair")
    axes[0].set(ylabel="first rejections")
    axes[0].legend(fontsize=9)
    for i, (group, mark_) in enumerate(zip(groups, "os^D"[:n], strict=True)):
        mine = [row for row in rated if row["noise"] == group["noise"]]
        changes, intervals = ([row[what] for row in mine] for what in ("accuracy_change", "accuracy_change_interval"))
        off = [[100 * abs(b[side] - c) for b, c in zip(intervals, changes, strict=True)] for side in (0, 1)]
        at = [row["settings"]["rate"] + 0.02 * (i - n // 2) for row in mine]  # aside, so that no bar hides another
        axes[-1].errorbar(
            at, [100 * c for c in changes], off, fmt=f"{mark_}-", capsize=3, label=f"noise {group['noise']:g}"
        )
    axes[-1].axhline(0, color=COLOURS["target"], lw=1)
    lowest = min(100 * row["accuracy_change_interval"][0] for row in rated)
    axes[-1].set(title="csd-rate", xlabel="least rate", ylabel="change in accuracy, points", ylim=(min(-6, lowest), 6))
    axes[-1].legend(fontsize=9, title="bars: 95 %, paired", title_fontsize=9)
    return fig
