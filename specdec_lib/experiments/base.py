"""What every experiment shares: its rows, kept as they come, and one row for one rule on one set of problems.

Our own. A result file is its own checkpoint: it holds every row that is whole, and the same command goes on from it.
Left out: the experiments themselves, one file each, and the files' form (provenance.py).
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from tqdm import tqdm

from specdec_lib import trace as figures
from specdec_lib.evaluate import Answer, answers
from specdec_lib.methods import Method, build_method, method_label
from specdec_lib.model import CausalLM
from specdec_lib.pocket.world import FAMILIES, Problem, problems
from specdec_lib.provenance import write_results
from specdec_lib.stats import paired_interval, ratio_interval, share_interval
from specdec_lib.verifiers import Verifier
from specdec_lib.whole import check_whole
from specdec_lib.zoo import Pair

GAMMA = 8  # the draft length of all methods, unless an experiment is about it
SAME = ("arguments", "seed", "checksums")  # of a file's provenance: what its rows depend on


class Rows:
    """Rows by key. With a file each is written as soon as it is whole; those already there are not measured again.

    origin: provenance.py's fields; a file of other arguments, another seed or other weights is refused (ValueError),
    and so is one that is no whole result.
    """

    def __init__(self, file: Path | None = None, origin: dict | None = None):
        self.file, self.origin, self.rows = file, origin or {}, {}
        if file is not None and file.exists():
            self.rows = self._read(file)

    def get(self, key: str, measure: Callable[[], dict]) -> dict:
        """The row of this key, measured if it is not there yet."""
        if key not in self.rows:
            self.rows[key] = {"key": key, **measure()}
            if self.file is not None:
                self.write(list(self.rows.values()), complete=False)
        return self.rows[key]

    def write(self, rows: list[dict], complete: bool, **beside) -> None:
        """Write the file in one step, so that a run stopped in between leaves the one before."""
        half = self.file.with_name(self.file.name + ".half")
        write_results(half, self.origin, rows, complete=complete, **beside)
        half.replace(self.file)

    def _read(self, file: Path) -> dict[str, dict]:
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            theirs = {name: found["provenance"][name] for name in SAME}
            rows = {row["key"]: row for row in found["rows"] if "key" in row}
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file} is no result of an experiment ({error!r}); move it away") from error
        ours = json.loads(json.dumps({name: self.origin.get(name) for name in SAME}))
        for name in SAME:
            if ours[name] != theirs[name]:
                raise ValueError(
                    f"{file} holds another run, its {name} are {theirs[name]}, not {ours[name]}; choose another file, "
                    "or delete it"
                )
        return rows


@dataclass
class Lab:
    """What an experiment is run with: a pair, how many problems, the seed that chooses them, and its rows.

    ValueError for n below 2: there would be no interval.
    """

    pair: Pair
    n: int
    seed: int = 0
    rows: Rows = field(default_factory=Rows)
    progress: bool = False

    def __post_init__(self) -> None:
        check_whole("n, the number of problems,", self.n, 2)

    def problems(self, families: Sequence[str] = FAMILIES) -> list[Problem]:
        """The experiment's n test problems."""
        return problems("test", self.n, self.seed, tuple(families))

    def watch(self, label: str, items: Sequence) -> Iterator:
        """The items, with a progress bar that says what is going on."""
        yield from tqdm(items, desc=label, unit="problem", leave=False, disable=not self.progress)

    def measure(self, method: str | Method, tasks: Sequence[Problem], key: str = "", **more) -> dict:
        """The row of a method, by name with its knobs or ready made; see `row_of`. more: answers_by's arguments.

        key: what tells it from other rows of the same method. A head's weights are part of it, too.
        """
        if isinstance(method, str):
            method = build_method(method, self.pair)

        def measured() -> dict:
            found = answers_by(self.pair, method, self.watch(method.label, tasks), **more)
            return {"method": method.name, "settings": method.knobs, **row_of(found)}

        return self.rows.get(" ".join(filter(None, (method.label, head_mark(method.verifier), key))), measured)


