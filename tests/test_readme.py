"""README says what is so: its measured table, its example, its list of methods.

Follows README.md and tools/readme.py.
Left out: links to lessons (test_repository.py).
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from specdec_lib.methods import METHODS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
sys.path.insert(0, str(ROOT / "tools"))


def test_the_measured_table_is_what_eval_recorded():
    from readme import with_table

    result = json.loads((ROOT / "data/pocket/eval.json").read_text())
    assert "| measured |" in README
    assert with_table(README, result) == README
    result["rows"][0]["accuracy"] /= 2
    assert with_table(README, result) != README


def test_the_example_runs_and_says_what_it_did():
    example = re.search(r"```python\n(.*?)```", README, re.DOTALL)[1]
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\d\.\d\d tokens a target pass, ended by eos", done.stdout)
    assert "'recovered'" in done.stdout and "'accepted'" in done.stdout


def test_every_method_is_in_the_table():
    assert re.findall(r"^\| `([a-z-]+)` \|", README, re.MULTILINE) == list(METHODS)


def test_every_file_that_readme_links_is_there():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
