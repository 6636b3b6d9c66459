"""On Colab: install this course, and of what it needs only what Colab lacks. The first cell of a lesson calls it.

Follows pyproject.toml for what is needed. Imports the standard library alone, since nothing else may be there yet.
Left out: torch, numpy and pandas, which a running notebook cannot change safely; they stay as Colab has them.
"""

import importlib
import importlib.metadata
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

NEVER = ("torch", "numpy", "pandas")  # loaded by Colab's own kernel: another version would need a restart


def install(course: Path) -> None:
    """Install the course from its folder, then what is missing. RuntimeError where that cannot work as it stands."""
    pip("--no-deps", "--editable", str(course))
    needed = requirements(course)
    too_old = [r for r in needed if r.name in NEVER and not installed(r)]
    if too_old:
        wants = ", ".join(str(r) for r in too_old)
        raise RuntimeError(f"this runtime does not have {wants}; choose a newer runtime version in Colab's menu")
    missing = [r for r in needed if not installed(r)]
    if missing:
        with tempfile.TemporaryDirectory() as folder:
            held = Path(folder) / "held.txt"  # whatever is installed may not move these
            held.write_text("".join(f"{name}=={importlib.metadata.version(name)}\n" for name in NEVER))
            pip("--constraint", str(held), *(str(r) for r in missing))
    importlib.invalidate_caches()
    stale = loaded_in_another_version(r.name for r in needed)
    if "transformers" in sys.modules and any(r.name == "bitsandbytes" for r in missing):
        stale.append("transformers without bitsandbytes")  # it looks for it once, when it is loaded
    if stale:
        raise RuntimeError(
            f"this session has already loaded {', '.join(stale)}, and what is now installed differs: "
            "choose Runtime > Restart session, then run this cell again"
        )


def requirements(course: Path) -> list:
    """What lessons need, with the extra for quantised models."""
    from packaging.requirements import Requirement

    project = tomllib.loads((course / "pyproject.toml").read_text())["project"]
    return [Requirement(text) for text in [*project["dependencies"], *project["optional-dependencies"]["quant"]]]


def installed(requirement) -> bool:
    """Is it installed, in a version inside its range?"""
    try:
        return requirement.specifier.contains(importlib.metadata.version(requirement.name), prereleases=True)
    except importlib.metadata.PackageNotFoundError:
        return False


def loaded_in_another_version(names) -> list[str]:
    """Packages that this kernel has loaded in another version than the installed one, as "name version"."""
    stale = []
    for name in names:
        loaded = getattr(sys.modules.get(name), "__version__", None)
        if loaded is not None and loaded != importlib.metadata.version(name):
            stale.append(f"{name} {loaded}")
    return stale


def pip(*arguments: str) -> None:
    """pip install; RuntimeError with pip's last words if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", *arguments], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"pip install {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
