"""How soon a memory is worth having: short calibrations, and a memory that starts empty and learns while it is used.

Our own; the paper (arXiv 2604.13634, from digests) calibrates first and then goes on online.
Left out: long calibrations (calibration.py), and other problem families (csd_transfer.py).
"""

from specdec_lib import plots
from specdec_lib.evaluate import Answer
from specdec_lib.experiments.base import GAMMA, Lab, answers_by, between, percent, row_of, table
from specdec_lib.experiments.memories import memory_after, over, rule_on
from specdec_lib.plots import COLOURS

WHAT = "csd and csd-rate after 0 to 200 calibration problems, and csd that learns as it goes"
PROBLEMS = 150
LENGTHS = (0, 10, 20, 50, 100, 200)
BLOCKS = 5  # of the problems, for a memory that learns meanwhile


def run(lab: Lab) -> dict:
    """rows: greedy speculation; csd and csd-rate on a frozen memory of each length (texts); then csd with memory_now
    "online", which starts empty and learns from the test problems in their order: a row a block of them, with texts,
    how many it had seen when the block began. accuracy_change is over greedy speculation on the same problems,
    kept_ratio over what it keeps on all.
    """
    tasks = lab.problems()
    plain = lab.measure("greedy", tasks)
    rows = [plain]
    for length in LENGTHS:
        memory = memory_after(lab, length)
        for name in ("csd", "csd-rate"):
            row = lab.measure(rule_on(lab.pair, memory, name), tasks, f"after {length}")
            rows.append(over(row, plain) | {"texts": length, "memory_now": "frozen"})
    method = rule_on(lab.pair, memory_after(lab, 0).snapshot())
    found: list[Answer] = []

    def block(start: int, end: int) -> dict:
        if not found:  # one run through all problems, for all blocks
            found.extend(answers_by(lab.pair, method, lab.watch("csd online", tasks)))
        return {"method": "csd", "settings": method.knobs, **row_of(found[start:end])}

    for start, end in blocks(len(tasks)):
        row = lab.rows.get(f"online {start}", lambda start=start, end=end: block(start, end))
        part = plain["right"][start:end]
        same = row | {"accuracy_change": (row["right"].count("1") - part.count("1")) / len(part)}
        rows.append(same | {"kept_ratio": row["kept"] / plain["kept"], "texts": start, "memory_now": "online"})
    return {"rows": rows}


def blocks(n: int) -> list[tuple[int, int]]:
    """Up to BLOCKS stretches of n problems, of two or more each."""
    parts = max(1, min(BLOCKS, n // 2))
    bounds = [n * i // parts for i in range(parts + 1)]
    return list(zip(bounds, bounds[1:], strict=False))


def text(result: dict) -> str:
    plain, *rows = result["rows"]
    heads = ("rule", "memory", "texts before", "kept", "95 % interval", "x greedy", "accuracy %", "change, points")
    lines = [("greedy", None, None, plain["kept"], between(plain["kept_interval"]), 1.0, percent(plain["accuracy"]), 0)]
    lines += [
        (
            row["method"], row["memory_now"], row["texts"], row["kept"], between(row["kept_interval"]),
            row["kept_ratio"], percent(row["accuracy"]), f"{100 * row['accuracy_change']:+.1f}",
        )
        for row in rows
    ]  # fmt: skip
    blocks_of = next(row["n"] for row in rows if row["memory_now"] == "online")
    said = f"x greedy: over greedy speculation on all {plain['n']} problems, also for online blocks of {blocks_of}"
    return "\n".join([table(heads, lines), said])


def figure(result: dict):
    """Kept against texts seen before: frozen memories of each length, and blocks of the run that learns."""
    plain, *rows = result["rows"]
    lines = {
        ("csd", "frozen"): ("o-", "csd, frozen after so many"), ("csd-rate", "frozen"): ("s-", "csd-rate, frozen"),
        ("csd", "online"): ("D--", "csd, learning as it goes"),
    }  # fmt: skip
    last = {key: [row for row in rows if (row["method"], row["memory_now"]) == key][-1]["kept_ratio"] for key in lines}
    title = (
        f"Frozen after {max(row['texts'] for row in rows if row['memory_now'] == 'frozen')} problems csd keeps "
        f"{last['csd', 'frozen']:.1f} times greedy speculation's tokens;\n"
        f"started empty, {last['csd', 'online']:.1f} times in the last block"
    )
    fig, ax = plots.figure(title, "texts seen before", f"kept tokens a round (of {GAMMA} drafted)", (9, 4.8))
    ax.axhline(plain["kept"], color=COLOURS["greedy"], ls=":", label="greedy speculation")
    for (name, now), (mark, label) in lines.items():
        mine = [row for row in rows if (row["method"], row["memory_now"]) == (name, now)]
        off = [[abs(row["kept_interval"][side] - row["kept"]) for row in mine] for side in (0, 1)]
        colour = COLOURS["csd-memory"] if now == "online" else COLOURS[name]
        ax.errorbar(
            [row["texts"] for row in mine], [row["kept"] for row in mine], off, fmt=mark, capsize=3, color=colour,
            label=label,
        )  # fmt: skip
    ax.set(ylim=(0, GAMMA))
    ax.legend(fontsize=9, title="bars: 95 %, bootstrap over problems", title_fontsize=9)
    return fig
