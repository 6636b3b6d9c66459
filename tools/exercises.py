"""Make notebooks/exercises/ from notebooks/solutions/: the same notebooks with the answers taken out.
Follows nothing; one source, so that an exercise and its solution cannot drift apart.
Leaves out the checks a student calls (specdec_lib/checks.py).

In a solution notebook a cell that holds an answer carries the tag `solution`:
- in a code cell, the lines from `# SOLUTION` to `# END SOLUTION` become a stub. They stand inside a
  function, so that an unsolved notebook still runs to its end; signature, docstring and hints stay;
- a Markdown cell with the tag (a written answer) is left out.
"""

import argparse
import difflib
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "# SOLUTION", "# END SOLUTION"
STUB = 'raise NotImplementedError("yours to write")'


def stub(source: str) -> str:
    """`source` with each marked part replaced by STUB. Raises ValueError if a part is badly marked."""
    lines, indent = [], None
    parts = 0
    for number, line in enumerate(source.splitlines(), start=1):
        if line.strip() == BEGIN:
            if indent is not None:
                raise ValueError(f"line {number}: {BEGIN} inside a marked part")
            indent = line[: len(line) - len(line.lstrip())]
            if not indent:
                raise ValueError(f"line {number}: a solution stands inside a function, so {BEGIN} is indented")
            lines.append(indent + STUB)
            parts += 1
        elif line.strip() == END:
            if indent is None:
                raise ValueError(f"line {number}: {END} without {BEGIN}")
            indent = None
        elif indent is None:
            lines.append(line)
    if indent is not None:
        raise ValueError(f"{BEGIN} without {END}")
    if not parts:
        raise ValueError(f"a code cell tagged `solution` holds no {BEGIN}")
    return "\n".join(lines)


def exercise_of(solution: nbformat.NotebookNode, name: str) -> nbformat.NotebookNode:
    """The exercise notebook for a solution notebook; `name` is the solution's file name, for messages."""
    cells = []
    for index, cell in enumerate(solution.cells, start=1):
        cell = nbformat.from_dict(cell)
        tags = cell.metadata.get("tags", [])
        tagged = "solution" in tags
        if tagged and cell.cell_type != "code":
            continue
        if cell.cell_type == "code":
            try:
                if tagged:
                    cell.source = stub(cell.source)
                elif BEGIN in cell.source or END in cell.source:
                    raise ValueError(f"holds {BEGIN} and lacks the tag `solution`")
            except ValueError as problem:
                raise ValueError(f"{name}, cell {index}: {problem}") from None
            cell.outputs, cell.execution_count = [], None
        cell.metadata = nbformat.from_dict({"tags": ["exercise" if t == "solution" else t for t in tags]})
        if not tags:
            del cell.metadata["tags"]
        cells.append(cell)
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "generated": f"by tools/exercises.py from notebooks/solutions/{name}",
    }
    return nbformat.from_dict({**solution, "cells": cells, "metadata": metadata})


def text_of(notebook: nbformat.NotebookNode) -> str:
    """The file's text, as nbformat writes it."""
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def generate(notebooks: Path) -> dict[Path, str]:
    """{path of an exercise: its text} for every notebooks/solutions/NN_*.ipynb."""
    return {
        notebooks / "exercises" / path.name: text_of(exercise_of(nbformat.read(path, 4), path.name))
        for path in sorted((notebooks / "solutions").glob("[0-9][0-9]_*.ipynb"))
    }


def differences(notebooks: Path) -> list[str]:
    """What is wrong with the committed exercises: changed by hand, missing, or without a solution."""
    wanted = generate(notebooks)
    found = []
    for path in sorted({*wanted, *(notebooks / "exercises").glob("*.ipynb")}):
        here = path.read_text() if path.exists() else ""
        if path not in wanted:
            found.append(f"{path.name}: has no solution in notebooks/solutions/")
        elif here != wanted[path]:
            diff = list(difflib.unified_diff(here.splitlines(), wanted[path].splitlines(), lineterm="", n=0))
            found.append(f"{path.name}: is not what its solution gives\n" + "\n".join(diff[:12]))
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make the exercises from the solutions.")
    parser.add_argument("--notebooks", type=Path, default=ROOT / "notebooks")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if they differ")
    options = parser.parse_args(arguments)
    try:
        if options.check:
            found = differences(options.notebooks)
            print("\n".join(found) or "exercises are what the solutions give")
            return int(bool(found))
        made = generate(options.notebooks)
    except ValueError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    for path, text in made.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
