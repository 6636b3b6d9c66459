"""The widgets of lessons 02 to 07 in JupyterLab, in a real browser: they appear, answer, and redraw.

Our own; it looks at the DOM, not at pixels.
Left out: what the pictures show (../test_widgets.py), and other front ends (Colab, VS Code).
"""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PLAYWRIGHT = importlib.util.find_spec("playwright") is not None
WAIT_S = 60  # a kernel that imports torch on a busy machine

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
    pytest.mark.skipif(not PLAYWRIGHT, reason="playwright is not installed"),
]

KERNEL_READY = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"

TRACE = """\
from specdec_lib.trace import Round, Trace
from specdec_lib.widgets import trace_widget


class Words:
    def decode(self, ids, skip_special_tokens=False):
        return " ".join("abcd"[i] for i in ids)


one = Round([0, 0, 1], [-1, 0, 1], [0, 0.9, 0.1], [0, 0.8, 0.7], [0, 0.8, 0.3],
            [1], {1: "exact", 2: "rejected"}, [0, 3], "recovered")
two = Round([3, 1], [-1, 0], [0, 0.5], [0, 0.4], [0, 0.7], [1], {1: "exact"}, [1, 2], "bonus")
trace_widget({"a trace": Trace([0], "lossless", True, rounds=[one, two])}, Words())
"""

DIAL = """\
from specdec_lib.widgets import speed_dial

speed_dial({"flat": None, "here": {1: 1.0, 7: 1.6, 65: 4.0}})
"""

KNOB = """\
from specdec_lib.scored import ScoredText
from specdec_lib.widgets import knob_widget

one = ScoredText("how many?", [" a", " b", " c"], ["right", "right", "wrong"], [" a", " x", " y"], [0, 1, 2],
                 [-0.1, -3.0, -5.0], [-0.1, -0.1, -0.1], [0.3, 0.5, 0.5], [4.0, 2.0, -2.0])
knob_widget([one, one])
"""

STEP = """\
import numpy as np

from specdec_lib.experiments.recording import Recorded
from specdec_lib.widgets import step_widget

text = [7, 8, 9, 4, 3]
rows = np.array([[token, 90 + i, 95 + i] for i, token in enumerate(text)])
one = Recorded("made", [5, 6, 7, 8, 5, 6], text, rows, np.broadcast_to(-np.arange(3), rows.shape))
step_widget([one, one], lambda token: f" {token}", at=1, capacity=4)
"""

MEMORY = """\
from specdec_lib.filling import Filling
from specdec_lib.scored import ScoredText
from specdec_lib.widgets import filling_widget

one = ScoredText("how many?", [" a", " b", " 4"], ["right", "right", "wrong"], [" a", " x", " 5"], [0, 1, 2],
                 [-0.1, -3.0, -5.0], [-0.1, -0.1, -0.1], [0.3, 0.5, 0.5], [0.0, 0.0, 0.0])
measured = {(10, 6, 0.1): (3.0, 1.0), (10, 6, 0.001): (4.0, 0.9), (99, 6, 0.1): (3.5, 0.95), (99, 6, 0.001): (6.0, 0.7)}
filling = Filling((0, 10, 99), (6,), (0.1, 0.001), {(" b", " x"): (0, 9, 90), (" 4", " 5"): (0, 1, 9)},
                  {" b": (0, 9, 90), " 4": (0, 99, 990)}, measured, (2.0, 1.0), 20)
filling_widget(filling, [one])
"""


def lesson_up_to(name: str, call: str) -> list[str]:
    """The code cells of a lesson up to the one that calls a widget."""
    path = next((ROOT / "notebooks").glob(f"{name}_*.ipynb"))
    cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    last = next(i for i, source in enumerate(cells) if call + "(" in source)
    return cells[: last + 1]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A JupyterLab on the loopback address with an empty token; gives its address and its folder."""
    folder = tmp_path_factory.mktemp("lab")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    private = {f"JUPYTER_{what}_DIR": str(folder / what.lower()) for what in ("CONFIG", "DATA", "RUNTIME")}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--notebook-dir={folder}"]
    command += ["--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    command += ["--IdentityProvider.token=", "--LabApp.expose_app_in_browser=True"]
    command += ["--LabApp.extension_manager=readonly", "--LabApp.news_url=None"]
    log = (folder / "log").open("w")
    server = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **private})
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(f"{address}/api", server, folder / "log")
        yield address, folder
    finally:
        server.terminate()
        try:
            server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            server.kill()
        log.close()


def wait_for(url: str, server: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=2).read()
            return
        except OSError:
            time.sleep(0.3)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def run_cells(lab, browser):
    """run_cells(sources) opens a notebook of these cells, runs all of them, and gives the page."""
    address, folder = lab
    pages = []

    def run(sources: list[str]):
        name = f"cells{len(list(folder.glob('*.ipynb')))}.ipynb"
        kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), folder / name)
        page = browser.new_page(viewport={"width": 1400, "height": 1400})
        pages.append(page)
        page.set_default_timeout(WAIT_S * 1000)
        page.goto(f"{address}/doc/tree/{name}")
        page.wait_for_function(KERNEL_READY)  # earlier, Lab would ask which kernel to take
        page.evaluate("window.jupyterapp.commands.execute('notebook:run-all-cells')")
        return page

    yield run
    for page in pages:
        page.close()


def picture(page) -> str:
    """The address of the widget's picture, which is new whenever it is redrawn. It must be a picture with pixels."""
    page.wait_for_function("(document.querySelector('img.widget-image') || {}).naturalWidth > 300")
    return page.get_attribute("img.widget-image", "src")


