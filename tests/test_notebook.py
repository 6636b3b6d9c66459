"""The first cell of every lesson, what it does on Colab and elsewhere, and the small things that lessons call.

Follows specdec_lib/notebook.py and colab.py; Colab is a stand-in: a module google.colab, and a pip that only records.
Leaves out what the lessons compute (tools/check_lessons.py) and a real Colab, which is not to be had here.
"""

import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import matplotlib
import nbformat
import pytest
import torch

from specdec_lib import colab, drawings, notebook, zoo
from specdec_lib.colours import COLOURS
from specdec_lib.pocket.tokenizer import build_tokenizer
from specdec_lib.provenance import provenance, write_results
from specdec_lib.trace import Round, Trace

matplotlib.use("Agg")

ROOT = Path(__file__).resolve().parents[1]
LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
ADDRESS = "https://example.invalid/course"
# A Colab with everything but four packages, and a transformers that is too old.
HAS = {
    "torch": "2.8.0+cu126", "numpy": "2.0.2", "pandas": "2.2.2", "matplotlib": "3.10.0", "ipywidgets": "8.1.5",
    "safetensors": "0.5.3", "typer": "0.15.3", "accelerate": "1.6.0", "transformers": "4.51.0",
    "filelock": "3.18.0",
}  # fmt: skip
LACKS = {"rich", "seaborn", "transformers", "bitsandbytes"}


class Pip:
    """Stands in for subprocess.run: git copies pyproject.toml, pip puts what it is asked for into `has`."""

    def __init__(self, has: dict[str, str]):
        self.has, self.commands, self.held, self.fails = dict(has), [], [], ""

    def __call__(self, command, **kwargs):
        self.commands.append(command)
        if command[0] == "git":
            folder = Path(command[-1])
            folder.mkdir()
            shutil.copy(ROOT / "pyproject.toml", folder)
        else:
            if "--constraint" in command:
                self.held += Path(command[command.index("--constraint") + 1]).read_text().split()
            self.has |= dict.fromkeys(self.asked(command), "99.0") if "--no-deps" not in command else {}
        return SimpleNamespace(returncode=int(bool(self.fails)), stderr=self.fails, stdout="")

    @staticmethod
    def asked(command) -> set[str]:
        return {re.split(r"[<>=~!]", part)[0] for part in command[command.index("--quiet") + 1 :] if "=" in part}

    def version(self, name: str) -> str:
        if name not in self.has:
            raise importlib.metadata.PackageNotFoundError(name)
        return self.has[name]

    @property
    def installs(self) -> list[list[str]]:
        return [command for command in self.commands if command[0] != "git"]


@pytest.fixture
def on_colab(monkeypatch, tmp_path):
    pip = Pip(HAS)
    monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    for name in [*HAS, *LACKS]:  # nothing is loaded yet
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(subprocess, "run", pip)
    monkeypatch.setattr(importlib.metadata, "version", pip.version)
    monkeypatch.setattr(notebook, "start", lambda: pip.commands.append(["start"]))
    monkeypatch.chdir(tmp_path)
    return pip


def run_first_cell(address: str = ADDRESS) -> None:
    assert 'REPOSITORY = ""' in notebook.FIRST_CELL
    exec(notebook.FIRST_CELL.replace('REPOSITORY = ""', f"REPOSITORY = {address!r}"), {})


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_every_lesson_opens_with_the_first_cell(path):
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert cells[0].source == notebook.FIRST_CELL
    assert "nbval-ignore-output" in cells[0].metadata.tags


# On Colab.


def test_colab_gets_the_course_and_only_what_it_lacks(on_colab):
    run_first_cell()
    git, course, missing, start = on_colab.commands
    folder = str(Path("specdec-course").resolve())
    assert git == ["git", "clone", "--depth", "1", ADDRESS, folder]
    assert course[-3:] == ["--no-deps", "--editable", folder]
    assert Pip.asked(missing) == LACKS
    assert "transformers<6,>=5.0" in missing
    assert start == ["start"], "the lesson starts once everything is there"
    assert sys.path[0] == folder


