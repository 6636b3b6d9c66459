"""A benchmark's calls, written to a file as they come, so that a stopped run goes on with the next prompt.

Our own: a JSON object a line, the first saying which run they are of. The file is removed once the result is written.
Left out: making the calls (bench.py), and what they say (speed.py).
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from specdec_lib.speed import Call
from specdec_lib.trace import Trace, round_from

SCHEMA = "specdec calls 1"
SAME = ("arguments", "seed", "checksums", "dtypes", "device", "threads")  # of a run's provenance


class KeptCalls:
    """Entries by key. Without a file they are forgotten with the run.

    origin: the run's provenance. A last line that was cut while it was written is dropped; begin() raises ValueError
    for anything else that is not whole, and for a file of another run.
    """

    def __init__(self, file: Path | None = None, origin: dict | None = None):
        self.file, self.origin, self.entries = file, origin or {}, {}

    def begin(self, prompts: Sequence[Sequence[int]]) -> None:
        """Read what is there, or start the file. prompts: the run's, which the kept calls must have answered."""
        if self.file is None:
            return
        asked = hashlib.sha256(json.dumps([list(ids) for ids in prompts]).encode()).hexdigest()
        head = {"schema": SCHEMA, "prompts": asked, **{name: self.origin.get(name) for name in SAME}}
        head = json.loads(json.dumps(head))
        if self.file.exists():
            whole = self._read(head)
            self.file.write_text("".join(whole), encoding="utf-8")
        else:
            self._append(head)

    def get(self, key: str) -> dict | None:
        return self.entries.get(key)

    def add(self, key: str, entry: dict) -> None:
        """Keep an entry: numbers, texts, lists and dicts of them."""
        self.entries[key] = entry
        if self.file is not None:
            self._append({"key": key, **entry})

    def done(self) -> None:
        """The result is written: the calls are not needed any more."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)

    def _append(self, line: dict) -> None:
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _read(self, head: dict) -> list[str]:
        lines = self.file.read_text(encoding="utf-8").splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        try:
            found, *entries = [json.loads(line) for line in whole]
            schema = found["schema"]
            self.entries = {entry.pop("key"): entry for entry in entries}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{self.file} holds no whole calls of a benchmark ({error!r}); delete it") from error
        if schema != SCHEMA or found != head:
            differs = [name for name in head if found.get(name) != head[name]]
            raise ValueError(
                f"{self.file} holds the calls of another run (its {', '.join(differs)} differ); delete it, or choose "
                "another --json file"
            )
        return whole


def packed(call: Call) -> dict:
    return asdict(call)


def unpacked(entry: dict) -> Call:
    """The call of a packed one, also after a file has made texts of the numbers that were keys."""
    trace = entry["trace"]
    if trace is not None:
        trace = Trace(**trace | {"rounds": list(map(round_from, trace["rounds"]))})
    return Call(**entry | {"trace": trace})


def unpacked_costs(entry: Sequence) -> tuple[int, dict[int, float], dict[int, float | None]]:
    """The arguments of Costs.add, from what a file has made of them."""
    context, target_s, draft_step_s = entry
    return context, {int(k): s for k, s in target_s.items()}, {int(gamma): s for gamma, s in draft_step_s.items()}
