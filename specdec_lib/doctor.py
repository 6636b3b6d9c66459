"""What `specdec doctor` finds: is everything here that the course needs, and what does a pass of the target cost?

Our own; the measuring is in machine.py.
Left out: mending what is found (each finding says how).
"""

import contextlib
import platform
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from specdec_lib.machine import (
    NEARLY_FREE,
    OPTIONAL_PACKAGES,
    PASS_SIZES,
    bandwidth_bytes_per_s,
    devices,
    import_error,
    missing_packages,
    nearly_free,
    package_version,
    pass_times,
    versions,
)
from specdec_lib.theory import best_gamma_from_times
from specdec_lib.zoo import (
    Pair,
    data_folder,
    load_pair,
    pair_sources,
    parameter_bytes,
    preset,
    recorded_checksum,
)

OK, NOTE, PROBLEM = "ok", "note", "problem"  # a note: something is missing that not everybody needs
ROOMY_BYTES = 2 * 2**30
ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)  # for which the best draft length is given
MAY_BREAK = ("bitsandbytes",)  # packages whose installed build may not suit the machine


@dataclass(frozen=True)
class Finding:
    """One thing looked at: its state (ok, note or problem) and what there is to say, with the remedy."""

    what: str
    state: str
    says: str


@dataclass
class Diagnosis:
    """findings, and what was measured: empty where no model could be loaded."""

    findings: list[Finding] = field(default_factory=list)
    measured: dict = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        return all(finding.state != PROBLEM for finding in self.findings)

    @property
    def rows(self) -> list[dict]:
        return [asdict(finding) for finding in self.findings]

    @property
    def verdict(self) -> str:
        if not self.ready:
            wrong = ", ".join(finding.what for finding in self.findings if finding.state == PROBLEM)
            return f"NOT READY: see {wrong}"
        ratio = self.measured["pass_s"]["8"] / self.measured["pass_s"]["1"]
        return f"READY: the course runs here; a target pass over 8 tokens takes {ratio:.1f} times one over 1 token"

    def report(self) -> str:
        """Everything as text, the verdict last."""
        width = max(len(finding.what) for finding in self.findings)
        lines = [f"{finding.state:7}  {finding.what:{width}}  {finding.says}" for finding in self.findings]
        if self.measured:
            m, ms = self.measured, [f"{seconds * 1000:8.2f}" for seconds in self.measured["pass_s"].values()]
            lines += [
                "",
                f"T(k): one pass of the target over k new tokens, after {m['context']} (median of {m['repeats']})",
                "  k   " + "".join(f"{k:>8}" for k in m["pass_s"]),
                "  ms  " + "".join(ms),
                f"Its weights are {m['weight_bytes'] / 1e6:.1f} MB; memory is copied at "
                f"{m['bandwidth_bytes_per_s'] / 1e9:.1f} GB/s. Reading them once takes {m['floor_s'] * 1000:.2f} ms: "
                "the floor of a token, unless they stay in the processor's cache.",
                f"Nearly free (at most {NEARLY_FREE} T(1)): up to {m['nearly_free_k']} tokens a pass; a good capacity "
                "for a tree.",
                f"A draft pass takes {m['draft_s'] * 1000:.2f} ms. Best draft length: "
                + ", ".join(f"{gamma} at alpha {alpha}" for alpha, gamma in m["best_gamma"].items())
                + " (0: no draft pays).",
            ]
        return "\n".join([*lines, "", self.verdict])


def examine(pair: str = "pocket", repeats: int = 15) -> Diagnosis:
    """Look at everything. ValueError for an unknown pair; anything else that is wrong becomes a finding."""
    with contextlib.suppress(FileNotFoundError):  # no data folder: a finding, below
        preset(pair)
    found = Diagnosis([*_packages(), *_machine(), *_data()])
    models = _load(pair, found.findings)
    if models is not None:
        found.measured = measure(models, repeats)
    return found