def test_pip_may_not_move_what_the_kernel_has_loaded(on_colab):
    run_first_cell()
    assert on_colab.held == ["torch==2.8.0+cu126", "numpy==2.0.2", "pandas==2.2.2"]


@pytest.mark.parametrize("name", colab.NEVER)
def test_a_runtime_too_old_is_named_and_not_changed(on_colab, name):
    on_colab.has[name] = "1.0.0"
    with pytest.raises(RuntimeError, match=f"does not have {name}>=.*newer runtime"):
        run_first_cell()
    assert len(on_colab.installs) == 1, "only the course itself"


def test_a_colab_that_lacks_nothing_gets_the_course_alone(on_colab):
    on_colab.has |= {**dict.fromkeys(LACKS, "99.0"), "transformers": "5.1.0"}
    run_first_cell()
    assert [command[-3] for command in on_colab.installs[:-1]] == ["--no-deps"]
    assert on_colab.commands[-1] == ["start"]


def test_running_it_again_neither_clones_nor_installs_packages_again(on_colab):
    run_first_cell()
    before = len(on_colab.commands)
    on_colab.has["transformers"] = "5.1.0"
    run_first_cell()
    assert [command[0] for command in on_colab.commands[before:]] == [sys.executable, "start"]


def test_a_package_loaded_in_another_version_than_installed_is_noticed(on_colab, monkeypatch):
    monkeypatch.setitem(sys.modules, "seaborn", SimpleNamespace(__version__="0.12.0"))
    with pytest.raises(RuntimeError, match="seaborn 0.12.0.*Restart session"):
        run_first_cell()
    assert ["start"] not in on_colab.commands


def test_transformers_loaded_before_bitsandbytes_was_there_is_noticed(on_colab, monkeypatch):
    on_colab.has["transformers"] = "5.1.0"
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(__version__="5.1.0"))
    with pytest.raises(RuntimeError, match="transformers without bitsandbytes.*Restart session"):
        run_first_cell()


def test_without_an_address_the_cell_says_what_to_set(on_colab):
    with pytest.raises(ValueError, match="set REPOSITORY to the address you cloned this course from"):
        run_first_cell(address="")
    assert on_colab.commands == []


def test_what_pip_says_when_it_fails_is_shown(on_colab):
    Path("specdec-course").mkdir()
    on_colab.fails = "no space left"
    with pytest.raises(RuntimeError, match="no space left"):
        run_first_cell()


def test_the_installer_loads_nothing_that_it_might_install():
    names = sorted({*HAS, *LACKS})
    code = f"import sys, specdec_lib.colab, specdec_lib.notebook; print([n for n in {names} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Elsewhere.


def test_elsewhere_the_cell_only_prints_versions_and_device(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "google.colab", raising=False)
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail(f"ran {a}"))
    threads, styles = torch.get_num_threads(), []
    monkeypatch.setattr("specdec_lib.plots.use_style", lambda: styles.append("used"))
    try:
        exec(notebook.FIRST_CELL, {})
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    printed = capsys.readouterr()
    assert re.match(rf"python 3\.\d+\.\d+  torch {re.escape(torch.__version__)}  transformers 5\.", printed.out)
    assert "cpu: " in printed.out and "GiB of memory" in printed.out
    assert printed.err == ""
    assert styles == ["used"]


# What lessons call.


def test_loading_twice_gives_the_same_pair(monkeypatch):
    loads = []
    monkeypatch.setattr(zoo, "load_pair", lambda name: loads.append(name) or object())
    notebook.load_once.cache_clear()
    assert notebook.load_once("pocket") is notebook.load_once("pocket")
    assert loads == ["pocket"]
    notebook.load_once.cache_clear()


def test_a_table_is_aligned_and_says_what_is_missing(capsys):
    notebook.table([{"what": "short", "n": 7, "x": 1.5}, {"what": "much longer", "n": None, "x": 12.345}])
    assert capsys.readouterr().out.splitlines() == [
        "what           n      x",
        "short          7   1.50",
        "much longer  n/a  12.35",
    ]