def wait_until_says(page, text: str) -> None:
    page.locator(".widget-html-content", has_text=text).first.wait_for()


def wait_until_redrawn(page, before: str) -> str:
    page.wait_for_function("old => document.querySelector('img.widget-image').src !== old", arg=before)
    return picture(page)


def test_two_laws_under_sliders(run_cells):
    page = run_cells(lesson_up_to("03", "two_laws_widget"))
    wait_until_says(page, "alpha = 0.600")
    before = picture(page)
    handles = page.locator(".widget-slider .noUi-handle")
    assert handles.count() == 8, "a slider a token and law"
    for _ in range(2):  # p(A) from 5 to 6
        handles.nth(0).press("ArrowRight")
    wait_until_says(page, "alpha = 0.573")
    wait_until_redrawn(page, before)
    assert page.locator("img.widget-image").count() == 1, "pictures do not pile up"
    assert page.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr']").count() == 0


def test_stepping_through_a_trace(run_cells):
    page = run_cells([TRACE])
    text = page.locator(".widget-html-content")
    wait_until_says(page, "recovered")
    first = picture(page)
    assert text.locator("span[title='round 0, recovered']").count() == 1
    assert text.locator("span[title^='round 1']").count() == 0
    page.get_by_role("button", name="next").click()
    second = wait_until_redrawn(page, first)
    assert text.locator("span[title='round 1, bonus']").count() == 1
    page.get_by_role("button", name="back").click()
    wait_until_redrawn(page, second)
    page.wait_for_function("!document.querySelector(\"span[title^='round 1']\")")
    assert page.locator("img.widget-image").count() == 1


def test_the_speed_dial(run_cells):
    page = run_cells([DIAL])
    wait_until_says(page, "speed-up 2.46; best gamma 6")
    before = picture(page)
    handles = page.locator(".widget-slider .noUi-handle")
    assert handles.count() == 4, "alpha, gamma, c and batch"
    handles.nth(1).press("ArrowRight")  # gamma from 5 to 6
    wait_until_says(page, "3.95 tokens a round expected; speed-up 2.47")
    before = wait_until_redrawn(page, before)
    page.locator(".widget-dropdown select").select_option(label="here")
    wait_until_says(page, "speed-up 1.80")
    wait_until_redrawn(page, before)
    assert page.locator("img.widget-image").count() == 1


def test_the_knob_of_a_lossy_rule(run_cells):
    page = run_cells([KNOB])
    wait_until_says(page, "delta = 0.5. This text: 2 of 3 tokens kept")
    before = picture(page)
    handle = page.locator(".widget-slider .noUi-handle")
    assert handle.count() == 1, "one knob"
    for _ in range(4):  # delta from .5 to .1, below sigmoid(-2)
        handle.press("ArrowRight")
    wait_until_says(page, "delta = 0.1. This text: 3 of 3 tokens kept")
    before = wait_until_redrawn(page, before)
    assert page.locator("span[title='rescued, wrong']").count() == 1
    page.locator(".widget-dropdown select").select_option(label="topk")
    wait_until_says(page, "k = 1. This text: 1 of 3 tokens kept")
    wait_until_redrawn(page, before)
    assert page.locator("img.widget-image").count() == 1, "pictures do not pile up"
    assert page.locator("span[title='rejected']").count() == 1


def test_the_tree_of_a_step(run_cells):
    page = run_cells([STEP])
    wait_until_says(page, "after 1 tokens: the last 3 stood before; 3 proposed, 1 accepted, 2 emitted")
    before = picture(page)
    handles = page.locator(".widget-slider .noUi-handle")
    assert handles.count() == 2, "place and nodes"
    handles.nth(1).press("ArrowRight")  # from 4 nodes to 8
    wait_until_says(page, "after 1 tokens: the last 3 stood before; 7 proposed, 1 accepted, 2 emitted")
    before = wait_until_redrawn(page, before)
    page.get_by_role("button", name="next round").click()
    wait_until_says(page, "after 3 tokens: nothing retrieved; 7 proposed, 0 accepted, 1 emitted")
    before = wait_until_redrawn(page, before)
    handles.nth(0).press("ArrowLeft")
    wait_until_says(page, "after 2 tokens")
    wait_until_redrawn(page, before)
    assert page.locator(".widget-html-content table td", has_text="last 3").count() == 1
    assert page.locator("img.widget-image").count() == 1, "pictures do not pile up"


def test_the_memory_as_it_fills(run_cells):
    page = run_cells([MEMORY])
    wait_until_says(page, "After 0 prompts: 0 pairs")
    before = picture(page)
    handles = page.locator(".widget-slider .noUi-handle")
    assert handles.count() == 3, "prompts, lambda and tau"
    assert page.locator("span[title='rejected']").count() == 1
    handles.nth(2).press("ArrowRight")  # tau from .1 to .001
    handles.nth(0).press("ArrowRight")  # prompts from 0 to 10
    wait_until_says(page, "After 10 prompts: 2 pairs, 1 of them seen more than 6 times")
    before = wait_until_redrawn(page, before)
    assert page.locator("span[title='rescued']").count() == 1
    assert page.locator("span[title='rejected, wrong']").count() == 1
    handles.nth(0).press("ArrowRight")  # to 99, when the slip is trusted, too
    wait_until_says(page, "kept 6.00, answers right 70.0%")
    wait_until_redrawn(page, before)
    assert page.locator("span[title='rescued, wrong']").count() == 1
    assert page.locator("img.widget-image").count() == 1, "pictures do not pile up"
