"""AutoJudgeHead: one linear unit over a draft's and a target's hidden states, and the file that it is kept in.

Follows AutoJudge (arXiv 2504.20039): logistic regression on [draft state; target state], both models frozen.
Left out: training (train.py) and the rule that uses it (verifiers/autojudge.py).
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from specdec_lib.judge.head import HeadError, head_files
from specdec_lib.sums import record_sum, recorded_sum, sha256_of
from specdec_lib.zoo import Pair

FORMAT = "specdec autojudge head 1"


@dataclass
class AutoJudgeHead:
    """P(important) = sigmoid(weight . [draft state; target state] + bias).

    weight: (draft's width + target's width,) float32. target, draft: the checksums of the pair that it was made for,
    as in Pair.checksums. made: how it was trained, for people.
    """

    weight: torch.Tensor
    bias: float
    target: str
    draft: str
    made: dict = field(default_factory=dict)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """(n, width) -> (n,), float32. HeadError for another width."""
        if states.shape[-1] != len(self.weight):
            raise HeadError(
                f"this head reads draft and target states of {len(self.weight)} numbers; these models give "
                f"{states.shape[-1]}: it was made for another pair. Train one: specdec autojudge train"
            )
        return states.float() @ self.weight.to(states.device) + self.bias

    def save(self, file: Path) -> None:
        """Write the head, and its sha256 into SHA256SUMS beside it."""
        about = {"format": FORMAT, "target": self.target, "draft": self.draft, "made": json.dumps(self.made)}
        save_file({"weight": self.weight.float().contiguous(), "bias": torch.tensor([self.bias])}, file, about)
        record_sum(file)

    @classmethod
    def load(cls, file: Path) -> "AutoJudgeHead":
        """FileNotFoundError if it is missing; HeadError if it is damaged, or no head of this version."""
        about = _about(file)
        if about is None:
            raise HeadError(f"{file} holds no autojudge head; specdec autojudge train makes one")
        if recorded_sum(file) not in (None, sha256_of(file)):
            raise HeadError(
                f"{file} differs from the sha256 recorded in SHA256SUMS beside it; restore or train it again"
            )
        try:
            with safe_open(file, "pt") as opened:
                weight, bias = opened.get_tensor("weight"), opened.get_tensor("bias")
            made, target, draft = json.loads(about["made"]), about["target"], about["draft"]
        except (SafetensorError, KeyError, ValueError) as error:
            raise HeadError(f"{file} is not a whole autojudge head ({error}); train it again") from error
        if weight.dim() != 1 or bias.shape != (1,) or not bool(weight.isfinite().all() and bias.isfinite().all()):
            raise HeadError(f"{file} holds numbers that do not make a head; train it again: specdec autojudge train")
        return cls(weight, float(bias), target, draft, made)


def head_of(pair: Pair) -> AutoJudgeHead:
    """The head made for this very pair, among those shipped (data/pocket) and the user's own (the cache).

    HeadError where there is none, with how to train one.
    """
    for file in sorted(head_files()):
        about = _about(file)
        if about is not None and {role: about.get(role) for role in ("target", "draft")} == pair.checksums:
            return AutoJudgeHead.load(file)
    raise HeadError(
        f"no autojudge head has been trained for the pair {pair.name}; make one: specdec autojudge mine, then "
        "specdec autojudge train"
    )


def _about(file: Path) -> dict[str, str] | None:
    """The file's metadata; None if it is no head of this kind. FileNotFoundError if it is missing."""
    if not file.is_file():
        raise FileNotFoundError(f"{file} is not there")
    try:
        with safe_open(file, "pt") as opened:
            about = opened.metadata() or {}
    except SafetensorError:
        return None
    return about if about.get("format") == FORMAT else None
