"""What drafting without a model costs: microseconds a round of pld, rest, lookahead, recycling and suffix, 1k to 128k.

Our own; no model runs. A round takes in the three tokens committed since the last one and makes a tree.
Left out: what observe does with the target's rows, and the index of n-grams taken apart (index_cost.py). Steps are
counted in the tests; here they are timed, so the machine should be quiet.
"""

import random
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from specdec_lib import datastore, plots
from specdec_lib.colours import COLOURS
from specdec_lib.drafters import DraftContext, Lookahead, PromptLookup, Rest, SuffixDrafter, TokenRecycling
from specdec_lib.experiments.base import Lab, table
from specdec_lib.experiments.index_cost import COMMON, LENGTHS, VOCABULARY

WHAT = "what drafting without a model costs a round, from 1k to 128k tokens of text (needs a quiet machine)"
PROBLEMS = 200  # timed rounds at each length
ANY_PAIR = True
COMMITTED = 3  # tokens a round
COPIED = 0.3  # share of the text that repeats ten tokens of its own


def run(lab: Lab) -> dict:
    """rows: one a drafter and length: round_us, the median; start_us, what taking in the whole text took a token."""
    text = _text(max(LENGTHS) + COMMITTED * lab.n, lab.seed)
    rows = []
    with TemporaryDirectory() as folder:
        for length in lab.watch("drafters", LENGTHS):
            file = Path(folder) / "texts.store"
            datastore.write(file, [text[:length]], "none")
            made = (PromptLookup(), Rest(datastore.Datastore(file)), Lookahead(), TokenRecycling(), SuffixDrafter())
            rows += [_timed(drafter, text, length, lab.n) for drafter in made]
    return {"rows": rows}


def _text(n: int, seed: int) -> list[int]:
    """Tokens as frequent as in a language, some stretches of them copied from before."""
    draws = random.Random(seed)
    weights = [1 / rank**COMMON for rank in range(1, VOCABULARY + 1)]
    ids = draws.choices(range(VOCABULARY), weights, k=20)
    while len(ids) < n:
        at = draws.randrange(len(ids) - 10)
        ids += ids[at : at + 10] if draws.random() < COPIED else draws.choices(range(VOCABULARY), weights, k=10)
    return ids[:n]


def _timed(drafter, text: list[int], length: int, rounds: int) -> dict:
    began = time.perf_counter()
    drafter.start(text[:length])
    start_s = time.perf_counter() - began
    if isinstance(drafter, TokenRecycling):  # what the target's rows would have left: eight successors of every token
        drafter.successors = {token: list(range(token, token + 8)) for token in range(VOCABULARY)}
    committed, taken = text[:length], []
    for done in range(length, length + COMMITTED * rounds, COMMITTED):
        committed += text[done : done + COMMITTED]
        context = DraftContext(committed, 50, VOCABULARY, None, None, torch.device("cpu"))
        began = time.perf_counter()
        drafter.propose(context)
        taken.append(time.perf_counter() - began)
    us = 1e6 * statistics.median(taken)
    return {"method": drafter.name, "length": length, "round_us": us, "start_us": 1e6 * start_s / length}


def text(result: dict) -> str:
    heads = ("drafter", "tokens of text", "a round, us", "the text, us a token")
    return table(heads, [(r["method"], str(r["length"]), r["round_us"], r["start_us"]) for r in result["rows"]])


def figure(result: dict):
    """A round's cost over the length of the text, a line a drafter."""
    longest = max(row["length"] for row in result["rows"])
    costs = [row["round_us"] for row in result["rows"] if row["length"] == longest]
    title = f"After {longest / 1000:g}k tokens a round's drafting takes {min(costs):.0f} to {max(costs):.0f} us"
    fig, ax = plots.figure(title, "tokens of text", "microseconds")
    for name in dict.fromkeys(row["method"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["method"] == name]
        ax.plot([r["length"] for r in rows], [r["round_us"] for r in rows], "o-", label=name, color=COLOURS[name])
    lengths = list(dict.fromkeys(row["length"] for row in result["rows"]))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(lengths, [f"{length / 1000:g}k" for length in lengths])
    ax.minorticks_off()
    ax.legend(title="a round, median", loc="center left", bbox_to_anchor=(1, 0.5))
    return fig
