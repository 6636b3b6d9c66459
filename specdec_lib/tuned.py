"""A pair's own settings: which knob a method takes on it unless one is given, and how each was picked.

Our own. data/pocket/knobs.toml has a table for each pair and method; `specdec knobs` writes it (knobs.py).
Left out: which methods and knobs there are (methods.py).
"""

import json
import tomllib
from functools import cache
from pathlib import Path

from specdec_lib.presets import data_folder

FILE = Path("pocket") / "knobs.toml"  # under data/
PICKED = "picked"  # the one field of a table that is no knob: how its values were picked


def settings_of(pair: str, known: dict[str, dict], file: Path | None = None) -> dict[str, dict[str, float]]:
    """A pair's settings: {method: {knob: value}}, empty where it has none.

    known: every method's knobs with their defaults. ValueError for a file that is not TOML, a method or knob that does
    not exist, a value of another kind than the default, and a table that does not say how it was picked.
    """
    if file is None:
        try:
            file = data_folder() / FILE
        except FileNotFoundError:  # any two models can be used without the course's data
            return {}
    return {
        method: {knob: _value(value, knob, method, known, file) for knob, value in table.items() if knob != PICKED}
        for method, table in read_settings(file).get(pair, {}).items()
    }


def read_settings(file: Path) -> dict[str, dict[str, dict]]:
    """The whole file: {pair: {method: {knob: value, "picked": text}}}; empty where there is no file."""
    return _read(file, file.stat().st_mtime_ns) if file.is_file() else {}


def write_settings(file: Path, settings: dict[str, dict[str, dict]]) -> None:
    """Write the whole file, in one step."""
    lines = [
        "# Knobs that a method takes on a pair unless they are given, and how each was picked (specdec_lib/tuned.py).",
        "# Written by specdec knobs.",
    ]
    for pair, methods in settings.items():
        for method, table in methods.items():
            lines += ["", f"[{pair}.{method}]"]
            lines += [
                f"{name} = {json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)}"
                for name, value in table.items()
            ]
    half = file.with_name(file.name + ".half")
    half.write_text("\n".join(lines) + "\n", encoding="utf-8")
    half.replace(file)


@cache
def _read(file: Path, changed_ns: int) -> dict[str, dict[str, dict]]:
    """Read once for each change of the file."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not TOML: {error}") from error
    for pair, methods in found.items():
        for method, table in methods.items() if isinstance(methods, dict) else [(None, None)]:
            if not isinstance(table, dict) or not isinstance(table.get(PICKED), str):
                name = pair if method is None else f"{pair}.{method}"
                raise ValueError(f'{file}, [{name}]: give a table with knobs and picked = "how they were picked"')
    return found


def _value(value: object, knob: str, method: str, known: dict[str, dict], file: Path) -> float:
    where = f"{file}, method {method}"
    if method not in known:
        raise ValueError(f"{where}: there is no such method; the known ones are {', '.join(known)}")
    if knob not in known[method]:
        raise ValueError(f"{where}: it has no knob {knob!r}; it has: {', '.join(known[method]) or 'none'}")
    whole = isinstance(known[method][knob], int)
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise ValueError(f"{where}: knob {knob} must be {'a whole number' if whole else 'a number'}; got {value!r}")
    return value if whole else float(value)
