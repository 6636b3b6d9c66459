"""CSD's hidden knob: what calibration of 100 to 5,000 problems does to kept and accuracy, with a count and with a rate.

Our own. The papers' form (arXiv 2604.13634, known from digests) calibrates on 2,000 to 8,000 prompts and counts.
Left out: the gate alone (csd_ablation.py), and other remedies than a rate (csd_remedies.py).
"""

from collections.abc import Sequence

import matplotlib.pyplot as plt

from specdec_lib.experiments.base import GAMMA, Lab, between, label_of, percent, table
from specdec_lib.experiments.csd_ablation import LOSS, RATE_TIMES
from specdec_lib.experiments.memories import memory_after, over, rule_on
from specdec_lib.experiments.paired import as_lines, claim
from specdec_lib.plots import COLOURS

WHAT = "csd and csd-rate against the length of their calibration"
PROBLEMS = 500
LENGTHS = (100, 200, 400, 800, 1600, 3200, 5000)  # calibration problems; each memory holds the shorter ones'
TAUS = (0.1, 0.01, 0.001, 0.0)  # 0: the memory alone


def run(lab: Lab) -> dict:
    """rows: greedy speculation, then for each length csd at each gate and csd-rate with the pair's own knobs.

    base.row_of's figures; with texts (the length), pairs and trusted (pairs that the rule would rescue) and, over
    greedy speculation, kept_ratio and accuracy_change with its paired interval. claims: paired.claim's. The seed
    chooses both the calibration and the test problems; memories are frozen, and kept in the cache, where a stopped
    calibration goes on.
    """
    tasks = lab.problems()
    plain = lab.measure("greedy", tasks)
    rows = [plain]
    for length in LENGTHS:
        memory = memory_after(lab, length)
        methods = [rule_on(lab.pair, memory, "csd", {"tau": tau}) for tau in TAUS] + [
            rule_on(lab.pair, memory, "csd-rate")
        ]
        for method in methods:
            row = lab.measure(method, tasks, f"after {length}")
            trusted = sum(method.verifier.trusts(x, best) for x, best in memory.pairs)
            rows.append(over(row | {"texts": length, "pairs": len(memory.pairs), "trusted": trusted}, plain))
    return {"rows": rows, "claims": claims(rows)}


def claims(rows: Sequence[dict]) -> list[dict]:
    """Whether csd-rate keeps enough, and loses little, at every length; sure by near ends and paired intervals."""
    plain, rated = rows[0], [row for row in rows[1:] if row["method"] == "csd-rate"]
    few = min(rated, key=lambda row: row["kept"])
    bad = min(rated, key=lambda row: row["accuracy_change"])
    least = few["kept_interval"][0] / plain["kept_interval"][1]
    change, low = bad["accuracy_change"], min(row["accuracy_change_interval"][0] for row in rated)
    enough = few["kept_ratio"] >= RATE_TIMES
    return [
        claim(f"csd-rate keeps at least {RATE_TIMES} times at every length", few["kept_ratio"], enough,
              least >= RATE_TIMES),
        claim("csd-rate loses at most 1 point at every length", 100 * change, change >= -LOSS - 1e-9, low >= -LOSS),
    ]  # fmt: skip


def text(result: dict) -> str:
    plain, *rows = result["rows"]
    heads = ("rule", "texts", "trusted pairs", "kept", "x greedy", "accuracy %", "change, points", "95 % interval")
    first = ("greedy speculation", None, None, plain["kept"], 1.0, percent(plain["accuracy"]), None, None)
    shown = table(
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
    return "\n".join([shown, "", *as_lines(result["claims"])])


def seeds_text(results: Sequence[dict]) -> str:
    """Runs with several seeds, so other calibration and test problems: the least kept, and the range of changes."""
    found: dict[tuple[str, int], list[dict]] = {}
    for result in results:
        for row in result["rows"][1:]:
            found.setdefault((label_of(row), row["texts"]), []).append(row)
    lengths = [texts for _, texts in found]
    lines = []
    for (label, texts), rows in found.items():
        if texts in (min(lengths), max(lengths)):
            changes = [100 * row["accuracy_change"] for row in rows]
            low = min(row["accuracy_change_interval"][0] for row in rows)
            least = min(row["kept_ratio"] for row in rows)
            lines.append((label, texts, len(rows), least, min(changes), max(changes), 100 * low))
    heads = ("rule", "texts", "seeds", "x greedy, least", "change, worst", "best", "lowest 95 % end")
    rated = [row for (label, _), rows in found.items() for row in rows if label.startswith("csd-rate")]
    least, worst = (min(row[name] for row in rated) for name in ("kept_ratio", "accuracy_change"))
    return "\n".join([
        table(heads, lines), "",
        f"csd-rate at every length and seed: at least {least:.2f} times the kept, {100 * worst:+.1f} points at worst",
    ])  # fmt: skip


def figure(result: dict):
    """Kept and accuracy against the length of the calibration, a line a rule, with 95 % intervals."""
    plain, *rows = result["rows"]
    lines = []
    for label, mark in zip(dict.fromkeys(map(label_of, rows)), "os^vD", strict=True):
        mine = [row for row in rows if label_of(row) == label]
        method = mine[0]["method"]
        dash = "-" if method == "csd-rate" else "--"
        lines.append((mine, {"label": label, "color": COLOURS[method], "fmt": mark + dash}))
    fig = against_length(plain, lines, (11, 4.5))
    fig.suptitle(_title(result), fontweight="bold", fontsize=11)
    return fig


def against_length(plain: dict, lines: Sequence[tuple[list[dict], dict]], size: tuple[float, float]):
    """Kept and accuracy of rows with `texts`, with their 95 % intervals; lines: (rows, how they look)."""
    fig, axes = plt.subplots(1, 2, figsize=size, sharex=True, layout="constrained")
    for ax, what, scale in zip(axes, ("kept", "accuracy"), (1, 100), strict=True):
        ax.axhline(scale * plain[what], color=COLOURS["greedy"], ls=":", label="greedy speculation")
        for rows, look in lines:
            off = [[abs(row[f"{what}_interval"][side] - row[what]) * scale for row in rows] for side in (0, 1)]
            ax.errorbar([row["texts"] for row in rows], [scale * row[what] for row in rows], off, capsize=3, **look)
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
