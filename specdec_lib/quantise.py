"""Models in 8 or 4 bits, by bitsandbytes through transformers' own configuration, on a GPU or a CPU.

Follows LLM.int8 (arXiv 2208.07339) and NF4 (QLoRA, arXiv 2305.14314) as bitsandbytes has them.
Left out: double quantisation, saving quantised weights, and other libraries. A quantised model is never moved.
"""

import copy
import logging
import warnings

import torch
from transformers import BitsAndBytesConfig, PreTrainedModel

from specdec_lib.machine import package_version

# bits a weight of a quantised matrix: nf4 keeps a float32 scale for 64 weights
QUANTISATIONS = {"int8": 8.0, "nf4": 4.5}


def compute_dtype(device: torch.device | str, stored: torch.dtype) -> torch.dtype:
    """The dtype to compute in. float32 stays; of 16 bits a device gets bfloat16 where it has it, else float16 (T4)."""
    if stored not in (torch.float16, torch.bfloat16):
        return stored
    device = torch.device(device)
    if device.type != "cuda":
        return torch.bfloat16
    with torch.cuda.device(device):
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16


def quantisation(kind: str, dtype: torch.dtype) -> BitsAndBytesConfig:
    """transformers' configuration for "int8" or "nf4", computing in dtype.

    OSError where the packages for it are missing or do not work here.
    """
    if kind not in QUANTISATIONS:
        raise ValueError(f"unknown quantisation {kind!r}; choose one of {', '.join(QUANTISATIONS)}")
    require_packages()
    if kind == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)


def missing_packages() -> list[str]:
    """What a quantised model needs and is not installed."""
    return [name for name in ("bitsandbytes", "accelerate") if package_version(name) is None]


def require_packages() -> None:
    """OSError, saying what to do, where bitsandbytes or accelerate is missing or cannot be imported."""
    missing = missing_packages()
    if missing:
        raise OSError(
            f"a model in 4 or 8 bits needs {' and '.join(missing)}, not installed here: pip install "
            f"{' '.join(missing)}, and restart the kernel; the pocket pair and unquantised models need neither"
        )
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it names absent kernels, and every cast of an input
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import bitsandbytes  # noqa: F401
    except (ImportError, OSError, RuntimeError, AttributeError) as error:  # a build for another machine
        raise OSError(
            f"bitsandbytes {package_version('bitsandbytes')} cannot be imported on this machine ({error}), so no model "
            "in 4 or 8 bits; the pocket pair and unquantised models do without it"
        ) from error


def dtype_name(dtype: torch.dtype, kind: str | None = None) -> str:
    """How figures name what they were made with: "bfloat16", or "nf4, computed in bfloat16"."""
    name = str(dtype).removeprefix("torch.")
    return name if kind is None else f"{kind}, computed in {name}"


def unpacked(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of an nf4 model with each weight unpacked once, not at every pass; any other model as it is.

    The same numbers, in as much memory as the whole model, and faster where no kernel multiplies packed weights:
    four times on a CPU without one. int8 stays: it rounds what it multiplies too.
    """
    if not getattr(model, "is_loaded_in_4bit", False):
        return model
    return copy.deepcopy(model).dequantize()
