"""The course runner on tiny notebooks: what passes, what fails and where, what is written.
Follows tools/course.py and tools/pages.py.
Leaves out the real lessons: tools/check_lessons.py runs those.
"""

import base64
import io
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import course
import nbformat
import pages
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from PIL import Image

TITLE = "# Lesson {n}\n\n12 minutes, no GPU. See [the next](02_next.ipynb) and [code](../specdec_lib/tree.py)."


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "notebooks").mkdir()
    return tmp_path


def write(folder: Path, name: str, *code: str, tags: tuple[str, ...] = ()) -> Path:
    cells = [new_markdown_cell(TITLE.format(n=name))] + [new_code_cell(text) for text in code]
    cells[-1].metadata["tags"] = list(tags)
    path = folder / "notebooks" / f"{name}.ipynb"
    nbformat.write(new_notebook(cells=cells), path)
    return path


def run(folder: Path, *arguments: str) -> int:
    return course.main(["--notebooks", str(folder / "notebooks"), "--out", str(folder / "out"), *arguments])


def test_a_passing_lesson_gives_page_index_row_and_headline(folder, capsys):
    path = write(folder, "01_good", "x = 2", "print('noise'); print('speedup 1.8x')", tags=("headline",))
    before = path.read_text()
    assert run(folder) == 0
    printed = capsys.readouterr().out
    assert re.search(r"01_good +\d+\.\d +passed +speedup 1\.8x", printed)
    index = (folder / "out" / "index.html").read_text()
    assert 'href="01_good.html"' in index and "Lesson 01_good" in index and ">12<" in index
    assert "speedup 1.8x" in index
    assert path.read_text() == before, "running must not change the lesson"


def test_failure_death_and_timeout_each_name_their_cell_and_fail_the_command(folder, capsys):
    write(folder, "01_raises", "x = 1", "# a comment\n1 / 0", "print('never')")
    write(folder, "02_dies", "import os", "os._exit(1)")
    write(folder, "03_hangs", "import time\ntime.sleep(600)")
    write(folder, "04_good", "print('still runs')")
    began = time.monotonic()
    assert run(folder, "--cell-limit", "2") == 1
    assert time.monotonic() - began < 120
    printed = capsys.readouterr().out
    assert "01_raises.ipynb: code cell 2 (1 / 0): ZeroDivisionError: division by zero" in printed
    assert "02_dies.ipynb: code cell 2 (os._exit(1)): the kernel died" in printed
    assert "03_hangs.ipynb: code cell 1 (import time): still running at its time limit (2 s)" in printed
    assert re.search(r"04_good +\d+\.\d +passed", printed)
    assert "ZeroDivisionError" in (folder / "out" / "01_raises.html").read_text()
    assert (folder / "out" / "index.html").read_text().count('class="failed"') == 3


def test_a_tag_cannot_hide_an_error(folder):
    write(folder, "01_tagged", "1 / 0", tags=("raises-exception",))
    assert run(folder) == 1


def test_lessons_past_the_total_limit_are_not_run_and_fail(folder, capsys):
    write(folder, "01_slow", "import time; time.sleep(600)")
    write(folder, "02_after", "print('never')")
    assert run(folder, "--total-limit", "2") == 1
    assert "02_after.ipynb: not run: the 2 s for all were used up" in capsys.readouterr().out


def test_no_lesson_is_an_error(folder, capsys):
    assert run(folder) == 2
    write(folder, "01_good", "pass")
    assert run(folder, "07") == 2
    assert "no lesson named 07" in capsys.readouterr().err


def test_an_interrupt_leaves_the_finished_pages(folder):
    write(folder, "01_good", "print('done')")
    write(folder, "02_slow", "import time; time.sleep(600)")
    process = subprocess.Popen(
        [sys.executable, course.__file__, "--notebooks", folder / "notebooks", "--out", folder / "out"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert "01_good: passed" in process.stdout.readline()
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert re.search(r"02_slow +\d+\.\d +interrupted", printed)
    assert (folder / "out" / "01_good.html").exists() and not (folder / "out" / "02_slow.html").exists()
    assert "01_good.html" in (folder / "out" / "index.html").read_text()


def test_save_writes_outputs_counts_and_no_widget(folder):
    path = write(folder, "01_widget", "print('one')", "import ipywidgets\nipywidgets.IntSlider()")
    assert run(folder, "--save") == 0
    saved = nbformat.read(path, as_version=4)
    code = [cell for cell in saved.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == [1, 2]
    assert code[0].outputs[0].text == "one\n"
    assert code[1].outputs[0].data == {"text/plain": pages.WIDGET_NOTE}
    assert set(saved.metadata) == {"kernelspec", "language_info"}
    assert not any("execution" in cell.metadata for cell in code)


def test_a_saved_picture_has_its_size_and_a_palette(folder):
    draw = "from PIL import Image\nImage.radial_gradient('L').convert('RGB')"
    path = write(folder, "01_picture", draw)
    assert run(folder, "--save") == 0
    (cell,) = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    picture = Image.open(io.BytesIO(base64.b64decode(cell.outputs[0].data["image/png"])))
    assert (picture.mode, picture.size) == ("P", (256, 256))
    assert picture.convert("L").getpixel((128, 128)) < 10 < 240 < picture.convert("L").getpixel((0, 0))


def test_a_failing_lesson_is_not_saved(folder):
    path = write(folder, "01_raises", "print('one')", "1 / 0")
    before = path.read_text()
    assert run(folder, "--save") == 1
    assert path.read_text() == before


def test_a_page_asks_nothing_of_the_network(folder):
    notebook = new_notebook(
        cells=[
            new_markdown_cell(TITLE.format(n=1) + "\n\nInline $\\min(p, q)$ and\n\n$$\\sum_x \\min(p(x), q(x))$$\n"),
            new_code_cell("1"),
        ]
    )
    page = folder / "out" / "01.html"
    page.parent.mkdir()
    pages.write_lesson(notebook, "One", folder / "notebooks", page)
    text = page.read_text()
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=.(https?:)?//", text)
    assert not re.search(r"<script[^>]+src=|@import|url\(.?https?:", text)
    assert text.count("<math") == 2 and "$" not in re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
    assert 'href="02_next.html"' in text and 'href="../specdec_lib/tree.py"' in text


def test_a_folded_answer_stays_folded(folder):
    write(folder, "01_folds", "1")
    source = "Which?\n\n<details><summary>The answer</summary>\n\n- this one\n\n</details>\n"
    notebook = new_notebook(cells=[new_markdown_cell(source)])
    page = folder / "01_folds.html"
    pages.write_lesson(notebook, "One", folder / "notebooks", page)
    folded = re.search(r"<details>(.*?)</details>", page.read_text(), re.DOTALL)
    assert "this one" in folded[1]
