"""What may be committed: the folders, sizes and kinds of file, and the form of every notebook.
Follows CONTRIBUTING.md.
Leaves out what a lesson computes (tools/check_lessons.py) and how code is written (ruff).

Tests that look into notebooks have one case a notebook, so none passes by finding nothing unseen:
`test_the_lessons_are_there` says which must exist.
"""

import ast
import re
import subprocess
from pathlib import Path

import exercises
import nbformat
import pages
import pytest

ROOT = Path(__file__).resolve().parents[1]
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
EXERCISES = sorted((ROOT / "notebooks" / "exercises").glob("*.ipynb"))
SOLUTIONS = sorted((ROOT / "notebooks" / "solutions").glob("*.ipynb"))
MUST_EXIST = ("00", "01", "02", "03", "04", "05", "06", "07")

TOP_LEVEL = {
    *("README.md", "LICENSE", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "pyproject.toml"),
    *("requirements.txt", "environment.yml", ".gitignore", ".gitattributes", ".ci"),
    *("notebooks", "specdec_lib", "data", "docs", "tests", "tools"),
}
MB = 1_000_000
LESSON_LIMIT, FILE_LIMIT, POCKET_LIMIT = 1.5 * MB, 24 * MB, 40 * MB
# Formats that unpickle, or that hide weights from their safetensors and sha256.
FORBIDDEN_SUFFIXES = {".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".joblib", ".npy", ".npz"}

# Written with gaps, which split_gaps takes out, so that this file does not hold what it forbids.
MACHINE_PATHS = "/ work/, / root/, / home/, / tmp/bash, / opt/wheels, / opt/pypi"
REGISTRY_HOSTS = "pypi .org, pythonhosted .org, pytorch .org/whl, anaconda .org, npmjs .org, debian .org"
REGISTRY_OPTIONS = "- -index-url, - -extra-index-url, - -find-links"
REMOTE_CODE = "trust_remote _code=True"
TEXT_SUFFIXES = {
    ".py",
    ".md",
    ".toml",
    ".yml",
    ".txt",
    ".cfg",
    ".sh",
    ".ipynb",
    ".json",
    ".jsonl",
    ".html",
    ".svg",
}

each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
each_notebook = pytest.mark.parametrize(
    "path", LESSONS + EXERCISES + SOLUTIONS, ids=lambda path: f"{path.parent.name}/{path.stem}"
)


def tracked() -> list[Path]:
    """Every file that git tracks and that is there, as a path below ROOT."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file()]


def is_text(path: Path) -> bool:
    return path.suffix in TEXT_SUFFIXES or path.name in ("Makefile", "run", ".gitignore", ".gitattributes")


def texts() -> list[tuple[Path, str]]:
    return [(path, (ROOT / path).read_text()) for path in tracked() if is_text(path)]


def split_gaps(text: str) -> list[str]:
    return text.replace(" ", "").split(",")


def code_cells(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def has(tag: str, cell: nbformat.NotebookNode) -> bool:
    return tag in cell.metadata.get("tags", [])


# Notebooks.


def test_the_lessons_are_there():
    numbers = [path.name[:2] for path in LESSONS]
    assert [number for number in MUST_EXIST if number not in numbers] == [], "lessons missing"
    assert len(numbers) == len(set(numbers)), "two lessons share a number"
    assert all(re.fullmatch(r"\d\d_[a-z0-9_]+\.ipynb", path.name) for path in LESSONS)


@each_notebook
def test_a_notebook_is_valid_and_says_nothing_of_where_it_was_run(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    assert "widgets" not in notebook.metadata, "widget state: GitHub then refuses to show the notebook"
    assert set(notebook.metadata.language_info) == {"name"}, "save with tools/course.py --save"


@each_notebook
def test_no_cell_skips_or_hides_an_error(path):
    for cell in code_cells(path):
        tags = cell.metadata.get("tags", [])
        assert {tag for tag in tags if tag.startswith("nbval-")} <= {"nbval-ignore-output"}, tags
        assert not {"raises-exception", "skip-execution"} & set(tags), tags
        assert not re.search(r"#\s*(NBVAL_|PYTEST_VALIDATE)", cell.source), "use the tag, not a comment"


@each_lesson
def test_a_lesson_was_run_once_from_top_to_bottom(path):
    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert outputs, "lessons keep their outputs"
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [output for output in outputs if pages.WIDGET_VIEW in output.get("data", {})], (
        "a widget view without its state shows nothing: save with tools/course.py --save"
    )


@each_lesson
def test_a_lesson_has_title_minutes_and_a_headline(path):
    notebook = nbformat.read(path, as_version=4)
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert re.match(r"# ", notebook.cells[0].source), "the first cell opens with the title"
    assert re.search(r"\d+ minutes", text)
    tagged = [cell for cell in code_cells(path) if has("headline", cell)]
    assert len(tagged) == 1 and tagged[0].outputs, "one code cell tagged headline prints the lesson's figure"


def test_every_lesson_opens_with_the_same_code_cell():
    first = {path.name: code_cells(path)[0].source for path in LESSONS}
    assert len(set(first.values())) <= 1, sorted(first)


@pytest.mark.parametrize("path", EXERCISES, ids=lambda path: path.stem)
def test_an_exercise_is_stripped(path):
    for cell in code_cells(path):
        assert cell.outputs == [] and cell.execution_count is None
        assert exercises.BEGIN not in cell.source and not has("solution", cell)


def test_every_exercise_and_solution_belongs_to_a_lesson():
    lessons = {path.name[:2] for path in LESSONS}
    for path in EXERCISES + SOLUTIONS:
        assert path.name[:2] in lessons, f"{path.relative_to(ROOT)}: no such lesson"


@each_lesson
def test_the_map_in_the_readme_names_the_lesson(path):
    assert f"notebooks/{path.name}" in (ROOT / "README.md").read_text()


# Files.


def test_the_top_level_is_as_fixed():
    assert {path.parts[0] for path in tracked()} - TOP_LEVEL == set()


def test_sizes():
    sizes = {path: (ROOT / path).stat().st_size for path in tracked()}
    assert {p: s for p, s in sizes.items() if s >= FILE_LIMIT} == {}
    assert {p: s for p, s in sizes.items() if p.suffix == ".ipynb" and s >= LESSON_LIMIT} == {}
    assert sum(size for path, size in sizes.items() if path.parts[:2] == ("data", "pocket")) < POCKET_LIMIT


def test_nothing_that_unpickles():
    assert [path for path in tracked() if path.suffix in FORBIDDEN_SUFFIXES] == []
    words = re.compile(r"^\s*(import|from) (pickle|joblib|dill|cloudpickle)\b|weights_only=False", re.MULTILINE)
    assert [path for path, text in texts() if path.name != "test_repository.py" and words.search(text)] == []


def test_no_code_of_a_model_repository_is_ever_trusted():
    (word,) = split_gaps(REMOTE_CODE)
    assert [path for path, text in texts() if word in re.sub(r"\s*=\s*", "=", text)] == []


@pytest.mark.parametrize("forbidden", [MACHINE_PATHS, REGISTRY_HOSTS, REGISTRY_OPTIONS])
def test_no_file_names_a_machine_s_folder_or_a_registry(forbidden):
    found = [(str(path), word) for path, text in texts() for word in split_gaps(forbidden) if word in text]
    assert found == []


def test_scripts_are_executable():
    for name in (".ci/run", "tools/setup.sh", "tools/test.sh"):
        assert (ROOT / name).stat().st_mode & 0o111, name


def test_continuous_integration_runs_make_test_and_nothing_else():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    commands = [line for line in lines if line and not line.startswith(("#", "set ", "cd "))]
    assert commands == ["make test"]


# Code.


def python_files() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py"]


def test_every_python_file_says_what_it_is_what_it_follows_and_what_it_leaves_out():
    short = []
    for path in python_files():
        text = (ROOT / path).read_text()
        lines = [line for line in (ast.get_docstring(ast.parse(text)) or "").splitlines() if line.strip()]
        if text.strip() and len(lines) < (1 if path.name == "__init__.py" else 3):
            short.append(str(path))
    assert short == []


def reasons_missing(tree: ast.AST) -> list[int]:
    """Lines of skips and expected failures without a reason, and of expected failures that are not strict."""
    found = []
    for node in ast.walk(tree):
        bare = [d for d in getattr(node, "decorator_list", []) if isinstance(d, ast.Attribute)]
        found += [d.lineno for d in bare if d.attr in ("skip", "xfail")]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, keywords = node.func.attr, {k.arg for k in node.keywords}
            positional_reason = bool(node.args) and ast.unparse(node.func) in (
                "pytest.skip",
                "pytest.mark.skip",
            )
            if name in ("skip", "skipif", "xfail") and "pytest" in ast.unparse(node.func):
                missing = "reason" not in keywords and not positional_reason
                if missing or (ast.unparse(node.func) == "pytest.mark.xfail" and "strict" not in keywords):
                    found.append(node.lineno)
    return found


def test_every_skip_gives_its_reason():
    files = [path for path in python_files() if path.parts[0] == "tests"]
    found = {str(path): reasons_missing(ast.parse((ROOT / path).read_text())) for path in files}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "code, lines",
    [
        ("@pytest.mark.skip\ndef f(): pass", [1]),
        ("@pytest.mark.skip()\ndef f(): pass", [1]),
        ("@pytest.mark.skipif(True)\ndef f(): pass", [1]),
        ("@pytest.mark.xfail(reason='known')\ndef f(): pass", [1]),
        ("@pytest.mark.skipif(True, reason='no browser')\ndef f(): pass", []),
        ("pytest.skip('no browser')", []),
        ("pytest.skip()", [1]),
    ],
)
def test_a_skip_without_a_reason_is_seen(code, lines):
    assert reasons_missing(ast.parse(code)) == lines
