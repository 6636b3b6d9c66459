"""What the index of n-grams costs: microseconds a token added and a look-up, in texts of 1k to 128k tokens.

Our own; LogitSpec (arXiv 2507.01449) says that drafting is 1.17 % of its time [S].
Left out: models. Operations of the dictionary are counted in the tests; here they are timed, so the machine should be
quiet. What grows is the memory: three keys a token at most.
"""

import itertools
import random
import statistics
import time

from specdec_lib import plots
from specdec_lib.colours import COLOURS
from specdec_lib.experiments.base import Lab, table
from specdec_lib.ngrams import NGramIndex

WHAT = "what the n-gram index costs a token, from 1k to 128k tokens of text (needs a quiet machine)"
PROBLEMS = 200  # the timed tokens and look-ups at each length
ANY_PAIR = True
LENGTHS = (1_000, 4_000, 16_000, 64_000, 128_000)
VOCABULARY = 50_000
COMMON = 1.05  # exponent of the tokens' frequencies: a few tokens make up most of a text, as in any language
BATCH = 20  # operations timed together


def run(lab: Lab) -> dict:
    """rows: one a length: add_us and find_us, medians over n timings, and keys, entries of the dictionary."""
    draws = random.Random(lab.seed)
    weights = list(itertools.accumulate(1 / rank**COMMON for rank in range(1, VOCABULARY + 1)))

    def tokens(n: int) -> list[int]:
        return draws.choices(range(VOCABULARY), cum_weights=weights, k=n)

    index, rows = NGramIndex(), []
    for length in lab.watch("index", LENGTHS):
        index.sync([*index.ids, *tokens(length - len(index.ids))])
        adding, finding = [], []
        for _ in range(lab.n):
            tails = [tokens(3) for _ in range(BATCH)]
            began = time.perf_counter()
            for tail in tails:
                index.find(tail)
            finding.append(time.perf_counter() - began)
            new = tokens(BATCH)
            began = time.perf_counter()
            for token in new:
                index.add(token)
            adding.append(time.perf_counter() - began)
        rows.append(
            {
                "length": length,
                "add_us": 1e6 * statistics.median(adding) / BATCH,
                "find_us": 1e6 * statistics.median(finding) / BATCH,
                "keys": index.keys,
            }
        )
    return {"rows": rows}


def text(result: dict) -> str:
    heads = ("tokens of text", "add, us", "look up, us", "keys")
    return table(heads, [(str(r["length"]), r["add_us"], r["find_us"], r["keys"]) for r in result["rows"]])


def figure(result: dict):
    """Both costs over the length of the text."""
    rows = result["rows"]
    worst = max(row["add_us"] + row["find_us"] for row in rows)
    title = f"The index costs at most {worst:.1f} us a token, from 1k to 128k tokens"
    fig, ax = plots.figure(title, "tokens of text", "microseconds")
    for key, label, colour in (("add_us", "add a token", "target"), ("find_us", "look up", "draft")):
        ax.plot([r["length"] for r in rows], [r[key] for r in rows], "o-", label=label, color=COLOURS[colour])
    ax.set_xscale("log")
    ax.set_xticks([r["length"] for r in rows], [f"{r['length'] / 1000:g}k" for r in rows])
    ax.minorticks_off()
    ax.set_ylim(bottom=0)
    ax.legend(title="medians")
    return fig