def test_a_text_is_shown_with_every_kind_that_it_holds_and_without_times(monkeypatch):
    tokenizer = build_tokenizer()
    a, b, c = tokenizer(" first, next")["input_ids"]
    full = Round([0, a], [-1, 0], [0, 1], [0, 1], [0, 1], [1], {1: "exact"}, [a, b], "bonus", score_s=123.456)
    cut = Round([b, a], [-1, 0], [0, 0], [0, 1], [0, 0], [], {1: "rejected"}, [c], "recovered")
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    notebook.show(Trace([0], "greedy", True, rounds=[full, cut]), tokenizer, title="a <question>")
    (html,) = (page.data for page in shown)
    tokens = dict(re.findall(r'round \d, (\w+)">([^<]*)<', html))
    assert tokens == {"accepted": "first", "bonus": ",", "recovered": " next"}
    assert "a &lt;question&gt;" in html
    assert "123" not in html, "a time would differ at every run"


def test_the_picture_of_rounds_emits_as_many_tokens_below_as_above():
    boxes = [matplotlib.colors.to_hex(p.get_facecolor()).upper() for p in drawings.rounds_picture().axes[0].patches]
    above = boxes.count(COLOURS["autoregressive"])
    assert above == sum(boxes.count(COLOURS[kind]) for kind in ("accepted", "recovered", "bonus")) == 10
    assert boxes.count(COLOURS["target"]) == 10 + 3


def test_the_picture_of_a_cache_counts_the_positions_that_it_draws():
    without, cached = drawings.cache_picture(prompt=3, new=2).axes
    assert "7 positions" in without.get_title() and "4 computed" in cached.get_title()  # 3 + 4, and 3 + 1


# Recorded results.


def test_recorded_results_say_where_they_come_from(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(zoo, "data_folder", lambda: tmp_path)
    (tmp_path / "bench").mkdir()
    origin = provenance({"pair": "x"}, seed=0) | {"git_sha": "0123456789", "dirty": True, "date": "2026-01-02T03:04:05"}
    origin |= {"versions": {"torch": "9.8.7", "bitsandbytes": None}, "note": "from 4 bits"}
    write_results(tmp_path / "bench/x.json", origin, [{"method": "a"}])
    assert notebook.recorded("x", "specdec bench")["rows"] == [{"method": "a"}]
    said = capsys.readouterr().out
    for part in (
        "2026-01-02",
        origin["device"],
        "threads, float32",
        "0123456, with changes",
        "torch 9.8.7\nfrom 4 bits\n",
    ):
        assert part in said


def test_an_experiment_s_record_says_how_it_was_made_with_its_own_n_and_seed(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(zoo, "data_folder", lambda: tmp_path)
    (tmp_path / "experiments").mkdir()
    monkeypatch.setattr("specdec_lib.experiments.find", lambda name: SimpleNamespace(text=lambda result: "the table"))
    origin = provenance({"experiment": "csd-soft", "pair": "tiny", "n": 37}, seed=5)
    write_results(tmp_path / "experiments/csd-soft-tiny.json", origin, [{"method": "a"}])
    assert notebook.experiment("csd-soft", "tiny")["rows"] == [{"method": "a"}]
    said = capsys.readouterr().out
    assert "made by: specdec experiment csd-soft --pair tiny --n 37 --seed 5\n\nthe table\n" in said


def test_speeds_are_over_plain_decoding_with_their_intervals(capsys):
    plain = {"method": "autoregressive", "gamma": None, "tok_per_s": 50.0, "speedup": 1.0, "speedup_interval": None}
    fast = {"method": "csd", "gamma": 8, "tok_per_s": 91.0, "speedup": 1.82, "speedup_interval": [1.7, 1.95]}
    notebook.speeds({"rows": [plain | {"kept": 0.0}, fast | {"kept": 3.5}]})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["rule", "autoregressive", "csd, 8 drafts"]
    assert lines[-1].split()[3:] == ["91.00", "1.82", "1.70", "to", "1.95", "3.50"]


def test_without_a_recorded_file_the_command_that_makes_it_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(zoo, "data_folder", lambda: tmp_path)
    assert notebook.recorded("x", "specdec bench --pair x") is None
    assert "specdec bench --pair x --json data/bench/x.json" in capsys.readouterr().out
