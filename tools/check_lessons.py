"""Compare every lesson with its committed outputs, one nbval run a lesson, each under an outer time limit.
Follows nbval: a cell whose output may differ (times, pictures) carries the tag nbval-ignore-output.
Leaves out the pages (tools/course.py) and the form of notebooks (tests/test_repository.py).

nbval waits for ever on a kernel that died: the outer limit ends such a run and names the lesson.
"""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

from course import ROOT, find_lessons

SANITIZE = ROOT / "tests" / "nbval_sanitize.cfg"


def check(lesson: Path, cell_limit_s: int, lesson_limit_s: int) -> str:
    """Run nbval on one lesson; its report goes to stdout. Returns "" or what went wrong."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--rootdir", str(ROOT)]
    command += ["--nbval", "--nbval-current-env", "--nbval-sanitize-with", str(SANITIZE)]
    command += [f"--nbval-cell-timeout={cell_limit_s}", str(lesson)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)
    try:
        status = process.wait(timeout=lesson_limit_s)
    except subprocess.TimeoutExpired:
        return f"ended after {lesson_limit_s} s: a cell ran too long, or its kernel died"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)  # pytest then stops the kernel and reports
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return "" if status == 0 else "differs from its committed outputs, or fails (see above)"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compare lessons with their committed outputs.")
    parser.add_argument("lesson", nargs="*", help="only lessons whose file names begin so, such as 02")
    parser.add_argument("--notebooks", type=Path, default=ROOT / "notebooks")
    parser.add_argument("--cell-limit", type=int, default=60, metavar="S", help="seconds a cell may take")
    parser.add_argument("--lesson-limit", type=int, default=300, metavar="S", help="seconds a lesson may take")
    options = parser.parse_args(arguments)
    try:
        lessons = find_lessons(options.notebooks, options.lesson)
    except LookupError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    problems = {}
    for lesson in lessons:
        print(f"-- {lesson.name}", flush=True)
        if problem := check(lesson.resolve(), options.cell_limit, options.lesson_limit):
            problems[lesson.name] = problem
    for name, problem in problems.items():
        print(f"{name}: {problem}")
    print(f"{len(lessons) - len(problems)} lessons as committed, {len(problems)} not")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
