"""Trace: every round's proposal, laws at the proposed tokens, verdict and seconds. All figures read traces.

Our own. Words (MAT, kept, alpha, ...) are defined where they are computed, below.
Left out: texts and colours (notebook.py, cli.py), and anything a trace does not hold.
"""

import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from specdec_lib.tree import depths
from specdec_lib.verifiers.base import BONUS, EXACT, RECOVERED, RESCUED

SCHEMA = 1


@dataclass
class Round:
    """One proposal, one target pass, one verdict.

    tokens, parents: the tree (node 0 the root). target_probs, draft_probs, overlaps: p(x), q(x) and
    sum min(p, q) for each node (index 0 unused). path: nodes kept, after the cut. outcomes: how each node reached
    fared, before the cut. emitted: ids this round added. last: the last emitted id is recovered, bonus, or
    (where a stop or the length limit cut the round) accepted. *_s: seconds. scouts: nodes scored, never kept.
    best, added: see Verdict; empty where there is nothing to say.
    """

    tokens: list[int]
    parents: list[int]
    target_probs: list[float]
    draft_probs: list[float]
    overlaps: list[float]
    path: list[int]
    outcomes: dict[int, str]
    emitted: list[int]
    last: str
    draft_s: float = 0.0
    score_s: float = 0.0
    verify_s: float = 0.0
    other_s: float = 0.0
    scouts: list[int] = field(default_factory=list)
    best: list[int] = field(default_factory=list)
    added: list[float] = field(default_factory=list)

    @property
    def proposed(self) -> int:
        return len(self.tokens) - 1 - len(self.scouts)

    @property
    def depth(self) -> int:
        """Draft length of this round: the depth of the tree, scouts left out."""
        return max(depth for node, depth in enumerate(depths(self.parents)) if node not in self.scouts)

    @property
    def kinds(self) -> list[str]:
        """accepted, rescued, recovered or bonus: one for each emitted id."""
        kinds = ["rescued" if self.outcomes[node] == RESCUED else "accepted" for node in self.path]
        return kinds[: len(self.emitted)] + ([self.last] if self.last in (RECOVERED, BONUS) else [])

    @property
    def tested(self) -> list[int]:
        """Nodes that the verdict reached: up to and including the first rejection on a chain."""
        return list(self.outcomes)

    @property
    def seconds(self) -> float:
        return self.draft_s + self.score_s + self.verify_s + self.other_s


@dataclass
class Trace:
    """A decoded text with all its rounds. lossless says whether its law is the target's.

    learning: the rule or the drafter went on learning meanwhile, so that the text depends on those before it.
    """

    prompt: list[int]
    method: str
    lossless: bool
    settings: dict = field(default_factory=dict)
    provenance: dict = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)
    reason: str = ""
    prefill_s: float = 0.0
    learning: bool = False

    @property
    def ids(self) -> list[int]:
        """The emitted ids: replaying the rounds gives the text."""
        return [token for round_ in self.rounds for token in round_.emitted]

    def save(self, path: Path | str, append: bool = False) -> None:
        """One JSON object a line: a header, the rounds, an end."""
        with Path(path).open("a" if append else "w") as file:
            header = {
                "kind": "header", "schema": SCHEMA, "prompt": self.prompt, "method": self.method,
                "lossless": self.lossless, "settings": self.settings, "provenance": self.provenance,
                "learning": self.learning,
            }  # fmt: skip
            end = {"kind": "end", "rounds": len(self.rounds), "reason": self.reason, "prefill_s": self.prefill_s}
            rows = [header, *({"kind": "round", **asdict(r)} for r in self.rounds), end]
            file.writelines(json.dumps(row) + "\n" for row in rows)

    @classmethod
    def load(cls, path: Path | str) -> "Trace":
        """The first trace of a file. Raises ValueError for a file that is not a whole trace."""
        return cls.load_all(path)[0]

    @classmethod
    def load_all(cls, path: Path | str) -> list["Trace"]:
        traces: list[Trace] = []
        whole = True
        for number, line in enumerate(Path(path).read_text().splitlines(), start=1):
            try:
                row = json.loads(line)
                kind = row.pop("kind")
                if kind not in ("header", "round", "end") or whole == (kind != "header"):
                    raise ValueError(f"unexpected {kind!r}")
                if kind == "header":
                    if row.pop("schema") != SCHEMA:
                        raise ValueError(f"another schema than {SCHEMA}")
                    traces.append(cls(**row))
                    whole = False
                elif kind == "round":
                    traces[-1].rounds.append(_checked(round_from(row)))
                elif row["rounds"] != len(traces[-1].rounds):
                    raise ValueError(f"{len(traces[-1].rounds)} rounds where {row['rounds']} were written")
                else:
                    traces[-1].reason, traces[-1].prefill_s = row["reason"], row["prefill_s"]
                    whole = True
            except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
                raise ValueError(f"{path}, line {number}, is not part of a trace of this version: {error}") from error
        if not traces or not whole:
            raise ValueError(f"{path} holds no whole trace (no header, or its end is missing)")
        return traces


