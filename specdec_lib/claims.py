"""The claims ledger: figures that papers report, as data, by id, with a grade for how well each is confirmed.

Reads data/claims.toml; each entry names its source.
Left out: checking our own measurements against them.
"""

import tomllib
from dataclasses import dataclass
from functools import cache

from specdec_lib.zoo import data_folder

GRADES = {
    "A": "two independent sources, or recomputed",
    "B": "one secondary source",
    "S": "a summary of the paper only",
}


@dataclass(frozen=True)
class Claim:
    """One figure. how: exact, formula, micro or quoted (see data/README.md)."""

    id: str
    method: str
    source: str
    what: str
    value: float
    unit: str
    grade: str
    how: str
    setting: str = ""
    note: str = ""


@cache
def claims() -> dict[str, Claim]:
    """All claims by id. ValueError for an entry that is incomplete, unknown in grade, or named twice."""
    found: dict[str, Claim] = {}
    with (data_folder() / "claims.toml").open("rb") as file:
        for entry in tomllib.load(file)["claim"]:
            try:
                claim = Claim(**entry)
            except TypeError as error:
                raise ValueError(f"claim {entry.get('id', '?')!r}: {error}") from error
            if claim.grade not in GRADES or claim.id in found:
                raise ValueError(f"claim {claim.id!r} is named twice or has an unknown grade {claim.grade!r}")
            found[claim.id] = claim
    return found


def claim(id: str) -> Claim:
    """One claim. KeyError names the unknown id."""
    if id not in claims():
        raise KeyError(f"no claim {id!r} in data/claims.toml")
    return claims()[id]
