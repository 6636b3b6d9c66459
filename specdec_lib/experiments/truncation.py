"""What a truncation-style verifier samples from, beside direct sampling from the truncated target: exactly, by listing.

Follows the warning of arXiv 2607.26627: a rule that accepts whatever lies in a truncated set does not sample from the
truncated target. The laws here are ours.
Left out: measured models; every outcome of the loop is listed, which takes a small vocabulary.
"""

import math
from collections.abc import Sequence

import matplotlib.pyplot as plt

from specdec_lib.decode import Session
from specdec_lib.drafters import ModelDrafter
from specdec_lib.experiments.base import Lab, table
from specdec_lib.model import TableModel
from specdec_lib.plots import COLOURS
from specdec_lib.sampling import SamplingSettings, outcomes
from specdec_lib.verifiers import LosslessRejection, TopK, Typical, Verifier

WHAT = "what top-K and typical acceptance sample from, beside the truncated target (exact, on five tokens)"
PROBLEMS = 2  # none is read: the laws are fixed
TARGET = (0.40, 0.25, 0.20, 0.10, 0.05)
DRAFT = (0.05, 0.15, 0.45, 0.25, 0.10)  # it likes a token that the target ranks third
TOP_K = 3


def run(lab: Lab | None = None) -> dict:
    """rows: one a rule: `rule`, the `law` of the first emitted token, the set it truncates to (`kept`, token numbers),
    p on that set scaled to sum 1 (`truncated`), and the law's total variation to p and to truncated p.

    p and q stand beside the rows. Every rule drafts one token from q at temperature 1. The last row is direct sampling:
    the lossless rule, with both laws truncated first, as transformers' top_k does.
    """
    top = sorted(range(len(TARGET)), key=lambda i: -TARGET[i])[:TOP_K]
    entropy = -sum(p * math.log(p) for p in TARGET)
    typical = Typical()
    likely = min(typical.epsilon, typical.delta * math.exp(-entropy))
    arms = [
        ("lossless", LosslessRejection(), None, list(range(len(TARGET)))),
        (f"top-K verifier, K = {TOP_K}", TopK(TOP_K), None, top),
        ("typical acceptance", typical, None, [i for i, p in enumerate(TARGET) if p > likely]),
        (f"direct sampling, top_k = {TOP_K}", LosslessRejection(), TOP_K, top),
    ]
    rows = []
    for name, rule, top_k, kept in arms:
        law = first_token_law(TARGET, DRAFT, rule, top_k)
        mass = sum(TARGET[i] for i in kept)
        truncated = [p / mass if i in kept else 0.0 for i, p in enumerate(TARGET)]
        to_target, to_truncated = (total_variation(law, other) for other in (TARGET, truncated))
        rows.append(
            {
                "rule": name, "law": law, "kept": kept, "truncated": truncated, "to_target": to_target,
                "to_truncated": to_truncated,
            }
        )  # fmt: skip
    return {"rows": rows, "p": list(TARGET), "q": list(DRAFT)}


def first_token_law(target: Sequence[float], draft: Sequence[float], rule: Verifier, top_k: int | None) -> list[float]:
    """The law of the first token that the loop emits, summed over every outcome of one round with one draft."""
    settings = SamplingSettings(1.0, top_k=top_k)

    def first(chance) -> int:
        drafter = ModelDrafter(TableModel.constant(draft), 1)
        session = Session(TableModel.constant(target), drafter, rule, settings, chance=chance).start([0])
        return next(session.rounds(2)).emitted[0]  # two, so that there is room for a draft

    law = [0.0] * len(target)
    for weight, token in outcomes(first):
        law[token] += weight
    return law


def total_variation(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / 2


def text(result: dict) -> str:
    names = "ABCDE"[: len(result["p"])]
    heads = ("law of one token", *names, "truncates to", "TV to p", "TV to truncated p")
    lines = [("p, target", *result["p"], "", "", ""), ("q, draft", *result["q"], "", "", "")]
    for row in result["rows"]:
        kept = "".join(names[i] for i in sorted(row["kept"]))
        lines.append((row["rule"], *row["law"], kept, row["to_target"], row["to_truncated"]))
    return table(heads, [[f"{c:.3f}" if isinstance(c, float) else c for c in line] for line in lines])


def figure(result: dict):
    """A panel a rule: the emitted law as bars; p, q and truncated p as marks."""
    rows, x = result["rows"], range(len(result["p"]))
    fig, axes = plt.subplots(1, len(rows), figsize=(3.4 * len(rows), 4.4), layout="constrained", sharey=True)
    for ax, row in zip(axes, rows, strict=True):
        ax.bar(x, row["law"], width=0.7, color=COLOURS["lossless"], label="emitted")
        ax.plot(x, result["p"], "D", color=COLOURS["target"], markersize=9, label="p, target")
        ax.plot(x, result["q"], "x", color=COLOURS["draft"], markersize=8, mew=2, label="q, draft")
        ax.plot(x, row["truncated"], "_", color="black", markersize=26, mew=3, label="truncated p")
        ax.set_title(
            f"{row['rule']}\nTV to p {row['to_target']:.3f}\nto truncated p {row['to_truncated']:.3f}", fontsize=11
        )
        ax.set(xticks=x, xticklabels=list("ABCDE")[: len(x)], xlabel="token", ylim=(0, 0.55))
    axes[0].set_ylabel("probability")
    axes[0].legend(fontsize=9)
    top, direct = rows[1], rows[-1]
    verb = "is not" if top["to_truncated"] > direct["to_truncated"] + 1e-9 else "is"
    fig.suptitle(
        f"Accepting what lies in the truncated set {verb} sampling from the truncated target "
        f"(total variation {top['to_truncated']:.2f} and {direct['to_truncated']:.2f})",
        fontweight="bold",
    )
    return fig
