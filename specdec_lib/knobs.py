"""Pick a pair's knobs on validation problems: the judge's and CSD's by accuracy, others' by what the judge keeps.

Our own. Methods that keep the same number of tokens a round can be compared by accuracy alone, and the other way round.
Left out: the test problems, on which nothing is chosen, and the file of settings (tuned.py).
"""

import math
from collections.abc import Sequence

from specdec_lib.experiments.base import Lab, beside, rules_table
from specdec_lib.judge.tune import DELTAS, most_kept
from specdec_lib.methods import METHODS, build_method, method_label
from specdec_lib.pocket.world import problems
from specdec_lib.tuned import PICKED

BASE, JUDGE = "greedy", "judge"
CAREFUL = (JUDGE, "csd", "csd-rate")  # picked by what they lose; the others stand beside the judge
SHARES = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)  # of max p
# method: knobs to try, from the strictest to the laxest; draft length as in METHODS
LADDERS: dict[str, list[dict[str, float]]] = {
    "judge": [{"delta": delta} for delta in sorted(DELTAS, reverse=True)],
    "topk": [{"k": k} for k in (1, 2, 3, 4, 10)],
    # .125: just below the ratio of the two wordings in the uniform world
    "lenience": [{"lenience": share} for share in (0.3, 0.125, *SHARES[1:])],
    # delta is the square root of epsilon, as in Medusa's code
    "typical": [{"epsilon": e, "delta": round(math.sqrt(e), 4)} for e in (0.3, 0.09, 0.03, 0.01, 0.003, 0.001, 0.0003)],
    "kl": [
        {"tau": tau, "confidence": sure}
        for tau, sure in ((0.5, 0.9), (2.0, 0.9), (2.0, 0.99), (5.0, 0.99), (5.0, 0.999), (10.0, 1.0))
    ],
    "fly": [{"threshold": t, "window": w} for t, w in ((0.3, 6), (0.1, 6), (0.03, 6), (0.03, 3), (0.01, 2), (0.0, 1))],
    "fly-code": [
        {"threshold": t, "window": w} for t, w in ((0.3, 6), (0.1, 6), (0.03, 6), (0.03, 3), (0.01, 2), (0.0, 1))
    ],
    "autojudge": [{"threshold": t} for t in (0.05, 0.1, 0.2, 0.4, 0.6, 0.8)],
    "reflective": [{"weight": w} for w in (0.1, 0.3, 0.5, 0.7, 1.0)],
    "csd": [{"tau": tau} for tau in (*SHARES, 0.0)],
    "csd-rate": [{"tau": tau} for tau in (*SHARES, 0.0)],
    "csd-memory": [{"lambda": count} for count in (50.0, 20.0, 6.0, 2.0, 0.0)],
}
# At temperature 0 these are lenience by another name, and not measured again.
LIKE_LENIENCE = {"lossy": lambda share: {"a": share, "b": 1.0}, "cascade": lambda share: {"alpha": round(1 - share, 6)}}


def measure(lab: Lab, methods: Sequence[str] | None = None) -> tuple[dict[str, list[dict]], dict[str, str]]:
    """A row a knob, by method, on the lab's n validation problems, BASE's first; and what is left out, with the reason.

    Greedy. methods: those of LADDERS that there are, unless given; the judge is always among them. ValueError for a
    method that has no ladder, and where there is no judge for this pair.
    """
    known = [name for name in LADDERS if name in METHODS]
    unknown = sorted({*(methods or ())} - {*known})
    if unknown:
        raise ValueError(f"there is nothing to pick for {unknown[0]!r}; choose among {', '.join(known)}")
    wanted, left_out = {BASE: [build_method(BASE, lab.pair)]}, {}
    for name in known:
        if methods is None or name in methods or name == JUDGE:
            try:
                wanted[name] = [build_method(method_label(name, knobs), lab.pair) for knobs in LADDERS[name]]
            except ValueError as error:  # a head that this pair lacks
                if name == JUDGE or methods is not None:
                    raise
                left_out[name] = str(error)
    tasks = problems("validation", lab.n, lab.seed)
    rows = {name: [lab.measure(method, tasks) for method in ladder] for name, ladder in wanted.items()}
    return rows, left_out


def pick(rows: dict[str, list[dict]]) -> dict[str, dict]:
    """The chosen row of every method.

    A CAREFUL one's keeps most among those that lose at most three quarters of a point of accuracy (judge/tune.py); the
    judge falls back on the standard rule, the others on their strictest knob. Of every other method it is the one whose
    kept comes nearest to the judge's; of equals, the stricter.
    """
    base = rows[BASE][0]
    standard = base | {"settings": {"delta": 1.0}}
    chosen = {JUDGE: _most_kept([*rows[JUDGE], standard], base)}
    for name, found in rows.items():
        if name in CAREFUL and name != JUDGE:
            chosen[name] = _most_kept(found, base) or found[0]
        elif name not in (BASE, JUDGE):
            chosen[name] = min(found, key=lambda row: abs(row["kept"] - chosen[JUDGE]["kept"]))
    return chosen


def _most_kept(rows: Sequence[dict], base: dict) -> dict | None:
    """tune.most_kept of the rows, beside base."""
    return most_kept([row | beside(row, base) for row in rows], "accuracy_change")


def settings(chosen: dict[str, dict], n: int, seed: int) -> dict[str, dict]:
    """The picked rows as tables of tuned.py, gamma left out: {method: {knob: value, "picked": how}}."""
    on = f"on {n} validation problems, seed {seed}"
    made = {}
    for name, row in chosen.items():
        figures = f"kept {row['kept']:.2f}, accuracy {100 * row['accuracy']:.1f} %"
        how = "keeps most at a loss of at most .75 points" if name in CAREFUL else "kept nearest to the judge's"
        knobs = {knob: value for knob, value in row["settings"].items() if knob != "gamma"}
        made[name] = {**knobs, PICKED: f"{how} ({figures}) {on}"}
        if name == "lenience":
            for other, knobs_for in LIKE_LENIENCE.items():
                same = f"at temperature 0 the same rule as lenience ({figures}) {on}"
                made[other] = {**knobs_for(row["settings"]["lenience"]), PICKED: same}
    return made


def text(rows: dict[str, list[dict]], left_out: dict[str, str], chosen: dict[str, dict]) -> str:
    """All rows as a table, what is left out, and what was picked."""
    lines = [f"left out: {name} ({reason})" for name, reason in left_out.items()]
    picked = [method_label(name, row["settings"]) for name, row in chosen.items()]
    return "\n".join([rules_table([row for found in rows.values() for row in found]), *lines, "picked:", *picked])
