"""SHA256SUMS: the checksums of a folder's files, as sha256sum writes them, a line a file.

Our own.
Left out: what a wrong sum means (zoo.py, judge/head.py).
"""

import hashlib
from pathlib import Path

SUMS = "SHA256SUMS"


def sha256_of(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def read_sums(folder: Path) -> dict[str, str]:
    """File name to sha256, as SHA256SUMS of this folder says; nothing where there is none."""
    sums = folder / SUMS
    lines = sums.read_text().splitlines() if sums.is_file() else []
    return {name: checksum for checksum, _, name in (line.partition("  ") for line in lines)}


def record_sum(file: Path) -> None:
    """Write the file's sha256 into SHA256SUMS beside it; the other lines stay."""
    sums = read_sums(file.parent) | {file.name: sha256_of(file)}
    (file.parent / SUMS).write_text("".join(f"{checksum}  {name}\n" for name, checksum in sums.items()))


def recorded_sum(file: Path) -> str | None:
    """The sha256 that SHA256SUMS beside the file records for it; None where none is recorded."""
    return read_sums(file.parent).get(file.name)
