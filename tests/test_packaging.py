"""pyproject.toml, environment.yml and requirements.txt agree; the lock is whole; a wheel holds the library.
Follows the three files; tools/lock.py for what a lock must hold.
Leaves out solving environment.yml with conda, and installing the lock: a bare clone does that.
"""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import lock
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_NAMES = {"pytorch": "torch"}  # conda-forge's name: PyPI's


def ranges(requirements) -> dict[str, SpecifierSet]:
    return {canonicalize_name(r.name): r.specifier for r in map(Requirement, requirements)}


def pyproject_ranges() -> dict[str, SpecifierSet]:
    extras = PROJECT["optional-dependencies"].values()
    return ranges([*PROJECT["dependencies"], *(text for extra in extras for text in extra)])


def environment_ranges() -> tuple[dict[str, SpecifierSet], list[str]]:
    """({PyPI name: range}, what else the pip block installs)."""
    listed = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (pip_block,) = (entry["pip"] for entry in listed if isinstance(entry, dict))
    named = [entry for entry in listed if isinstance(entry, str) and entry != "pip"]
    named += [entry for entry in pip_block if not entry.startswith("-")]
    found = {CONDA_NAMES.get(name, name): spec for name, spec in ranges(named).items()}
    return found, [entry for entry in pip_block if entry.startswith("-")]


def pins() -> dict[str, str]:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_conda_and_pyproject_name_the_same_packages_and_ranges():
    found, others = environment_ranges()
    assert found.pop("python") == SpecifierSet(PROJECT["requires-python"])
    assert found == pyproject_ranges()
    assert others == ["-e ."]


def test_conda_uses_conda_forge_alone():
    assert yaml.safe_load((ROOT / "environment.yml").read_text())["channels"] == ["conda-forge"]


def test_every_range_has_a_pin_inside_it():
    locked = pins()
    for name, allowed in pyproject_ranges().items():
        assert name in locked, f"{name} is not locked: run tools/lock.py"
        assert locked[name] in allowed, f"{name}=={locked[name]} lies outside {allowed}"


def test_ranges_are_ranges_and_pins_are_pins():
    for name, allowed in pyproject_ranges().items():
        assert any(part.operator == ">=" for part in allowed), f"{name} has no lower bound"
        assert not any(part.operator in ("==", "===") for part in allowed), f"{name} is pinned in pyproject.toml"
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    named = [line for line in lines if not line.startswith("#")]
    bad = [line for line in named if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line)]
    assert not bad, f"a pin is name==version: no local tag, hash, marker or path: {bad}"
    names = [line.split("==")[0] for line in named]
    assert names == sorted(names) and lines[0].startswith("#")


def test_the_lock_is_what_the_installed_set_gives():
    try:
        installed = lock.closure(lock.wanted_by_project())
    except LookupError as problem:
        pytest.fail(f"this environment is not the locked one: {problem}")
    locked = pins()
    # A marker may add or drop a package on another Python; what both name must be one release.
    assert {n: v for n, v in installed.items() if locked.get(n, v) != v} == {}
    if sys.version_info[:2] == (3, 11):
        assert set(installed) == set(locked), "run tools/lock.py"


def test_the_command_and_the_python_range_are_declared():
    assert PROJECT["scripts"] == {"specdec": "specdec_lib.cli:main"}
    assert PROJECT["requires-python"] == ">=3.11"
    assert PROJECT["license"] == "Apache-2.0"
    assert (ROOT / "LICENSE").read_text().lstrip().startswith("Apache License")


def test_a_wheel_holds_the_library_and_nothing_else(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in tracked.split("\0"):
        if name.startswith("specdec_lib/") or name in ("pyproject.toml", "LICENSE", "README.md"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path), str(source)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    modules = {name for name in tracked.split("\0") if re.fullmatch(r"specdec_lib/.*\.py", name)}
    assert modules <= set(names), f"not in the wheel: {sorted(modules - set(names))}"
    assert {name.split("/")[0] for name in names} == {"specdec_lib", "specdec_lib-0.1.0.dist-info"}
