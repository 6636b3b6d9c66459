"""The claims ledger: every entry is complete, and what follows from a formula is recomputed.
Follows data/claims.toml.
Left out: measurements beside the claims.
"""

import re

import pytest

from specdec_lib import claims as ledger
from specdec_lib.claims import GRADES, claim, claims
from specdec_lib.theory import expected_emitted, operations_factor, speedup

HOW = {"exact", "formula", "micro", "quoted"}
EXACT = [c for c in claims().values() if c.how == "exact" and c.method == "lossless"]


@pytest.mark.parametrize("entry", EXACT, ids=lambda c: c.id)
def test_exact_claims_follow_from_the_formula(entry):
    alpha, gamma = map(float, re.fullmatch(r"alpha ([\d.]+), gamma (\d+)", entry.setting).groups())
    assert entry.what == "speed-up factor, c = 0"
    assert expected_emitted(alpha, int(gamma)) == pytest.approx(entry.value, abs=0.0051)
    operations = float(re.fullmatch(r"operations factor ([\d.]+)", entry.note)[1])
    assert operations_factor(alpha, int(gamma), 0) == pytest.approx(operations, abs=0.0051)


def test_the_exact_claims_are_those_of_the_first_table():
    assert len(EXACT) == 6


FORMULA = [c for c in claims().values() if c.how == "formula"]


@pytest.mark.parametrize("entry", FORMULA, ids=lambda c: c.id)
def test_the_formula_gives_what_the_paper_prints(entry):
    """alpha, c and the result are printed rounded: what the paper computed with lies up to half a digit off."""
    gamma = int(re.search(r"gamma (\d+)$", entry.setting)[1])
    given = re.fullmatch(r"alpha ([\d.]+), c ([\d.]+); the formula gives ([\d.]+)", entry.note)
    alpha, c, printed = map(float, given.groups())
    low, high = (speedup(alpha + half, gamma, c - half) for half in (-0.005, 0.005))
    assert low - 0.05 <= printed <= high + 0.05


def test_a_bigger_draft_raises_alpha_and_lowers_the_speed_up():
    """The twelve measured rows: four blocks of small, base and large, in this order."""
    assert len(FORMULA) == 12
    for block in (FORMULA[i : i + 3] for i in range(0, 12, 3)):
        alphas = [float(re.match(r"alpha ([\d.]+)", entry.note)[1]) for entry in block]
        speeds = [entry.value for entry in block]
        assert alphas == sorted(set(alphas))
        assert speeds == sorted(set(speeds), reverse=True)


@pytest.mark.parametrize("entry", claims().values(), ids=lambda c: c.id)
def test_every_claim_names_its_source_unit_grade_and_kind(entry):
    assert entry.grade in GRADES and entry.how in HOW
    assert entry.source and entry.what and entry.unit and isinstance(entry.value, int | float)
    assert re.fullmatch(r"[a-z0-9.]+(-[a-z0-9.]+)*", entry.id)


def test_a_claim_is_found_by_its_id():
    assert claim("leviathan-t1-a8-g5").value == 3.69
    with pytest.raises(KeyError, match="no claim 'nobody'"):
        claim("nobody")


ENTRY = 'id = "x"\nmethod = "lossless"\nsource = "s"\nwhat = "w"\nvalue = 1\nunit = "x"\nhow = "exact"\n'


@pytest.mark.parametrize(
    "text, message",
    [
        (f'[[claim]]\n{ENTRY}grade = "Z"\n', "grade 'Z'"),
        (f'[[claim]]\n{ENTRY}grade = "A"\n[[claim]]\n{ENTRY}grade = "A"\n', "named twice"),
        (f"[[claim]]\n{ENTRY}", "claim 'x'"),
        (f'[[claim]]\n{ENTRY}grade = "A"\nmood = "good"\n', "claim 'x'"),
    ],
    ids=["grade", "twice", "incomplete", "unknown field"],
)
def test_a_wrong_ledger_is_refused(tmp_path, monkeypatch, text, message):
    (tmp_path / "claims.toml").write_text(text)
    monkeypatch.setattr(ledger, "data_folder", lambda: tmp_path)
    with pytest.raises(ValueError, match=message):
        ledger.claims.__wrapped__()
