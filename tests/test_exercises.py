"""Exercises come from solutions: the generator, that the committed ones are its work, and that they run.
Follows tools/exercises.py.
Leaves out the lessons themselves.
"""

import json

import course
import exercises
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

NOTEBOOKS = exercises.ROOT / "notebooks"
SOLUTIONS = sorted((NOTEBOOKS / "solutions").glob("*.ipynb"))
ANSWER = '''\
def residual(p, q):
    """(p - q)+ scaled to one. Hint: what if p equals q?"""
    # SOLUTION
    rest = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
    return [r / sum(rest) for r in rest]
    # END SOLUTION
'''
CHECK = """\
from specdec_lib.checks import check
def check_residual(residual):
    assert residual([0.5, 0.5], [0.25, 0.75]) == [1.0, 0.0]
check(check_residual, residual)"""


def tagged(cell, *tags):
    cell.metadata["tags"] = list(tags)
    return cell


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "solutions").mkdir()
    cells = [
        new_markdown_cell("# Exercises"),
        tagged(new_code_cell(ANSWER), "solution"),
        new_code_cell(CHECK),
        tagged(new_markdown_cell("The answer in words."), "solution"),
    ]
    cells[2].execution_count = 3
    nbformat.write(new_notebook(cells=cells), tmp_path / "solutions" / "03_laws.ipynb")
    return tmp_path


def printed(path):
    """Everything the notebook prints when run; the run itself must succeed."""
    notebook = nbformat.read(path, as_version=4)
    assert course.execute(notebook, path.parent, cell_limit_s=60) == ""
    return said(notebook.cells)


def said(cells):
    return "".join(o.get("text", "") for cell in cells for o in cell.get("outputs", []))


def test_an_exercise_keeps_the_statement_and_loses_the_answer(folder):
    assert exercises.main(["--notebooks", str(folder)]) == 0
    made = nbformat.read(folder / "exercises" / "03_laws.ipynb", as_version=4)
    assert [cell.cell_type for cell in made.cells] == ["markdown", "code", "code"]
    assert made.cells[1].source == (
        'def residual(p, q):\n    """(p - q)+ scaled to one. Hint: what if p equals q?"""\n'
        '    raise NotImplementedError("yours to write")'
    )
    assert made.cells[1].metadata.tags == ["exercise"]
    assert made.cells[2].outputs == [] and made.cells[2].execution_count is None


def test_unsolved_it_runs_to_its_end_and_solved_it_passes(folder):
    exercises.main(["--notebooks", str(folder)])
    assert printed(folder / "exercises" / "03_laws.ipynb") == "not yet: residual: still to be written\n"
    assert printed(folder / "solutions" / "03_laws.ipynb") == "passed: residual\n"


def test_a_change_by_hand_and_a_missing_solution_are_seen(folder):
    exercises.main(["--notebooks", str(folder)])
    assert exercises.differences(folder) == []
    path = folder / "exercises" / "03_laws.ipynb"
    path.write_text(path.read_text().replace("Hint", "Tip"))
    path.with_name("04_orphan.ipynb").write_text("{}")
    changed, orphan = exercises.differences(folder)
    assert "03_laws.ipynb: is not what its solution gives" in changed and "Tip" in changed
    assert "04_orphan.ipynb: has no solution" in orphan
    assert exercises.main(["--notebooks", str(folder), "--check"]) == 1


@pytest.mark.parametrize(
    "source, problem",
    [
        ("# SOLUTION\nx = 1\n# END SOLUTION", "inside a function"),
        ("def f():\n    # SOLUTION\n    return 1", "without # END SOLUTION"),
        ("def f():\n    return 1\n    # END SOLUTION", "without # SOLUTION"),
        ("def f():\n    # SOLUTION\n    # SOLUTION\n    # END SOLUTION", "inside a marked part"),
        ("def f():\n    return 1", "holds no # SOLUTION"),
    ],
)
def test_bad_marks_are_refused(source, problem):
    with pytest.raises(ValueError, match=problem):
        exercises.stub(source)


def test_marks_without_the_tag_are_refused_with_the_cell(folder, capsys):
    path = folder / "solutions" / "03_laws.ipynb"
    notebook = json.loads(path.read_text())
    notebook["cells"][1]["metadata"] = {}
    path.write_text(json.dumps(notebook))
    assert exercises.main(["--notebooks", str(folder)]) == 2
    assert "03_laws.ipynb, cell 2: holds # SOLUTION and lacks the tag" in capsys.readouterr().err


def test_the_committed_exercises_are_what_the_solutions_give():
    assert exercises.differences(NOTEBOOKS) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_a_committed_exercise_runs_unsolved_and_its_solution_passes(path):
    """Both in one kernel, emptied in between: imports take longer than the cells."""
    both = nbformat.read(path, as_version=4)
    exercise = nbformat.read(NOTEBOOKS / "exercises" / path.name, as_version=4)
    reset = new_code_cell("%reset -f")
    both.cells = [*exercise.cells, reset, *both.cells]
    assert course.execute(both, path.parent, cell_limit_s=60) == ""
    at = both.cells.index(reset)
    unsolved, solved = said(both.cells[:at]), said(both.cells[at:])
    assert "not yet: " in unsolved
    assert "passed: " in solved and "not yet: " not in solved