def measure(pair: Pair, repeats: int, context: int = 64) -> dict:
    """T(k) of the target, D(1) of the draft, the bandwidth, the floor that it sets for a token, and what follows.

    best_gamma: for several alphas, the draft length with the highest predicted speed-up from T(k) and D(1); the loop's
    own time comes on top.
    """
    weights = parameter_bytes(pair.target.model)
    bandwidth = bandwidth_bytes_per_s(pair.target.device)
    times = pass_times(pair.target, PASS_SIZES, context, repeats)
    draft = pass_times(pair.draft, (1,), context, repeats)[1]
    longest = max(times) - 1
    return {
        "pass_s": {str(k): seconds for k, seconds in times.items()},
        "draft_s": draft,
        "nearly_free_k": nearly_free(times),
        "best_gamma": {str(alpha): best_gamma_from_times([alpha] * longest, times, draft) for alpha in ALPHAS},
        "repeats": repeats,
        "context": context,
        "weight_bytes": weights,
        "bandwidth_bytes_per_s": bandwidth,
        "floor_s": weights / bandwidth,
    }


def _packages() -> list[Finding]:
    known = versions()
    needed = {name: version for name, version in known.items() if name not in OPTIONAL_PACKAGES}
    absent = [name for name, version in needed.items() if version is None]
    findings = [
        Finding("versions", PROBLEM, f"not installed: {', '.join(absent)}; run make course, which sets up first")
        if absent
        else Finding("versions", OK, ", ".join(f"{name} {version}" for name, version in needed.items()))
    ]
    missing = missing_packages()
    for name, use in OPTIONAL_PACKAGES.items():
        if name in missing:
            findings.append(Finding(name, NOTE, f"not installed; needed for {use}: pip install {name}"))
            continue
        wrong = import_error(name) if name in MAY_BREAK else None
        version = package_version(name)
        if wrong is None:
            findings.append(Finding(name, OK, f"{version}, for {use}"))
        else:
            findings.append(Finding(name, NOTE, f"{version} cannot be imported, so no {use}: {wrong}"))
    return findings


def _machine() -> list[Finding]:
    findings = []
    for device in devices():
        size = device["memory_bytes"]
        memory = "unknown" if size is None else f"{size / 2**30:.1f} GiB"
        findings.append(Finding("device", OK, f"{device['name']}, memory {memory}"))
    if not torch.cuda.is_available():
        findings.append(Finding("GPU", NOTE, "none; the pocket pair needs none"))
    findings.append(Finding("threads", OK, f"{torch.get_num_threads()} for torch on {platform.system()}"))
    return findings


def _data() -> list[Finding]:
    try:
        folder = data_folder()
    except FileNotFoundError as error:
        return [Finding("data", PROBLEM, str(error))]
    free = shutil.disk_usage(folder).free
    room = f"{free / 2**30:.1f} GiB free"
    disk = (
        Finding("disk", OK, room) if free >= ROOMY_BYTES else Finding("disk", NOTE, f"{room}; installing needs 2 GiB")
    )
    return [Finding("data", OK, str(folder)), disk]


def _load(pair: str, findings: list[Finding]) -> Pair | None:
    """The pair, with its checks as findings; None where it cannot be loaded."""
    if any(finding.what == "data" and finding.state == PROBLEM for finding in findings):
        return None
    try:
        models = load_pair(pair)
    except (ValueError, OSError) as error:
        findings.append(Finding("weights", PROBLEM, " ".join(str(error).split())))
        return None
    for source, (role, checksum) in zip(pair_sources(pair), models.checksums.items(), strict=True):
        recorded = isinstance(source, Path) and recorded_checksum(source / "model.safetensors") is not None
        says = f"{pair}: sha256 {checksum[:12]}... " + ("as recorded" if recorded else "with none recorded to compare")
        findings.append(Finding(f"{role} weights", OK if recorded else NOTE, says))
    return models
