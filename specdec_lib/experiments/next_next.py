"""The token after next in the last logits: how often the row that emitted a token also ranks the one that follows it.

Follows LogitSpec (arXiv 2507.01449): within the top 60 in over half of the steps [S], with models of 7B and more.
Left out: drafting with it (retrieval.py). The rank counts from the row's argmax, which is the emitted token: rank 0.
"""

from collections import defaultdict
from collections.abc import Iterable

from specdec_lib import plots
from specdec_lib.colours import COLOURS
from specdec_lib.experiments.base import Lab, between, percent, table
from specdec_lib.experiments.recording import Recorded, texts_of
from specdec_lib.stats import totals_interval

WHAT = "the token after next in the last logits: its rank, by kind of task"
PROBLEMS = 60
ANY_PAIR = True
KS = (1, 2, 4, 8, 16, 32, 60, 64)
TOP = 60  # the paper's


def run(lab: Lab) -> dict:
    """rows: shares() of the lab's texts."""
    return {"rows": shares(lab.watch("ranks", texts_of(lab))), "ks": list(KS)}


def shares(texts: Iterable[Recorded]) -> list[dict]:
    """A row a group, and "all": steps, and for each k the share of steps whose next-next token is among the row's
    best k; top_60_interval: 95 % bootstrap over texts. Greedy texts; the last token of a text has no successor.
    """
    groups = defaultdict(list)  # group: for each text (steps, within the best k for each k)
    for recorded in texts:
        counts = [0] * (len(KS) + 1)
        for row, after in zip(recorded.best, recorded.text[1:], strict=False):
            found = (row == after).nonzero()[0]
            counts[0] += 1
            for i, k in enumerate(KS, start=1):
                counts[i] += bool(len(found) and found[0] < k)
        for group in (recorded.group, "all"):
            groups[group].append(counts)
    at = KS.index(TOP) + 1
    return [
        {
            "group": group,
            "texts": len(texts),
            "steps": sum(counts[0] for counts in texts),
            "share": {str(k): sum(c[i] for c in texts) / sum(c[0] for c in texts) for i, k in enumerate(KS, start=1)},
            "top_60_interval": totals_interval([[c[at], c[0]] for c in texts], lambda within, steps: within / steps)
            if len(texts) > 1
            else None,
        }
        for group, texts in sorted(groups.items(), key=lambda item: (item[0] == "all", item[0]))
    ]


def text(result: dict) -> str:
    heads = ("group", "steps", *(f"top {k}" for k in result["ks"]), "95 % of top 60")
    return table(
        heads,
        [
            (
                row["group"], row["steps"], *(percent(row["share"][str(k)]) for k in result["ks"]),
                between(row["top_60_interval"], 100, 1),
            )
            for row in result["rows"]
        ],
    )  # fmt: skip


def figure(result: dict):
    """A curve over k for each group, the one over all texts thick; the paper's share as a mark."""
    share = next(row for row in result["rows"] if row["group"] == "all")["share"][str(TOP)]
    title = f"The token after next is among the last row's best {TOP} in {100 * share:.0f} % of steps"
    fig, ax = plots.figure(title, "k, best tokens of the row that emitted the newest token", "share of steps, %")
    for row in result["rows"]:
        every = row["group"] == "all"
        ax.plot(
            result["ks"], [100 * row["share"][str(k)] for k in result["ks"]], marker="o", label=row["group"],
            color=COLOURS["target"] if every else None, lw=3 if every else 1.2, alpha=1 if every else 0.7,
        )  # fmt: skip
        if every and row["top_60_interval"]:
            low, high = row["top_60_interval"]
            ax.vlines(TOP, 100 * low, 100 * high, color="black", lw=2, label="95 % interval, bootstrap over texts")
    ax.plot(TOP, 50, "D", color=COLOURS["paper"], markersize=9, label="paper [S]: over half")
    ax.set_xscale("log", base=2)
    shown = [k for k in result["ks"] if k <= TOP]  # 64 stands too near to 60 for a label of its own
    ax.set(ylim=(0, 100), xticks=shown, xticklabels=shown)
    ax.legend(fontsize=9)
    return fig
