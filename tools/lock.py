"""Write requirements.txt: the exact releases, installed here, that pyproject.toml's ranges lead to.
Follows the packaging metadata of what is installed: the dependencies and every extra, and what those need.
Leaves out resolving anew (install first, then lock), hashes, and packages of one platform (nvidia, triton).
"""

import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
ONE_PLATFORM = re.compile(r"(nvidia|cuda|triton|pytorch-triton|intel|tbb)(-|$)")
HEADER = """\
# The exact set that the course was tested with: pyproject.toml's dependencies and extras, and all they need.
# Made by `.venv/bin/python tools/lock.py` with Python {python}; one platform's packages are left to pip.
"""


def wanted_by_project(root: Path = ROOT) -> list[Requirement]:
    """What pyproject.toml names: dependencies, every extra, and what builds the package."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    named = list(project["project"]["dependencies"]) + list(project["build-system"]["requires"])
    for extra in project["project"]["optional-dependencies"].values():
        named += extra
    return [Requirement(text) for text in named]


def closure(wanted: list[Requirement]) -> dict[str, str]:
    """{canonical name: installed public version} of `wanted` and all they need on this machine.

    Raises LookupError when a needed package is not installed or lies outside the range asked for.
    """
    found: dict[str, str] = {}
    done: set[tuple[str, tuple[str, ...]]] = set()
    waiting = list(wanted)
    while waiting:
        requirement = waiting.pop()
        name, extras = canonicalize_name(requirement.name), tuple(sorted(requirement.extras))
        if ONE_PLATFORM.match(name) or (name, extras) in done:
            continue
        done.add((name, extras))
        try:
            installed = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            raise LookupError(f"{requirement} is needed and not installed") from None
        if not requirement.specifier.contains(installed.version, prereleases=True):
            raise LookupError(f"{requirement} is needed and {installed.version} is installed")
        found[name] = installed.version.split("+")[0]
        for text in installed.requires or []:
            needed = Requirement(text)
            if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in ("", *extras)):
                waiting.append(needed)
    return found


def text_of(pins: dict[str, str]) -> str:
    """The file's text: header, then one `name==version` a line, sorted."""
    python = ".".join(map(str, sys.version_info[:2]))
    return HEADER.format(python=python) + "".join(f"{name}=={pins[name]}\n" for name in sorted(pins))


def main() -> int:
    try:
        pins = closure(wanted_by_project())
    except LookupError as problem:
        print(f"error: {problem}\ndo:    .venv/bin/python -m pip install -e '.[dev,quant,smollm2]', then lock again")
        return 1
    (ROOT / "requirements.txt").write_text(text_of(pins))
    print(f"requirements.txt: {len(pins)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
