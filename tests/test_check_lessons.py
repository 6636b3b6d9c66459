"""The comparison of lessons with their committed outputs: what it catches, and that it always ends.
Follows tools/check_lessons.py on tiny notebooks.
Leaves out the real lessons: `make test` compares those before it runs the tests.
"""

import time

import check_lessons
import course
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook


def write(folder, name, *code, tags=()):
    cells = [new_code_cell(text) for text in code]
    cells[-1].metadata["tags"] = list(tags)
    nbformat.write(new_notebook(cells=cells), folder / f"{name}.ipynb")
    return folder / f"{name}.ipynb"


def save(folder):
    assert course.main(["--notebooks", str(folder), "--out", str(folder / "out"), "--save"]) == 0


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def check(folder, *arguments):
    return check_lessons.main(["--notebooks", str(folder), *arguments])


@pytest.mark.slow
def test_a_saved_lesson_passes_and_a_changed_output_fails(tmp_path, capfd):
    same = write(tmp_path, "01_same", "print('three')", "object()")
    save(tmp_path)
    assert check(tmp_path) == 0, "an address in an output is sanitised"
    change(same, '"three\\n"', '"four\\n"')
    assert check(tmp_path) == 1
    assert "01_same.ipynb: differs" in capfd.readouterr().out


@pytest.mark.slow
def test_only_the_tag_lets_an_output_differ(tmp_path):
    code = "import time\nprint(time.time_ns())"
    write(tmp_path, "01_tagged", code, tags=("nbval-ignore-output",))
    write(tmp_path, "02_untagged", code)
    save(tmp_path)
    assert check(tmp_path, "01") == 0
    assert check(tmp_path, "02") == 1


@pytest.mark.slow
def test_a_killed_kernel_ends_at_the_outer_limit_and_is_named(tmp_path, capfd):
    write(tmp_path, "01_dies", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    began = time.monotonic()
    assert check(tmp_path, "--lesson-limit", "10", "--cell-limit", "600") == 1
    assert time.monotonic() - began < 60
    assert "01_dies.ipynb: " in capfd.readouterr().out


def test_no_lesson_is_an_error(tmp_path):
    assert check(tmp_path) == 2
