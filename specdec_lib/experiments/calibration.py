"""CSD's hidden knob: what calibration of 100 to 5,000 problems does to kept and accuracy, with a count and with a rate.

Our own. The papers' form (arXiv 2604.13634, known from digests) calibrates on 2,000 to 8,000 prompts and counts.
Left out: the gate and the memory alone (ablation), and other remedies than a rate.
"""

from pathlib import Path

import matplotlib.pyplot as plt

from specdec_lib.csd.calibrate import calibrate, stream
from specdec_lib.csd.file import check_fits, load, save
from specdec_lib.csd.memory import CorrectionMemory
from specdec_lib.drafters import ModelDrafter
from specdec_lib.evaluate import MAX_NEW_TOKENS
from specdec_lib.experiments.base import GAMMA, Lab, beside, between, label_of, percent, table
from specdec_lib.methods import Method, parse_method, tuned_knobs
from specdec_lib.plots import COLOURS
from specdec_lib.smollm2 import cache_folder
from specdec_lib.verifiers.csd import CSD
from specdec_lib.verifiers.csd_rate import CSDRate

WHAT = "csd and csd-rate against the length of their calibration"
PROBLEMS = 500
LENGTHS = (100, 200, 400, 800, 1600, 3200, 5000)  # calibration problems; each memory holds the shorter ones'
TAUS = (0.1, 0.01, 0.001)


def run(lab: Lab) -> dict:
    """rows: greedy speculation, then for each length csd at three gates and csd-rate with the pair's own knobs.

    base.row_of's figures; with texts (the length), pairs and trusted (pairs that the rule would rescue) and, over
    greedy speculation, kept_ratio and accuracy_change with its paired interval. The seed chooses both the calibration
    and the test problems; memories are frozen, and kept in the cache, where a stopped calibration goes on.
    """
    tasks = lab.problems()
    plain = lab.measure("greedy", tasks)
    rows, never = [plain], lab.pair.stops.eos_token_ids | set(lab.pair.tokenizer.all_special_ids)
    known = tuned_knobs(lab.pair.name)
    _, csd = parse_method("csd", tuned=known)
    _, rated = parse_method("csd-rate", tuned=known)
    for length in LENGTHS:
        memory = memory_after(lab, length)
        count, drafter = csd["lambda"], ModelDrafter(lab.pair.draft, GAMMA)
        rules = [({"lambda": count, "tau": tau}, CSD(memory, count, tau, never)) for tau in TAUS]
        knobs = {name: rated[name] for name in ("lambda", "tau", "rate")}
        rules.append((knobs, CSDRate(memory, *knobs.values(), never)))
        for knobs, rule in rules:
            method = Method(rule.name, {"gamma": GAMMA, **knobs}, drafter, rule)
            row = lab.measure(method, tasks, f"after {length}")
            trusted = sum(rule.trusts(x, best) for x, best in memory.pairs)
            more = {"texts": length, "pairs": len(memory.pairs), "trusted": trusted}
            rows.append(row | more | {"kept_ratio": row["kept"] / plain["kept"]} | beside(row, plain))
    return {"rows": rows}


def memory_after(lab: Lab, length: int, folder: Path | None = None) -> CorrectionMemory:
    """The memory of the first `length` calibration problems of this seed, frozen; it is made where it is not there.

    Lengths are asked for in rising order: each goes on from the one before. folder: the cache's unless given.
    """
    folder = folder or cache_folder() / "experiments"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"csd-{lab.pair.name}-{lab.seed}"
    file = folder / f"{name}-{length}.json"
    if not file.is_file():
        source = stream(lab.pair, length, lab.seed)
        save(calibrate(lab.pair, source, folder / f"{name}.json", MAX_NEW_TOKENS, GAMMA, progress=lab.progress), file)
    return check_fits(load(file), lab.pair, str(file)).freeze()


def text(result: dict) -> str:
    plain, *rows = result["rows"]
    heads = ("rule", "texts", "trusted pairs", "kept", "x greedy", "accuracy %", "change, points", "95 % interval")
    first = ("greedy speculation", None, None, plain["kept"], 1.0, percent(plain["accuracy"]), None, None)
    return table(
        heads,
        [
            first,
            *(
                (
                    label_of(row), row["texts"], row["trusted"], row["kept"], row["kept_ratio"],
                    percent(row["accuracy"]), 100 * row["accuracy_change"],
                    between(row["accuracy_change_interval"], 100, 1),
                )
                for row in rows
            ),
        ],
    )  # fmt: skip


def figure(result: dict):
    """Kept and accuracy against the length of the calibration, a line a rule, with 95 % intervals."""
    plain, *rows = result["rows"]
    fig, axes = plt.subplots(1, 2, figsize=(11, 4.5), sharex=True, layout="constrained")
    fig.suptitle(_title(result), fontweight="bold")
    for ax, what, scale in zip(axes, ("kept", "accuracy"), (1, 100), strict=True):
        ax.axhline(scale * plain[what], color=COLOURS["greedy"], ls=":", label="greedy speculation")
        for label, mark in zip(dict.fromkeys(map(label_of, rows)), "os^D", strict=True):
            mine = [row for row in rows if label_of(row) == label]
            off = [[abs(row[f"{what}_interval"][side] - row[what]) * scale for row in mine] for side in (0, 1)]
            ax.errorbar(
                [row["texts"] for row in mine], [scale * row[what] for row in mine], off, marker=mark, capsize=3,
                color=COLOURS[mine[0]["method"]], ls="-" if mine[0]["method"] == "csd-rate" else "--", label=label,
            )  # fmt: skip
        ax.set(xscale="log", xlabel="calibration problems")
    axes[0].set(ylabel=f"kept tokens a round (of {GAMMA} drafted)", ylim=(0, GAMMA))
    axes[1].set(ylabel="answers right, %")
    axes[1].legend(fontsize=9, title="bars: 95 %, bootstrap and Wilson", title_fontsize=9)
    return fig


def _title(result: dict) -> str:
    """True whatever was measured: answers right after the shortest and the longest calibration."""
    _, *rows = result["rows"]
    said = []
    for label in dict.fromkeys(label_of(row) for row in rows):
        first, *_, last = [row for row in rows if label_of(row) == label]
        said.append(f"{label}: {percent(first['accuracy'])} to {percent(last['accuracy'])} %")
    return f"Answers right, {rows[0]['texts']} to {rows[-1]['texts']} calibration problems\n" + "; ".join(said[-2:])
