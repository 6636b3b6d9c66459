"""tools/setup.sh: every error it can name, what it re-uses, and what it does after an interruption.
Follows the script line by line, with a stand-in Python and a stand-in df; nothing is downloaded.
Leaves out a real installation: continuous integration starts from a bare clone.
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = "bash sh env dirname cat cksum df awk du grep mkdir rm touch tail tee printf cp sleep"

# What the script asks of a Python: its version, its venv module, to make a venv, and pip.
FAKE_PYTHON = """\
#!/usr/bin/env bash
case "$*" in
    *version_info*) echo "{version}" ;;
    *"import venv"*) exit {no_venv} ;;
    "-m venv"*) echo "venv" >>"$CALLS"; mkdir -p .venv/bin; cp "$0" .venv/bin/python ;;
    "-m pip --version") exit 0 ;;
    "-m pip install"*)
        echo "pip $*" >>"$CALLS"
        if [ -n "${{PIP_SLEEPS:-}}" ]; then sleep "$PIP_SLEEPS"; fi
        if [ -n "${{PIP_SAYS:-}}" ]; then echo "$PIP_SAYS"; exit 1; fi ;;
esac
"""
FAKE_DF = """\
#!/usr/bin/env bash
echo "Filesystem 1024-blocks Used Available Capacity Mounted on"
echo "/dev/none 99999999 1 {free_kib} 1% /"
"""


class Checkout:
    """A copy of what the script reads, and a PATH that holds only what a test puts there."""

    def __init__(self, folder: Path):
        self.root, self.bin = folder / "checkout", folder / "bin"
        self.bin.mkdir()
        (self.root / "tools").mkdir(parents=True)
        for name in ("tools/setup.sh", "requirements.txt", "pyproject.toml"):
            shutil.copy(ROOT / name, self.root / name)
        for tool in TOOLS.split():
            if found := shutil.which(tool):
                (self.bin / tool).symlink_to(found)
        self.calls = folder / "calls"
        self.df(free_kib=50_000_000)

    def script(self, name: str, text: str) -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def df(self, free_kib: int) -> None:
        self.script("df", FAKE_DF.format(free_kib=free_kib))

    def python(self, name: str, version: str, no_venv: int = 0) -> None:
        self.script(name, FAKE_PYTHON.format(version=version, no_venv=no_venv))

    def environment(self, **variables: str) -> dict[str, str]:
        return {"PATH": str(self.bin), "HOME": os.environ["HOME"], "CALLS": str(self.calls), **variables}

    def setup(self, **variables: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [shutil.which("bash"), self.root / "tools" / "setup.sh"],
            env=self.environment(**variables),
            capture_output=True,
            text=True,
            timeout=60,
        )

    def called(self) -> list[str]:
        return self.calls.read_text().splitlines() if self.calls.exists() else []


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


def refused(result: subprocess.CompletedProcess, *words: str) -> None:
    """The script stopped, named the problem with `words`, and said what to do."""
    assert result.returncode == 1, result.stdout + result.stderr
    assert result.stderr.startswith("error: ") and "\ndo:    " in result.stderr
    for word in words:
        assert word in result.stderr, result.stderr


def test_no_python_at_all(checkout):
    refused(checkout.setup(), "no usable Python", "none of python3.11 python3.12 python3.13 python3")


def test_a_python_that_is_too_old_is_named_with_its_version(checkout):
    checkout.python("python3", "3.10")
    refused(checkout.setup(), "no usable Python", "python3: 3.10, too old", "PYTHON=")


def test_a_python_newer_than_tested_is_named(checkout):
    checkout.python("python3", "3.14")
    refused(checkout.setup(), "python3: 3.14, newer than what was tested")


def test_a_python_that_is_there_but_does_not_run_is_passed_over(checkout):
    checkout.script("python3.11", "#!/usr/bin/env bash\nexit 127\n")
    refused(checkout.setup(), "python3.11: is there but does not run")
    checkout.python("python3.12", "3.12")
    result = checkout.setup()
    assert result.returncode == 0, result.stderr
    assert "with python3.12 (3.12)" in result.stdout


def test_a_missing_venv_module_is_named_with_its_package(checkout):
    checkout.python("python3.11", "3.11", no_venv=1)
    refused(checkout.setup(), "3.11, but its venv module is missing", "apt install python3.11-venv")


def test_PYTHON_is_used_and_no_other(checkout):
    checkout.python("python3.11", "3.11")
    refused(checkout.setup(PYTHON="python3.99"), "python3.99: not found")
    checkout.python("mine", "3.13")
    assert "with mine (3.13)" in checkout.setup(PYTHON="mine").stdout


def test_PYTHON_other_than_that_of_a_finished_venv_is_refused(checkout):
    checkout.python("python3.11", "3.11")
    checkout.python("python3.12", "3.12")
    assert checkout.setup().returncode == 0
    refused(checkout.setup(PYTHON="python3.12"), ".venv was made with Python 3.11", "distclean")
    assert checkout.setup(PYTHON="python3.11").returncode == 0


def test_too_little_disk_space_is_seen_before_anything_is_made(checkout):
    checkout.python("python3.11", "3.11")
    checkout.df(free_kib=1_000_000)
    refused(checkout.setup(), "not enough disk space: 976 MiB free", "3072 MiB needed")
    assert checkout.called() == []


@pytest.mark.parametrize(
    "said, problem",
    [
        ("NewConnectionError: Temporary failure in name resolution", "pip reached no package registry"),
        ("ERROR: No matching distribution found for torch==2.13.0", "no release for this Python and machine"),
        ("OSError: [Errno 28] No space left on device", "the disk filled up"),
        ("something nobody has seen", "pip failed: something nobody has seen"),
    ],
)
def test_what_pip_fails_with_is_explained_and_its_log_kept(checkout, said, problem):
    checkout.python("python3.11", "3.11")
    refused(checkout.setup(PIP_SAYS=said), problem, "build/setup/pip.log")
    assert said in (checkout.root / "build/setup/pip.log").read_text()
    result = checkout.setup()  # the same command again, with the cause gone
    assert result.returncode == 0 and ".venv is ready" in result.stdout
    assert checkout.called().count("venv") == 1, "what was there is used"


def test_a_finished_venv_is_used_as_it_is_until_what_it_is_made_from_changes(checkout):
    checkout.python("python3.11", "3.11")
    assert checkout.setup().returncode == 0
    calls = checkout.called()
    assert [call.split()[0] for call in calls] == ["venv", "pip", "pip"]
    assert "-r requirements.txt" in calls[1] and "--no-deps" in calls[2] and "-e ." in calls[2]
    again = checkout.setup()
    assert again.returncode == 0 and again.stdout == "" and checkout.called() == calls
    with (checkout.root / "requirements.txt").open("a") as file:
        file.write("another==1.0\n")
    assert checkout.setup().returncode == 0
    assert [call.split()[0] for call in checkout.called()] == ["venv", "pip", "pip", "pip", "pip"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_installation_is_made_anew_by_the_same_command(checkout, how):
    checkout.python("python3.11", "3.11")
    process = subprocess.Popen(
        [shutil.which("bash"), checkout.root / "tools" / "setup.sh"],
        env=checkout.environment(PIP_SLEEPS="30"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 30
    while len(checkout.called()) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, how)
    assert process.wait(timeout=30) == (130 if how == signal.SIGINT else -signal.SIGKILL)
    result = checkout.setup()
    assert result.returncode == 0, result.stderr
    assert "cut short: making .venv anew" in result.stdout
    assert checkout.called().count("venv") == 2


def test_a_venv_whose_python_is_gone_is_made_anew(checkout):
    checkout.python("python3.11", "3.11")
    assert checkout.setup().returncode == 0
    (checkout.root / ".venv/bin/python").unlink()
    result = checkout.setup()
    assert result.returncode == 0 and "making .venv anew" in result.stdout
