"""Load a pair of models by name, checked: weights whole, vocabularies compared token by token.

Our own. All models go through transformers' AutoModelForCausalLM, from safetensors only.
Left out: what happens with a pair (decode.py, methods.py).
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from specdec_lib.decode import Stops
from specdec_lib.model import CausalLM


def data_folder() -> Path:
    """The project's data/: SPECDEC_DATA, or the folder beside specdec_lib. FileNotFoundError if there is none."""
    folder = Path(os.environ.get("SPECDEC_DATA") or Path(__file__).resolve().parent.parent / "data")
    if not folder.is_dir():
        raise FileNotFoundError(
            f"the course's data folder {folder} is not there; clone the whole repository, or set SPECDEC_DATA to its "
            "data/ folder"
        )
    return folder


# name: (target folder, draft folder) under data/
PAIRS = {
    "pocket": ("pocket/target", "pocket/draft"),
    "pocket-uniform": ("pocket/uniform", "pocket/draft"),
}


@dataclass
class Pair:
    """A target and a draft that share a vocabulary, ready to decode with."""

    name: str
    target: CausalLM
    draft: CausalLM
    tokenizer: PreTrainedTokenizerBase
    stops: Stops
    checksums: dict[str, str]

    def prompt(self, text: str, chat: bool = True) -> list[int]:
        """Token ids of a user's text: through the chat template if there is one, else as it is."""
        if chat and self.tokenizer.chat_template:
            return self.chat([{"role": "user", "content": text}])
        return encode(self.tokenizer, text)

    def chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Token ids of a chat, ready for the answer. ValueError if it is empty or the tokenizer has no template."""
        if not self.tokenizer.chat_template:
            raise ValueError(f"the tokenizer of {self.name} has no chat template; give a plain prompt instead")
        if not messages or not any(str(m.get("content", "")).strip() for m in messages):
            raise ValueError("the chat is empty; give at least one message with some text")
        return self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)

    def text(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)


def encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids of a plain text, opened with BOS where the tokenizer has one. ValueError if nothing is left."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if tokenizer.bos_token_id is not None:
        ids = [tokenizer.bos_token_id, *ids]
    if not ids:
        raise ValueError("the prompt is empty and this tokenizer has no BOS token to start from; give some text")
    return list(ids)


def pair_folders(name: str) -> list[Path]:
    """The folders of a pair's target and draft. ValueError for an unknown name."""
    if name not in PAIRS:
        raise ValueError(f"unknown pair {name!r}; choose one of {', '.join(PAIRS)}")
    return [data_folder() / folder for folder in PAIRS[name]]


def load_pair(name: str = "pocket", device: str = "cpu") -> Pair:
    """A pair by name. ValueError for an unknown name; see load_model and shared_vocabulary for the rest."""
    folders = pair_folders(name)
    (target, target_sum), (draft, draft_sum) = (load_model(folder, device) for folder in folders)
    tokenizer, draft_tokenizer = (load_tokenizer(folder) for folder in folders)
    size = shared_vocabulary(tokenizer, draft_tokenizer)
    eos = target.generation_config.eos_token_id
    eos_ids = frozenset([eos] if isinstance(eos, int) else eos or [])
    return Pair(
        name=name,
        target=CausalLM(target, size),
        draft=CausalLM(draft, size),
        tokenizer=tokenizer,
        stops=Stops(eos_ids, tokenizer=tokenizer),
        checksums={"target": target_sum, "draft": draft_sum},
    )


def load_model(folder: Path | str, device: str = "cpu", dtype: torch.dtype = torch.float32):
    """(model, sha256 of its weights) from a local folder.

    FileNotFoundError if weights are missing; ValueError if they are damaged or differ from the recorded sha256.
    """
    folder = Path(folder)
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise FileNotFoundError(f"no weights in {folder}: model.safetensors is not there")
    checksum = hashlib.sha256(weights.read_bytes()).hexdigest()
    recorded = recorded_checksum(weights)
    if recorded is not None and recorded != checksum:
        raise ValueError(
            f"the weights {weights} are damaged: sha256 {checksum[:12]}... where {recorded[:12]}... was recorded; "
            "restore the file (git checkout) or rebuild it (make pocket)"
        )
    try:
        with _quiet():
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True).to(device)
    except SafetensorError as error:
        raise ValueError(f"the weights {weights} cannot be read ({error}); restore or rebuild the file") from error
    return model, checksum


def recorded_checksum(weights: Path) -> str | None:
    """The sha256 that SHA256SUMS, one folder up, records for this file; None where nothing is recorded."""
    sums = weights.parent.parent / "SHA256SUMS"
    if not sums.is_file():
        return None
    name = f"{weights.parent.name}/{weights.name}"
    for line in sums.read_text().splitlines():
        checksum, _, file = line.partition("  ")
        if file == name:
            return checksum
    return None


def load_tokenizer(folder: Path | str) -> PreTrainedTokenizerBase:
    with _quiet():
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def shared_vocabulary(target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase) -> int:
    """How many ids the two vocabularies share, the same token under each. Padding rows of a model do not count.

    ValueError if some id means another token in the draft, naming the first one; a draft may lack tokens.
    """
    ours, theirs = ({i: token for token, i in t.get_vocab().items()} for t in (target, draft))
    for i in sorted(ours.keys() & theirs.keys()):
        if ours[i] != theirs[i]:
            raise ValueError(
                f"target and draft have different vocabularies: id {i} is {ours[i]!r} in the target and "
                f"{theirs[i]!r} in the draft; a draft's tokens must be the target's"
            )
    if not ours.keys() & theirs.keys():
        raise ValueError("target and draft share no token; a draft's tokens must be the target's")
    return max(ours) + 1


class _quiet:
    """Context manager: transformers without progress bars and warnings, which do not belong in a lesson."""

    def __enter__(self) -> None:
        self.level = transformers_logging.get_verbosity()
        self.bars = transformers_logging.is_progress_bar_enabled()
        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()

    def __exit__(self, *error) -> None:
        transformers_logging.set_verbosity(self.level)
        if self.bars:
            transformers_logging.enable_progress_bar()


def parameter_bytes(model: PreTrainedModel) -> int:
    """Bytes that one pass must read: every parameter once (tied matrices count once)."""
    return sum(p.numel() * p.element_size() for p in model.parameters())
