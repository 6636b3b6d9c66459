"""The bugs that other people met, by case number: each that touches what exists here is named by the test that has it.
Follows public bug reports, each cut down to a small input.
Left out: cases of what does not exist yet (batches beyond their refusal, grammars, retrieval stores, benchmarks).
"""

import re
from pathlib import Path

CASES = """
A1 A2 A3 A5 A6 A7 A9 A12 A14 A15 A16 A21 A23 A26 A27 A29 A30
B1 B2 B4 B5 B6 B8 B9 B11 B12 B14 B15 B17
C1 C2 C3 C5 C6 C11 C12 C14 C16 C17 C18
D1 D2 D4 D6 D8
E1 E2 E3
F1 F3 F4 F7 F9 F10 F12 F14 F15 F16
G1 G11 G12 G13 G16 G17 G18 G19
H1 H2 H3 H17
I20
"""


def test_every_case_is_named_by_a_test():
    files = [path for path in Path(__file__).parent.glob("test_*.py") if path.name != Path(__file__).name]
    text = "\n".join(path.read_text() for path in files)
    assert [case for case in CASES.split() if not re.search(rf"\b{case}\b", text)] == []
