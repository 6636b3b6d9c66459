"""Run every lesson on the embedded models, write it as HTML, and print what came out.
Follows nbclient: one fresh kernel a lesson, working folder notebooks/, no network asked for.
Leaves out the comparison with committed outputs (tools/check_lessons.py) and caching: a lesson always runs.
"""

import argparse
import base64
import contextlib
import datetime
import io
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from pages import without_widgets, write_index, write_lesson
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Lesson:
    """One lesson and how it went. `status` is "not run", "passed", "failed" or "interrupted"."""

    path: Path
    title: str
    minutes: int | None
    status: str = "not run"
    seconds: float | None = None
    headline: str = ""
    problem: str = ""
    page: str | None = None


def find_lessons(notebooks: Path, only: list[str]) -> list[Path]:
    """notebooks/NN_*.ipynb in order; `only` keeps names that begin so. LookupError if none does."""
    paths = sorted(notebooks.glob("[0-9][0-9]_*.ipynb"))
    if only:
        paths = [path for path in paths if path.name.startswith(tuple(only))]
    if not paths:
        raise LookupError(f"no lesson named {' or '.join(only) or 'NN_*.ipynb'} in {notebooks}")
    return paths


def describe(path: Path, notebook: nbformat.NotebookNode) -> Lesson:
    """Title: the first "# " heading. Minutes: the first "N minutes" in the text."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    title = re.search(r"^# +(.+)$", text, re.MULTILINE)
    minutes = re.search(r"(\d+) minutes", text)
    return Lesson(path, title[1].strip() if title else path.stem, int(minutes[1]) if minutes else None)


def headline(notebook: nbformat.NotebookNode) -> str:
    """The last line of text that the cell tagged "headline" put out, or ""."""
    lines = []
    for cell in notebook.cells:
        if "headline" in cell.metadata.get("tags", []):
            for output in cell.get("outputs", []):
                text = output.get("text", "") if output.output_type == "stream" and output.name == "stdout" else ""
                if output.output_type == "execute_result":
                    text = output.data.get("text/plain", "")
                lines += [line.strip() for line in ANSI.sub("", text).splitlines() if line.strip()]
    return lines[-1] if lines else ""


def name_cell(notebook: nbformat.NotebookNode, index: int) -> str:
    """How a person finds the cell: its number among the code cells, and its first line of code."""
    number = sum(cell.cell_type == "code" for cell in notebook.cells[: index + 1])
    code = [line.strip() for line in notebook.cells[index].source.splitlines()]
    first = next((line for line in code if line and not line.startswith("#")), "")
    return f"code cell {number} ({first[:60]})"


def execute(
    notebook: nbformat.NotebookNode,
    folder: Path,
    cell_limit_s: int,
    total_limit_s: float = float("inf"),
    on_cell: Callable[[int, int], None] = lambda done, of: None,
) -> str:
    """Run `notebook` in place, in a kernel of its own. Returns "" or what went wrong and in which cell.

    `on_cell(done, of)` is called before each code cell. KeyboardInterrupt passes; the kernel ends anyway.
    """
    deadline = time.monotonic() + total_limit_s
    limit_s = cell_limit_s

    def limit(cell: nbformat.NotebookNode) -> int:
        nonlocal limit_s
        limit_s = max(1, int(min(cell_limit_s, deadline - time.monotonic())))
        return limit_s

    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        timeout_func=limit,
        force_raise_errors=True,  # a tag may not hide an error
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
        shutdown_kernel="immediate",
        extra_arguments=["--IPKernelApp.log_level=40"],  # errors only: its warnings are not the reader's
    )
    client.log.disabled = True  # what it would say is returned
    client.reset_execution_trackers()
    code = [index for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    index = code[0] if code else 0
    try:
        with client.setup_kernel():
            for done, index in enumerate(code):
                if time.monotonic() > deadline:
                    return f"{name_cell(notebook, index)}: the total time limit was used up before it"
                on_cell(done, len(code))
                client.execute_cell(notebook.cells[index], index, execution_count=done + 1)
    except CellExecutionError as error:
        return f"{name_cell(notebook, index)}: {error.ename}: {ANSI.sub('', error.evalue)}".strip()
    except CellTimeoutError:
        return f"{name_cell(notebook, index)}: still running at its time limit ({limit_s} s)"
    except DeadKernelError:
        return f"{name_cell(notebook, index)}: the kernel died (out of memory, or a crash in native code)"
    return ""


def run_lesson(lesson: Lesson, out: Path, cell_limit_s: int, total_limit_s: float, save: bool) -> None:
    """Run one lesson and fill in how it went; write its page, and with `save` its notebook too."""
    notebook = nbformat.read(lesson.path, as_version=4)

    def progress(done: int, of: int) -> None:
        if sys.stdout.isatty():
            print(f"\r  {lesson.path.stem}: cell {done + 1} of {of} ", end="", flush=True)

    began = time.monotonic()
    try:
        lesson.problem = execute(notebook, lesson.path.parent, cell_limit_s, total_limit_s, progress)
    except KeyboardInterrupt:
        lesson.status = "interrupted"
        raise
    finally:
        lesson.seconds = time.monotonic() - began
    lesson.status = "failed" if lesson.problem else "passed"
    lesson.headline = headline(notebook)
    lesson.page = f"{lesson.path.stem}.html"
    write_lesson(notebook, lesson.title, lesson.path.parent, out / lesson.page)
    if save and not lesson.problem:
        save_lesson(notebook, lesson.path)
    clear = "\r\x1b[K" if sys.stdout.isatty() else ""
    print(f"{clear}  {lesson.path.stem}: {lesson.status}, {lesson.seconds:.1f} s", flush=True)


def save_lesson(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Write an executed lesson as it is committed: no widget state, no trace of its machine, small pictures."""
    without_widgets(notebook)
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = in_256_colours(output.data["image/png"])
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def in_256_colours(png: str) -> str:
    """A PNG in base64 with a palette: a third of the size, and a plot looks the same."""
    picture, small = Image.open(io.BytesIO(base64.b64decode(png))), io.BytesIO()
    picture.convert("RGB").quantize(256).save(small, "PNG", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


def table(lessons: list[Lesson]) -> str:
    """The closing table: lesson, seconds, result, headline."""
    rows = [("lesson", "seconds", "result", "headline")]
    for lesson in lessons:
        seconds = "" if lesson.seconds is None else f"{lesson.seconds:.1f}"
        rows.append((lesson.path.stem, seconds, lesson.status, lesson.headline or "-"))
    first, second, third = (max(len(row[i]) for row in rows) for i in range(3))
    return "\n".join(f"{a:<{first}}  {b:>{second}}  {c:<{third}}  {d}" for a, b, c, d in rows)


def provenance() -> str:
    """One line: commit, date, Python and machine."""
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    commit = git.stdout.strip() or "no commit"
    day = datetime.date.today().isoformat()
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return f"{commit}, {day}, Python {platform.python_version()}, {machine}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run the lessons and write them as pages.")
    parser.add_argument("lesson", nargs="*", help="only lessons whose file names begin so, such as 02")
    parser.add_argument("--notebooks", type=Path, default=ROOT / "notebooks")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "course")
    parser.add_argument("--cell-limit", type=int, default=60, metavar="S", help="seconds a cell may take")
    parser.add_argument("--total-limit", type=int, default=1800, metavar="S", help="seconds they may all take")
    parser.add_argument("--save", action="store_true", help="also write the outputs into the notebooks")
    options = parser.parse_args(arguments)

    # The lessons run on what is in the repository: asking a hub for a model is a mistake, and fails at once.
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        paths = find_lessons(options.notebooks, options.lesson)
    except LookupError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    for old in options.out.glob("*.html"):
        old.unlink()
    lessons = [describe(path, nbformat.read(path, as_version=4)) for path in paths]
    index, note = options.out / "index.html", provenance()

    deadline = time.monotonic() + options.total_limit
    interrupted = False
    with contextlib.suppress(KeyboardInterrupt):
        interrupted = True
        for lesson in lessons:
            left = deadline - time.monotonic()
            if left < 1:
                lesson.status, lesson.problem = (
                    "failed",
                    f"not run: the {options.total_limit} s for all were used up",
                )
            else:
                run_lesson(lesson, options.out, options.cell_limit, left, options.save)
            write_index(lessons, index, note)
        interrupted = False
    write_index(lessons, index, note)

    print("\n" + table(lessons))
    for lesson in lessons:
        if lesson.problem:
            print(f"\n{lesson.path.name}: {lesson.problem}")
    spent = sum(lesson.seconds or 0 for lesson in lessons)
    print(f"\n{spent:.0f} s in all; pages: {index}")
    if interrupted:
        print("interrupted: the pages of finished lessons are there")
        return 130
    return int(any(lesson.status != "passed" for lesson in lessons))


if __name__ == "__main__":
    sys.exit(main())
