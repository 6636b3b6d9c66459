"""Does a pair fit? The bytes that its models need, from their configurations, against what is free on a device.

Our own; sizes as in roofline.py. Quantised are the linear layers, except the output matrix (transformers' default).
Left out: what a limit on a container allows, and the short peak while weights are read.
"""

import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig

from specdec_lib.machine import memory_bytes
from specdec_lib.quantise import QUANTISATIONS
from specdec_lib.roofline import Size

SPARE = 1.1  # activations, logits, and what the allocator cannot use


def size_of(
    config: PretrainedConfig, dtype: torch.dtype, quantise: str | None = None, layers: int | None = None
) -> Size:
    """A causal LM's parameters (tied matrices count once), bytes a weight on average, and the numbers of its cache.

    Nothing is allocated. layers: only the first so many are kept. ValueError for more layers than there are.
    """
    text = copy.deepcopy(config.get_text_config())
    if layers is not None:
        if layers > text.num_hidden_layers:
            raise ValueError(f"{layers} layers asked of a model that has {text.num_hidden_layers}")
        text.num_hidden_layers = layers
        if getattr(text, "layer_types", None):
            text.layer_types = text.layer_types[:layers]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(text)
    total = sum(p.numel() for p in model.parameters())
    output = model.get_output_embeddings()
    linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not output]
    reduced = sum(m.weight.numel() for m in linear) if quantise else 0
    whole = (total - reduced) * dtype.itemsize
    heads = text.num_attention_heads
    return Size(
        parameters=total,
        layers=text.num_hidden_layers,
        kv_heads=getattr(text, "num_key_value_heads", None) or heads,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // heads,
        bytes_per_weight=(whole + reduced * QUANTISATIONS.get(quantise, 0) / 8) / total,
        bytes_per_value=float(dtype.itemsize),
    )


def free_bytes(device: torch.device | str) -> int | None:
    """Free memory of a device; None where it cannot be told."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    info = Path("/proc/meminfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    return memory_bytes()


def place(kind: str) -> tuple[list[str], str]:
    """The devices that cpu, best, gpu or gpus means on this machine, and, where there is none, why not.

    Anything else is taken as a device's own name.
    """
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    if kind not in ("cpu", "best", "gpu", "gpus"):
        return [kind], ""
    if kind == "cpu" or (kind == "best" and not gpus):
        return ["cpu"], ""
    if not gpus:
        return [], "no GPU here"
    return (gpus if kind == "gpus" else [max(gpus, key=free_bytes)]), ""


def why_not(needed_bytes: float, devices: Sequence[str]) -> str:
    """An empty text if so many bytes, with some to spare, are free on the devices together; else the numbers."""
    free = [free_bytes(device) for device in devices]
    if None in free or needed_bytes * SPARE <= sum(free):
        return ""
    where = devices[0] if len(devices) == 1 else f"{len(devices)} GPUs"
    return f"needs {in_words(needed_bytes * SPARE)}, {in_words(sum(free))} free on {where}"


def in_words(n: float) -> str:
    """Bytes as GB, or MB below one."""
    return f"{n / 1e9:.1f} GB" if n >= 1e9 else f"{n / 1e6:.1f} MB"
