"""Checks that a student calls on their own function: `check(check_something, my_function)`.
Follows ARENA and srush's puzzles: a check takes the student's function and says how it went; it never raises.
Leaves out the checks themselves: each exercise brings its own, next to the statement.
"""

import traceback
from collections.abc import Callable
from typing import Any


def check(function: Callable[[Callable], Any], student_function: Callable) -> bool:
    """Call `function(student_function)`, which asserts what should hold, and print how it went.

    Prints "passed: NAME" or "not yet: NAME: reason" and returns which. The reason is the assertion's message
    or, if it has none, the line that asserts; for any other error its type and message. Never raises an
    Exception, so an unsolved notebook runs to its end; KeyboardInterrupt passes through.
    """
    name = getattr(student_function, "__name__", "your function")
    try:
        function(student_function)
    except NotImplementedError:
        reason = "still to be written"
    except AssertionError as error:
        reason = str(error) or traceback.extract_tb(error.__traceback__)[-1].line or "an assertion failed"
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    else:
        print(f"passed: {name}")
        return True
    print(f"not yet: {name}: {reason}")
    return False
