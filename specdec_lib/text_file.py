"""Text files as people give them: read as UTF-8, or refused by name.

Our own.
Left out: files too large to be read at once (corpus.py).
"""

from pathlib import Path


def read_text(file: Path | str) -> str:
    """ValueError, with the file's name, for one that is not UTF-8."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not a text file (UTF-8)") from error