def round_from(row: dict) -> Round:
    """A round of its fields as JSON gives them back, the numbers that were keys as texts."""
    return Round(**row | {"outcomes": {int(node): outcome for node, outcome in row["outcomes"].items()}})


def _checked(r: Round) -> Round:
    """A round read from a file, or a ValueError if its numbers do not fit together."""
    nodes = len(r.tokens)
    a_number_a_node = all(len(x) == nodes for x in (r.parents, r.target_probs, r.draft_probs, r.overlaps))
    a_number_or_none = all(len(x) in (0, nodes) for x in (r.best, r.added))
    a_tree = r.parents[:1] == [-1] and all(0 <= parent < node for node, parent in enumerate(r.parents[1:], start=1))
    inside = all(0 < node < nodes for node in (*r.path, *r.outcomes, *r.scouts))
    if not (a_number_a_node and a_number_or_none and a_tree and inside and len(r.kinds) == len(r.emitted)):
        raise ValueError("the round's tree, path and emitted ids do not fit together")
    return r


# ---- figures ---------------------------------------------------------------------------------------------------


def mean(values: Iterable[float]) -> float | None:
    """The mean, or None for no values (shown as n/a, never as 0)."""
    values = list(values)
    return sum(values) / len(values) if values else None


def rounds_of(traces: Iterable[Trace]) -> list[Round]:
    return [r for trace in traces for r in trace.rounds]


def mat(traces: Iterable[Trace]) -> float | None:
    """Mean emitted tokens per round. The prefill is not a round."""
    return mean(len(r.emitted) for r in rounds_of(traces))


def kept(traces: Iterable[Trace]) -> float | None:
    """Mean accepted tokens per round that survive the cut at a stop or limit."""
    return mean(len(r.path) for r in rounds_of(traces))


def alpha(traces: Iterable[Trace]) -> float | None:
    """Mean of sum min(p, q) over the tested contexts of drafted chains. alpha = 1 - total variation.

    Greedy traces do not count: there p and q are one-hots, and their overlap says no more than accepted / tested.
    """
    sampled = [trace for trace in traces if trace.settings.get("temperature", 1) > 0]
    return mean(r.overlaps[node] for r in rounds_of(sampled) for node in r.tested)


def accepted_over_tested(traces: Iterable[Trace]) -> float | None:
    return mean(outcome in (EXACT, RESCUED) for r in rounds_of(traces) for outcome in r.outcomes.values())


def accepted_over_drafted(traces: Iterable[Trace]) -> float | None:
    """Accepted (before the cut) over all proposed nodes; None when nothing was proposed."""
    rounds = rounds_of(traces)
    drafted = sum(r.proposed for r in rounds)
    accepted = sum(o in (EXACT, RESCUED) for r in rounds for o in r.outcomes.values())
    return accepted / drafted if drafted else None


def acceptance_by_position(traces: Iterable[Trace]) -> list[float]:
    """For depth 1, 2, ...: share accepted among the nodes tested at that depth (chains)."""
    tested: dict[int, list[bool]] = {}
    for r in rounds_of(traces):
        depth = depths(r.parents)
        for node, outcome in r.outcomes.items():
            tested.setdefault(depth[node], []).append(outcome in (EXACT, RESCUED))
    return [sum(tested[d]) / len(tested[d]) for d in sorted(tested)]


def time_shares(traces: Iterable[Trace]) -> dict[str, float]:
    """Share of the rounds' time in draft, score, verify and other."""
    rounds = rounds_of(traces)
    total = sum(r.seconds for r in rounds)
    parts = {"draft": "draft_s", "score": "score_s", "verify": "verify_s", "other": "other_s"}
    return {name: sum(getattr(r, key) for r in rounds) / total if total else 0.0 for name, key in parts.items()}


def draft_over_target(rounds: Iterable[Round], plain_rounds: Iterable[Round]) -> float | None:
    """c: median seconds of a draft step as the loop runs it over median seconds of a plain target step."""
    steps = [r.draft_s / r.depth for r in rounds if r.depth]
    return statistics.median(steps) / statistics.median(r.seconds for r in plain_rounds) if steps else None
