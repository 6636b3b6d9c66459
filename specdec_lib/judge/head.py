"""JudgeHead: one linear unit over a target's hidden state, and the file that it is kept in.

Follows Judge Decoding (Bachmann et al. 2025, arXiv 2501.19309): logistic regression, the target frozen.
Left out: training (train.py) and the rule that uses it (verifiers/judge.py).
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from specdec_lib.presets import data_folder
from specdec_lib.smollm2 import cache_folder
from specdec_lib.sums import SUMS, record_sum, recorded_sum, sha256_of

FORMAT, VERSION = "specdec judge head", "1"


class HeadError(ValueError):
    """A head that cannot be used here: missing, damaged, or made for another model."""


@dataclass
class JudgeHead:
    """score = sigmoid(weight . e + bias): how likely the token at whose own row e stands is right.

    weight: (width,) float32. layer: how many layers e has gone through, all of them for the state before the final
    norm. normed: e is first divided by its root mean square (the final norm without its gain, which weight holds).
    target: the target's checksum, as in Pair.checksums. made: how it was trained, for people.
    """

    weight: torch.Tensor
    bias: float
    layer: int
    target: str
    normed: bool = False
    made: dict = field(default_factory=dict)

    @property
    def width(self) -> int:
        return self.weight.shape[0]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """(nodes, width) -> (nodes,), float32. HeadError for another width."""
        if hidden.shape[-1] != self.width:
            raise HeadError(
                f"this head reads hidden states of width {self.width}; the target's have {hidden.shape[-1]}: it was "
                "made for another model. Train one for this target: specdec judge train"
            )
        hidden = hidden.float()
        if self.normed:
            hidden = root_mean_square_one(hidden)
        return hidden @ self.weight.to(hidden.device) + self.bias

    def scores(self, hidden: torch.Tensor) -> torch.Tensor:
        """(nodes, width) -> (nodes,) in (0, 1)."""
        return torch.sigmoid(self.logits(hidden))

    def save(self, file: Path | str) -> None:
        """Write the head, and its sha256 into SHA256SUMS beside it."""
        file = Path(file)
        if file.suffix != ".safetensors":
            raise ValueError(f"a head is a .safetensors file; got {file.name}")
        about = {
            "format": FORMAT, "version": VERSION, "width": str(self.width), "layer": str(self.layer),
            "normed": json.dumps(self.normed), "target": self.target, "made": json.dumps(self.made),
        }  # fmt: skip
        tensors = {"weight": self.weight.float().contiguous(), "bias": torch.tensor([self.bias], dtype=torch.float32)}
        save_file(tensors, file, about)
        record_sum(file)

    @classmethod
    def load(cls, file: Path | str) -> "JudgeHead":
        """Read a head. FileNotFoundError if it is missing; HeadError if it is damaged, or no head of this version."""
        file = Path(file)
        about = _about(file)
        recorded = recorded_sum(file)
        if recorded is not None and recorded != sha256_of(file):
            raise HeadError(
                f"{file} differs from the sha256 recorded in {SUMS} beside it; restore it or train it again"
            )
        try:
            with safe_open(file, "pt") as opened:
                weight, bias = opened.get_tensor("weight"), opened.get_tensor("bias")
            width, layer, normed = int(about["width"]), int(about["layer"]), json.loads(about["normed"])
            made, target = json.loads(about["made"]), about["target"]
        except (SafetensorError, KeyError, ValueError) as error:
            raise HeadError(
                f"{file} is not a whole judge head ({error}); train it again: specdec judge train"
            ) from error
        sound = weight.shape == (width,) and bias.shape == (1,) and weight.dtype == bias.dtype == torch.float32
        if not (sound and bool(weight.isfinite().all() and bias.isfinite().all()) and isinstance(normed, bool)):
            raise HeadError(f"{file} holds numbers that do not make a judge head; train it again: specdec judge train")
        return cls(weight, float(bias), layer, target, normed, made)


def head_of(pair) -> JudgeHead:
    """The head trained for this pair's very target, among those shipped (data/pocket) and the user's own (the cache).

    HeadError where there is none, with how to train one; the newest of several.
    """
    checksum = pair.checksums["target"]
    for file in sorted(head_files(), key=lambda f: f.stat().st_mtime, reverse=True):
        try:
            about = _about(file)
        except HeadError:
            continue  # some other file, or a head of another version: it could not be this target's
        if about["target"] == checksum:
            head = JudgeHead.load(file)
            check_fits(head, pair)
            return head
    raise HeadError(
        f"no judge head has been trained for the target of {pair.name}: specdec judge train --pair {pair.name} "
        "--labels FILE.jsonl makes one (docs/judge.md)"
    )


def check_fits(head: JudgeHead, pair) -> None:
    """HeadError unless the head was made for this pair's target, and reads the state before its final norm."""
    config = pair.target.model.config.get_text_config()
    if head.target != pair.checksums["target"]:
        raise HeadError(
            f"this head was made for another target (checksum {head.target[:12]}..., where {pair.name}'s is "
            f"{pair.checksums['target'][:12]}...); train one for this target: specdec judge train --pair {pair.name}"
        )
    if head.width != config.hidden_size or head.layer != config.num_hidden_layers:
        raise HeadError(
            f"this head reads width {head.width} after {head.layer} layers; the loop hands over width "
            f"{config.hidden_size} after {config.num_hidden_layers}, before the final norm"
        )


def heads_folder() -> Path:
    """Where the heads that a user trains are kept."""
    return cache_folder() / "heads"


def head_files() -> list[Path]:
    """Where heads may be: those shipped, then the user's own."""
    return [*(data_folder() / "pocket").glob("*.safetensors"), *heads_folder().glob("*.safetensors")]


def _about(file: Path) -> dict[str, str]:
    """The metadata of a head's file; HeadError if it is none of this version."""
    if not file.is_file():
        raise FileNotFoundError(f"{file} is not there")
    try:
        with safe_open(file, "pt") as opened:
            about = opened.metadata() or {}
    except SafetensorError as error:
        raise HeadError(f"{file} cannot be read as safetensors ({error}); restore it or train it again") from error
    if about.get("format") != FORMAT:
        raise HeadError(f"{file} holds no judge head; specdec judge train makes one")
    if about.get("version") != VERSION:
        raise HeadError(f"{file} is a judge head of version {about.get('version')}, not {VERSION}; train it again")
    return about


def root_mean_square_one(hidden: torch.Tensor) -> torch.Tensor:
    """Rows scaled to a root mean square of 1."""
    return hidden / hidden.square().mean(dim=-1, keepdim=True).clamp_min(1e-12).sqrt()
