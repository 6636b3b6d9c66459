"""The machine under the models: versions, devices, memory, bandwidth, and what one pass over k tokens costs.

Our own. The bandwidth floor of a token is bytes read a pass over bytes a second (lesson 01).
Left out: what is printed of it (cli.py) and what is written beside results (provenance.py).
"""

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

import torch

from specdec_lib.model import Model

PASS_SIZES = (1, 2, 4, 8, 16, 32, 64)
NEARLY_FREE = 1.25  # a pass may cost so many times T(1) and still count as nearly free
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy")
# name: what it is for. Nothing in the course's core needs them.
OPTIONAL_PACKAGES = {
    "bitsandbytes": "models in 4 or 8 bits",
    "accelerate": "models in 4 or 8 bits, or over several devices",
    "gguf": "converting SmolLM2 (make smollm2)",
    "jupyterlab": "opening the lessons",
    "ipywidgets": "the controls in the lessons",
    "nbclient": "running all lessons (make course)",
    "nbval": "comparing lessons with their outputs (make test)",
}


def package_version(name: str) -> str | None:
    """The installed version, or None. Nothing is imported: a package that is broken still has a version."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that results depend on; None for one that is not installed."""
    names = (*PACKAGES, "bitsandbytes", "accelerate")
    return {"python": platform.python_version(), **{name: package_version(name) for name in names}}


def missing_packages() -> dict[str, str]:
    """Optional packages that are not installed, and what each is for."""
    return {name: use for name, use in OPTIONAL_PACKAGES.items() if package_version(name) is None}


def import_error(name: str) -> str | None:
    """What goes wrong when an installed package is imported, or None. Tried in a process of its own: a library built
    for another machine may end the process that loads it.
    """
    try:
        done = subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return "the import does not end"
    said = done.stderr.strip().splitlines() or [f"the import ended with status {done.returncode}"]
    return said[-1] if done.returncode else None


def device_name(device: torch.device | str = "cpu") -> str:
    """A device in words: "cpu: PROCESSOR" or "cuda:0: GPU"."""
    device = torch.device(device)
    if device.type == "cuda":
        return f"{device}: {torch.cuda.get_device_name(device)}"
    if device.type != "cpu":
        return str(device)
    return f"cpu: {_processor() or platform.machine() or 'unknown'}"


def _processor() -> str:
    """The processor's name where the system tells it, else an empty text."""
    info = Path("/proc/cpuinfo")
    if not info.is_file():
        return platform.processor()
    names = [line.partition(":")[2] for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0].strip() if names else ""


def devices() -> list[dict]:
    """The CPU, then every GPU: name and memory_bytes (None where it cannot be told)."""
    found = [{"name": device_name("cpu"), "memory_bytes": memory_bytes()}]
    for index in range(torch.cuda.device_count()):
        total = torch.cuda.get_device_properties(index).total_memory
        found.append({"name": device_name(f"cuda:{index}"), "memory_bytes": total})
    return found


def memory_bytes() -> int | None:
    """Physical memory of this machine; None where the system does not say (Windows)."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def bandwidth_bytes_per_s(device: torch.device | str = "cpu", size_bytes: int = 2**27, repeats: int = 5) -> float:
    """Memory bandwidth: the fastest of several copies of a block too large for the caches.

    A copy reads and writes, so it moves 2 size_bytes. The fastest counts: anything slower was disturbed.
    """
    source = torch.ones(size_bytes // 4, dtype=torch.float32, device=device)
    copy = torch.empty_like(source)
    seconds = []
    for _ in range(repeats + 1):  # the first one, which also claims the memory, is not among the fastest
        began = now(source.device)
        copy.copy_(source)
        seconds.append(now(source.device) - began)
    return 2 * size_bytes / min(seconds)


def pass_times(model: Model, ks: Sequence[int] = PASS_SIZES, context: int = 64, repeats: int = 7) -> dict[int, float]:
    """T(k): median seconds of one pass over k new tokens after `context` committed ones, for every k.

    Each repeat goes through all k, so that a disturbance does not fall on one of them. The model is started anew
    before and after. Raises ValueError if the longest pass does not fit the model's context.
    """
    if repeats < 1 or context < 0 or not ks or min(ks) < 1:
        raise ValueError(f"repeats and every k must be at least 1, context at least 0; got {repeats}, {ks}, {context}")
    if context + max(ks) > model.context:
        raise ValueError(f"{context} + {max(ks)} tokens do not fit this model's context of {model.context}")
    ids = [i % model.vocab_size for i in range(context + max(ks))]
    seconds: dict[int, list[float]] = {k: [] for k in ks}
    model.start()
    model.feed(ids[:context])
    for repeat in range(repeats + 1):
        for k in seconds:
            tokens = torch.tensor(ids[context : context + k], device=model.device)
            began = now(model.device)
            model.score(tokens, range(-1, k - 1))
            taken = now(model.device) - began
            model.truncate(context)
            if repeat > 0:  # the first round warms up
                seconds[k].append(taken)
    model.start()
    return {k: statistics.median(taken) for k, taken in seconds.items()}


def nearly_free(times: Mapping[int, float]) -> int:
    """The largest k measured up to which every pass costs at most 1.25 T(1): so many nodes a tree may well have."""
    free = 1
    for k in sorted(times):
        if times[k] > NEARLY_FREE * times[1]:
            break
        free = k
    return free


def now(device: torch.device) -> float:
    """Seconds on a clock, once the device has finished what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