def head_mark(verifier: Verifier) -> str:
    """What tells a trained head from another one: the beginning of its weights' sha256; "" for a rule without one."""
    head = getattr(verifier, "head", None)
    if head is None:
        return ""
    numbers = torch.cat([head.weight.flatten(), torch.tensor([head.bias])]).float().cpu().numpy()
    return f"head={hashlib.sha256(numbers.tobytes()).hexdigest()[:12]}"


def answers_by(
    pair: Pair, method: Method, tasks: Iterable[Problem], target: CausalLM | None = None, temperature: float = 0.0
) -> list[Answer]:
    """A method's answers. target: the pair's own unless given."""
    target = pair.target if target is None else target
    return answers(pair, target, tasks, method.drafter, method.verifier, temperature)


def row_of(found: Sequence[Answer]) -> dict:
    """What a rule did on n problems.

    accuracy: share of answers whose final number is right, with its 95 % Wilson interval; any_wrong: share with a wrong
    token; kept: mean accepted tokens a round, with its 95 % bootstrap interval over problems; mat; rounds; tokens.
    right: "1" or "0" for each problem, in order, so that rows on the same problems can be paired.
    """
    right = [answer.marking.final_right for answer in found]
    kept = [sum(len(r.path) for r in answer.trace.rounds) for answer in found]
    rounds = [len(answer.trace.rounds) for answer in found]
    return {
        "n": len(found),
        "accuracy": sum(right) / len(right),
        "accuracy_interval": share_interval(sum(right), len(right)),
        "any_wrong": sum(answer.marking.any_wrong for answer in found) / len(found),
        "cut_off": sum(not answer.marking.finished for answer in found),  # answers of MAX_NEW_TOKENS without an end
        "kept": sum(kept) / sum(rounds),
        "kept_interval": ratio_interval(kept, rounds),
        "mat": figures.mat(answer.trace for answer in found),
        "rounds": sum(rounds),
        "tokens": sum(len(answer.trace.ids) for answer in found),
        "right": "".join(str(int(ok)) for ok in right),
    }


def beside(row: dict, base: dict) -> dict:
    """accuracy_change of a row over a base on the same problems, with its 95 % paired interval (stats.py)."""
    mine, theirs = ([digit == "1" for digit in r["right"]] for r in (row, base))
    return {
        "accuracy_change": (sum(mine) - sum(theirs)) / len(mine),
        "accuracy_change_interval": paired_interval(mine, theirs),
    }


# ---- as text ---------------------------------------------------------------------------------------------------


def label_of(row: dict) -> str:
    """The method with its knobs, without a draft length that is the common one, and a memory that is read only."""
    common = ("gamma", GAMMA), ("online", 0)
    return method_label(row["method"], {k: v for k, v in row["settings"].items() if (k, v) not in common})


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def between(interval: Sequence[float] | None, scale: float = 1, digits: int = 2) -> str:
    """An interval as "2.30 to 2.41"."""
    return "-" if interval is None else " to ".join(f"{scale * bound:.{digits}f}" for bound in interval)


def table(heads: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    """A plain table: the first column to the left, the others to the right; None is shown as -."""
    cells = [[str(head) for head in heads]]
    cells += [["-" if c is None else f"{c:.2f}" if isinstance(c, float) else str(c) for c in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    shown = []
    for line in cells:
        first, rest = line[0].ljust(widths[0]), [c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True)]
        shown.append("  ".join([first, *rest]))
    return "\n".join(shown)


def rules_table(rows: Sequence[dict]) -> str:
    """Rows of rules as text: accuracy and kept, each with its interval."""
    heads = ("rule", "accuracy %", "95 % interval", "any wrong %", "kept", "95 % interval")
    return table(
        heads,
        [
            (
                label_of(row), percent(row["accuracy"]), between(row["accuracy_interval"], 100, 1),
                percent(row["any_wrong"]), row["kept"], between(row["kept_interval"]),
            )
            for row in rows
        ],
    )  # fmt: skip
