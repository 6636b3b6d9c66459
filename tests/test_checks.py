"""The helper that runs an exercise's check on a student's function.
Follows specdec_lib/checks.py.
Leaves out the exercises' own checks: tests/test_exercises.py runs those on the solutions.
"""

import pytest

from specdec_lib.checks import check


def check_double(double):
    assert double(2) == 4
    assert double(-1) == -2, "negative numbers count too"


def test_a_right_function_passes(capsys):
    assert check(check_double, lambda x: 2 * x) is True
    assert capsys.readouterr().out == "passed: <lambda>\n"


def test_an_unwritten_function_is_not_yet_and_does_not_raise(capsys):
    def double(x):
        raise NotImplementedError("yours to write")

    assert check(check_double, double) is False
    assert capsys.readouterr().out == "not yet: double: still to be written\n"


def test_a_failed_assertion_gives_its_message_or_its_line(capsys):
    check(check_double, lambda x: 4)
    check(check_double, lambda x: 5)
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("not yet: <lambda>: ")]
    assert said[0].endswith(": negative numbers count too")
    assert ": assert " in said[1]  # a bare assertion: the line itself, or what pytest makes of it


def test_any_other_error_gives_its_type(capsys):
    check(check_double, lambda x: 1 / 0)
    assert "ZeroDivisionError: division by zero" in capsys.readouterr().out


def test_an_interrupt_passes_through():
    def interrupted(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check(check_double, interrupted)
