"""The pages in docs/ that give commands: the command line takes each of them; csd.md's numbers are the code's.

Follows specdec_lib/cli/ and specdec_lib/csd/.
Left out: what the commands do (test_cli.py, test_csd_memory.py), and the words of a rule, which no test can read.
"""

import re
import shlex
from pathlib import Path

import pytest
import typer

from specdec_lib import cli
from specdec_lib.bench import split_methods
from specdec_lib.csd.calibrate import CHUNK
from specdec_lib.csd.memory import CAP, CONTEXT_TOKENS
from specdec_lib.experiments import NAMES
from specdec_lib.hf_arms import HF_METHODS
from specdec_lib.methods import METHODS, parse_method

DOCS = Path(__file__).parent.parent / "docs"
COMMANDS = [
    (page, line.strip())
    for page in ("csd.md", "judge.md", "retrieval.md")
    for line in (DOCS / page).read_text().splitlines()
    if line.startswith("    specdec ")
]


def parsed(line: str) -> tuple[str, dict]:
    """The command's name and its parameters; an error if there is no such command or option, or a value is no value."""
    words, command = shlex.split(line)[1:], typer.main.get_command(cli.app)
    name, context = "specdec", None
    while hasattr(command, "commands"):
        context = command.make_context(name, [], parent=context, resilient_parsing=True)
        name = words.pop(0)
        command = command.commands[name]
    return name, command.make_context(name, words, parent=context).params


@pytest.mark.parametrize("page, line", COMMANDS, ids=[line for _, line in COMMANDS])
def test_a_page_s_command_is_taken_and_its_methods_exist(page, line):
    name, given = parsed(line)
    if name == "experiment":
        assert given["name"] in NAMES
    methods = split_methods(given["methods"]) if given.get("methods") else [given.get("method")]
    for method in filter(None, methods):  # an unknown one is refused
        parse_method(method, METHODS | HF_METHODS if name == "bench" else METHODS)


@pytest.mark.parametrize("line", ["specdec csd thaw a.json", "specdec csd inspect a.json --bottom 3", "specdec cds"])
def test_a_command_that_does_not_exist_is_seen(line):
    with pytest.raises(Exception, match="thaw|bottom|cds"):
        parsed(line)


def test_csd_s_page_shows_every_command_of_the_group():
    shown = {shlex.split(line)[2] for _, line in COMMANDS if line.startswith("specdec csd ")}
    assert shown == {"calibrate", "inspect", "merge", "freeze"}


def test_csd_s_page_names_the_knobs_and_the_memory_s_limits():
    page = (DOCS / "csd.md").read_text()
    rows = dict(re.findall(r"^\| `(csd[\w-]*)` \| .* \| (.*) \|$", page, re.MULTILINE))
    assert set(rows) == {name for name in METHODS if name.startswith("csd")}
    for name, said in rows.items():
        knobs = {**METHODS[name][1]}
        if said.startswith("the same"):  # as csd
            said = f"{rows['csd']} {said}"
        for knob in knobs.keys() - {"gamma", "online"}:
            number = re.search(rf"`{knob}`(?: ([\d.]+))?", said)
            assert number and (number[1] is None or float(number[1]) == knobs[knob]), (name, knob)
    assert f"{CAP:,} pairs" in page and f"last {CONTEXT_TOKENS} tokens" in page and f"every {CHUNK} texts" in page
