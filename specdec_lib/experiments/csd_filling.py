"""A correction memory as it fills: what it holds after some prompts, and what CSD then keeps and gets right.

Our own; lesson 07's widget reads the record. Every setting of its three knobs is decoded.
Left out: long calibrations with intervals (calibration.py), and the texts that the widget colours (scored.py).
"""

from specdec_lib.experiments.base import Lab, percent, table
from specdec_lib.experiments.memories import memory_after, rule_on
from specdec_lib.filling import draw_filling, filling_of
from specdec_lib.pocket.tokenizer import world_tokens

WHAT = "a memory as it fills, and csd on it over lambda and tau (lesson 07's widget)"
PROBLEMS = 60
LENGTHS = (10, 30, 100, 300, 1000, 5000)
LAMBDAS = (20, 6, 2)
TAUS = (0.1, 0.01, 0.001, 0.0)


def run(lab: Lab) -> dict:
    """rows: greedy speculation, then one a length, lambda and tau: base.row_of's figures with texts, the length.

    Beside them lengths; pairs: draft, target, counts after each length; drafted: word, times after each length, of the
    pairs' draft words.
    """
    tasks, words = lab.problems(), lambda ids: world_tokens(lab.pair.tokenizer, ids)
    memories, rows = [memory_after(lab, length) for length in LENGTHS], [lab.measure("greedy", tasks)]
    for memory in memories:
        for lambda_ in LAMBDAS:
            for tau in TAUS:
                method = rule_on(lab.pair, memory, "csd", {"lambda": lambda_, "tau": tau})
                rows.append(lab.measure(method, tasks, f"after {memory.texts}") | {"texts": memory.texts})
    pairs = [
        {"draft": x, "target": best, "counts": [memory.count(*ids) for memory in memories]}
        for ids in memories[-1].pairs
        for x, best in [words(ids)]
    ]
    drafted = [
        {"word": words([x])[0], "times": [memory.drafted.get(x, 0) for memory in memories]}
        for x in dict.fromkeys(x for x, _ in memories[-1].pairs)
    ]
    return {"rows": rows, "lengths": list(LENGTHS), "pairs": pairs, "drafted": drafted}


def text(result: dict) -> str:
    plain, *rows = result["rows"]
    heads = ("prompts", "lambda", "tau", "kept", "accuracy %")
    lines = [(0, None, None, plain["kept"], percent(plain["accuracy"]))]
    for row in rows:
        knobs = (f"{row['settings'][name]:g}" for name in ("lambda", "tau"))
        lines.append((row["texts"], *knobs, row["kept"], percent(row["accuracy"])))
    return table(heads, lines)


def figure(result: dict):
    """The widget's picture, after the longest calibration, at the paper's knobs."""
    return draw_filling(filling_of(result), LENGTHS[-1], 6, 0.01)
