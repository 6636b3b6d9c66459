"""The picture of experiments/retrieval.py: MAT over the number of nodes, and the speed-up by T(k), here and on GPUs.

Our own; what is compared follows LogitSpec (arXiv 2507.01449), section 4.
Left out: the numbers themselves. The bars of GPUs are predictions, and say so.
"""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np

from specdec_lib.colours import COLOURS


def figure(result: dict):
    """Left, MAT over the number of nodes: LogitSpec's capacities as a line, the other drafters as points. Right, the
    speed-up by T(k), as measured here and as predicted on GPUs.
    """
    rows = {row["drafter"]: row for row in result["rows"]}
    fig, (left, right) = plt.subplots(1, 2, figsize=(13, 4.8), layout="constrained", width_ratios=(1.15, 1))
    _nodes(left, rows)
    _speeds(right, rows, result["gpus_flat_to"])
    return fig


def _nodes(ax, rows: dict[str, dict]) -> None:
    line = [row for name, row in rows.items() if name.startswith("logitspec:capacity=")] + [rows["logitspec"]]
    gain = rows["logitspec"]["over_pld"]["mat"]
    ax.set(
        title=f"64 nodes emit {gain:.2f} times pld's tokens a round", xlabel="mean nodes proposed",
        ylabel="MAT, tokens a round",
    )  # fmt: skip
    ax.plot([r["nodes"] for r in line], [r["mat"] for r in line], "o-", color=COLOURS["logitspec"], label="logitspec")
    points = {"pld": "pld", "pld, whole": "autoregressive", "pld:gamma=4": "draft", "logitspec-cost": "logitspec-cost",
              "guesses alone": "bonus", "retrieval alone": "rescued"}  # fmt: skip
    for name, colour in points.items():
        row = rows[name]
        low, high = row["mat_interval"]
        bars = [[row["mat"] - low], [high - row["mat"]]]
        ax.errorbar(row["nodes"], row["mat"], bars, fmt="s", color=COLOURS[colour], capsize=4, label=name)
    ax.plot([], [], color="black", lw=1.5, label="95 % interval, bootstrap over texts")
    ax.set_xscale("symlog", base=2)
    ax.set_xticks([1, 2, 4, 8, 16, 32, 64], [1, 2, 4, 8, 16, 32, 64])
    ax.legend(fontsize=9, loc="upper left")
    ax.set_ylim(top=ax.get_ylim()[1] + 0.35)  # room for the legend


def _speeds(ax, rows: dict[str, dict], flat_to: Mapping[str, float]) -> None:
    shown = [name for name, row in rows.items() if row["gpus"]]
    wins = sum(rows["logitspec"]["gpus"][gpu]["speedup"] > rows["pld"]["gpus"][gpu]["speedup"] for gpu in flat_to)
    ax.set(title=f"Predicted: logitspec beats pld on {wins} of {len(flat_to)} GPUs", ylabel="speed-up by T(k)")
    places = np.arange(1 + len(flat_to))
    for i, name in enumerate(shown):
        row = rows[name]
        heights = [row["speedup_by_t"], *(row["gpus"][gpu]["speedup"] for gpu in flat_to)]
        bars = ax.bar(places + 0.27 * (i - 1), heights, 0.25, color=COLOURS[name], label=name)
        ax.bar_label(bars, fmt="%.2f", fontsize=8)
    names = [
        "here, T(k)\nmeasured",
        *(gpu.replace(" on a ", ",\n") + f"\nflat to {flat:g}" for gpu, flat in flat_to.items()),
    ]
    ax.set_xticks(places, names, fontsize=9)
    ax.axhline(1, color="black", lw=1)
    ax.legend(fontsize=9, loc="upper left", ncols=3)
    ax.set_ylim(top=1.2 * ax.get_ylim()[1])
