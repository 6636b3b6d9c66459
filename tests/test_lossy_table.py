"""The table of lossy rules says what the registry and the rules say: names, knobs, lossless values, what they need.
Follows docs/lossy.md and specdec_lib/methods.py.
Left out: the words of a rule, which no test can read.
"""

import re
from pathlib import Path

import pytest
import torch
from test_methods import tiny_pair

from specdec_lib.autojudge import head as autojudge_head
from specdec_lib.autojudge.head import AutoJudgeHead
from specdec_lib.csd import file as csd_file
from specdec_lib.csd.memory import CorrectionMemory
from specdec_lib.judge import head as judge_head
from specdec_lib.judge.head import JudgeHead
from specdec_lib.methods import METHODS, build_method

PAGE = Path(__file__).parent.parent / "docs" / "lossy.md"
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in PAGE.read_text().splitlines()
    if line.startswith("| `")
]
NAMES = [row[0].strip("`") for row in ROWS]


@pytest.fixture(autouse=True)
def heads(monkeypatch):
    """Any heads, and an empty memory: a rule's knobs and needs do not depend on them."""
    monkeypatch.setattr(judge_head, "head_of", lambda pair: JudgeHead(torch.zeros(32), 0.0, 2, "none"))
    monkeypatch.setattr(autojudge_head, "head_of", lambda pair: AutoJudgeHead(torch.zeros(64), 0.0, "none", "none"))
    monkeypatch.setattr(csd_file, "memory_of", lambda pair, or_empty: CorrectionMemory())


def test_every_lossy_method_has_one_row():
    assert sorted(NAMES) == sorted(name for name, (what, *_) in METHODS.items() if ": lossy" in what)


@pytest.mark.parametrize("name, knobs", [(row[0].strip("`"), row[2]) for row in ROWS], ids=NAMES)
def test_the_lossless_value_of_a_row_is_that_of_the_rule(name, knobs):
    given = re.match(r"`([\w=.,]+)`|none", knobs)[1]
    if given:
        assert build_method(f"{name}:{given}", tiny_pair()).verifier.lossless is True
    assert build_method(name, tiny_pair()).verifier.lossless is False


@pytest.mark.parametrize("name, needs", [(row[0].strip("`"), row[3]) for row in ROWS], ids=NAMES)
def test_a_row_names_what_the_rule_needs(name, needs):
    rule = build_method(name, tiny_pair()).verifier
    said = {
        "hidden": "hidden state" in needs,
        "draft_rows": "draft rows" in needs,
        "draft_hidden": "both hidden" in needs,
    }
    assert {need for need, is_said in said.items() if is_said} == rule.needs
    assert ("pass" in needs) is hasattr(rule, "with_scouts")
