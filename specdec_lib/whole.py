"""One check that every count goes through: a whole number, and not too small.

Our own.
Left out: numbers with a fraction.
"""


def check_whole(what: str, value: object, least: int) -> int:
    """The value as it is; ValueError, naming it, unless it is a whole number from `least` on (True is none)."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{what} must be a whole number, {least} or more; got {value!r}")
    return value
