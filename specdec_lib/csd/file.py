"""A correction memory as a file: JSON with its own sha256, written in one step under a lock, tied to its pair.

Our own.
Left out: what the counts mean (memory.py).
"""

import hashlib
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path

from filelock import FileLock

from specdec_lib.csd.memory import CorrectionMemory, Owner
from specdec_lib.presets import data_folder
from specdec_lib.smollm2 import cache_folder

FORMAT, VERSION = "specdec correction memory", 1
SHIPPED = Path("pocket") / "csd-memory-100.json"  # under data/: a short calibration, on purpose


class MemoryFileError(ValueError):
    """A memory that cannot be used here: damaged, of another version, or of other models."""


def owner_of(pair) -> Owner:
    """Whose memory a pair needs: its checksums and forms, and the sha256 of its tokenizer's ids and special tokens."""
    described = None
    if pair.tokenizer is not None:
        described = [sorted(pair.tokenizer.get_vocab().items()), sorted(pair.tokenizer.all_special_ids)]
    target, draft = (
        ":".join(filter(None, (pair.checksums.get(role), pair.forms.get(role)))) for role in ("target", "draft")
    )
    return Owner(target, draft, _sha256(described))


def brief(owner: str) -> str:
    """A part of an owner for people: the beginning of its checksum, and its form."""
    checksum, colon, form = owner.partition(":")
    return checksum[:12] + colon + form or "none"


def check_fits(memory: CorrectionMemory, pair, what: str = "this correction memory") -> CorrectionMemory:
    """The memory; MemoryFileError, with what differs, if it is not this pair's."""
    ours, theirs = asdict(owner_of(pair)), asdict(memory.owner)
    for part in ours:
        if ours[part] != theirs[part]:
            raise MemoryFileError(
                f"{what} is of another {part} ({brief(theirs[part])}, where {pair.name} has {brief(ours[part])}); "
                f"make one: specdec csd calibrate --pair {pair.name}"
            )
    return memory


def lock_of(file: Path | str) -> FileLock:
    """What a process holds while it changes the file. The lock's own file stays beside it."""
    file = Path(file)
    return FileLock(file.with_name(f".{file.name}.lock"))


def save(memory: CorrectionMemory, file: Path | str) -> None:
    """Write the memory in one step; whoever reads meanwhile finds the old one, whole."""
    file, body = Path(file), _body(memory)
    head = {"format": FORMAT, "version": VERSION, "sha256": _sha256(body)}
    lines = [f"{json.dumps(name)}: {_lines(value)}" for name, value in (head | body).items()]
    handle, half = tempfile.mkstemp(prefix=f".{file.name}.", suffix=".half", dir=file.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as opened:
            opened.write("{\n" + ",\n".join(lines) + "\n}\n")
        os.chmod(half, 0o644)
        os.replace(half, file)
    except BaseException:
        Path(half).unlink(missing_ok=True)
        raise


def load(file: Path | str) -> CorrectionMemory:
    """Read a memory. FileNotFoundError if it is missing; MemoryFileError if damaged, or none of this version."""
    file = Path(file)
    if not file.is_file():
        raise FileNotFoundError(f"{file} is not there; specdec csd calibrate makes a correction memory")
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise MemoryFileError(f"{file} is damaged ({error}); restore it or calibrate again") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise MemoryFileError(f"{file} holds no correction memory; specdec csd calibrate makes one")
    if found.get("version") != VERSION:
        raise MemoryFileError(f"{file} is a memory of version {found.get('version')}, not {VERSION}; calibrate again")
    body = {name: value for name, value in found.items() if name not in ("format", "version", "sha256")}
    if found.get("sha256") != _sha256(body):
        raise MemoryFileError(f"{file} is damaged: its contents have another sha256; restore it or calibrate again")
    try:
        return _memory(body)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MemoryFileError(f"{file} is no whole memory ({error!r}); restore it or calibrate again") from error


def merge_into(file: Path | str, memory: CorrectionMemory) -> CorrectionMemory:
    """Add a memory to the file's, or make the file; several processes may do so at once. What the file then holds."""
    with lock_of(file):
        if Path(file).exists():
            known = load(file)
            known.merge(memory)
        else:
            known = memory.snapshot()
        save(known, file)
    return known


def memories_folder() -> Path:
    """Where the memories that a user makes are kept."""
    return cache_folder() / "memories"


def memory_of(pair, or_empty: bool = False) -> CorrectionMemory:
    """The pair's memory: the one shipped for it, else the newest of the user's own that fits, else, if asked, none yet.

    MemoryFileError where there is none, with how to make one; also for a damaged file on the way there.
    """
    own = sorted(memories_folder().glob("*.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in [data_folder() / SHIPPED, *own]:
        if file.is_file() and (memory := load(file)).owner == owner_of(pair):
            return memory
    if or_empty:
        return CorrectionMemory(owner_of(pair))
    raise MemoryFileError(
        f"there is no correction memory of {pair.name}: specdec csd calibrate --pair {pair.name} makes one from prompts"
    )


def _body(memory: CorrectionMemory) -> dict:
    return {
        "owner": asdict(memory.owner),
        "texts": memory.texts,
        "frozen": memory.frozen,
        "cap": memory.cap,
        "contexts_kept": memory.contexts_kept,
        "made": memory.made,
        "pairs": [[x, best, *counts] for (x, best), counts in memory.pairs.items()],
        "drafted": [[x, times] for x, times in sorted(memory.drafted.items())],
        "contexts": [[x, best, known] for (x, best), known in memory.contexts.items()],
    }


def _memory(body: dict) -> CorrectionMemory:
    """What _body wrote; an error of any of several kinds where a number is missing or none."""
    pairs = {(x, best): [rescued, rejected] for x, best, rescued, rejected in body["pairs"]}
    drafted = {x: times for x, times in body["drafted"]}
    contexts = {(x, best): known for x, best, known in body["contexts"]}
    numbers = [body["texts"], *drafted, *drafted.values(), *(n for pair, c in pairs.items() for n in (*pair, *c))]
    if any(not isinstance(n, int) or isinstance(n, bool) or n < 0 for n in numbers):
        raise ValueError("a count or an id is not a whole number from 0 on")
    for (x, best), counts in pairs.items():
        if sum(counts) > drafted.get(x, 0):
            raise ValueError(f"the pair ({x}, {best}) is counted more often than {x} was drafted")
    return CorrectionMemory(
        Owner(**body["owner"]), body["cap"], body["contexts_kept"], pairs, drafted, contexts, body["texts"],
        body["frozen"] is True, body["made"],
    )  # fmt: skip


def _lines(value: object) -> str:
    """A list with a line for each entry, anything else on one."""
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(json.dumps(entry) for entry in value) + "\n]"
    return json.dumps(value)


def _sha256(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
