"""Provenance: where a result comes from. Every JSON file that a command writes carries it.

Our own. Follows the project's fixed form: {"provenance": {...}, "rows": [...]}.
Left out: the results themselves.
"""

import json
import math
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import torch

from specdec_lib.machine import device_name, versions

ROOT = Path(__file__).resolve().parent.parent


def provenance(
    arguments: dict | None = None,
    seed: int | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> dict:
    """git_sha and dirty (None outside the project's git checkout), date (UTC), versions, device, threads, dtype,
    arguments (as the caller got them), seed.
    """
    sha, dirty = git_state()
    return {
        "git_sha": sha,
        "dirty": dirty,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "dtype": str(dtype).removeprefix("torch."),
        "arguments": arguments or {},
        "seed": seed,
    }


def git_state(root: Path = ROOT) -> tuple[str | None, bool | None]:
    """(sha, whether a tracked file differs from it) of the checkout whose top folder is root; else (None, None)."""
    top = _git(root, "rev-parse", "--show-toplevel")
    sha = _git(root, "rev-parse", "HEAD")
    if top is None or sha is None or Path(top).resolve() != root.resolve():
        return None, None
    return sha, bool(_git(root, "status", "--porcelain", "--untracked-files=no"))


def _git(root: Path, *arguments: str) -> str | None:
    """What git prints, or None where it is missing or fails."""
    try:
        done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def write_results(path: Path | str, origin: dict, rows: list[dict], **beside) -> None:
    """Write {"provenance", "rows", ...} as JSON. NaN is refused: what does not apply is null.

    An infinite number (a knob may be one) is written as "inf" or "-inf", which float() reads.
    """
    results = _speakable({"provenance": origin, "rows": rows, **beside})
    Path(path).write_text(json.dumps(results, indent=2, allow_nan=False) + "\n")


def _speakable(value):
    """JSON has no infinity: as text."""
    if isinstance(value, dict):
        return {key: _speakable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_speakable(inner) for inner in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value
