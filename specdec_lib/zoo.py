"""Load a pair of models: by name (data/presets.toml) or any two, checked before use.

Our own. All models go through transformers' AutoModelForCausalLM, from safetensors only; no code of theirs is run.
Left out: what happens with a pair (decode.py, methods.py).
"""

import gc
import hashlib
import json
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from specdec_lib.decode import Stops
from specdec_lib.layers import first_layers
from specdec_lib.memory import place, size_of, why_not
from specdec_lib.model import CausalLM
from specdec_lib.presets import ModelSpec, data_folder, parse_model, preset  # noqa: F401
from specdec_lib.provenance import provenance
from specdec_lib.quantise import compute_dtype, dtype_name, quantisation
from specdec_lib.sums import read_sums, sha256_of

TOKENS = 2048  # in each cache, for which a pair that is no preset must fit
REMEMBERED_SUM_BYTES = 2**31  # larger weights are told apart by name, size and date: reading them all takes minutes


@dataclass
class Pair:
    """A target and a draft that share a vocabulary, ready to decode with.

    checksums: for target and draft, sha256 of the stored weights, or what stands for it. forms: what was made of
    those, "nf4", "int8" or "layers=4"; a whole model as it is stored has none. dtypes: what each is computed in and
    quantised to; note: what else to say beside a figure. Weights are shared by all pairs of one process: copy a model
    (copy.deepcopy) before changing it.
    """

    name: str
    target: CausalLM
    draft: CausalLM
    tokenizer: PreTrainedTokenizerBase
    stops: Stops
    checksums: dict[str, str]
    dtypes: dict[str, str] = field(default_factory=dict)
    note: str = ""
    forms: dict[str, str] = field(default_factory=dict)

    def compile_draft(self) -> None:
        """From now on the draft's steps go through torch.compile. ValueError where that cannot be done (CausalLM)."""
        self.draft = CausalLM(self.draft.model, self.draft.vocab_size, compiled=True)

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

    def provenance(self, arguments: dict, seed: int | None = None) -> dict:
        """Where a result made with this pair comes from: provenance.py's fields, checksums, dtypes and the note."""
        origin = provenance(arguments, seed, self.target.device, self.target.model.dtype)
        return origin | {"checksums": self.checksums, "dtypes": self.dtypes, "note": self.note}

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


def load_pair(name: str = "pocket", device: str | None = None) -> Pair:
    """A preset by name. device: cpu, best, gpu, gpus, or one like cuda:1; the preset's own unless given.

    UnknownPair for an unknown name. OSError for what is not here and how to get it; ValueError for weights that are
    damaged, vocabularies that differ, and models that do not fit, with the numbers.
    """
    chosen = preset(name)
    return _pair(name, chosen.target, chosen.draft, device or chosen.device, chosen.tokens)


def load_custom(target: str, draft: str, device: str | None = None) -> Pair:
    """Any two models: local folders or hub repositories, with :nf4, :int8 or :layers=N. Errors as load_pair."""
    return _pair(f"{target} + {draft}", parse_model(target), parse_model(draft), device or "best", TOKENS)


def load_selfdraft(name: str, quantise: str | None = None, layers: int | None = None) -> Pair:
    """A preset's target with its own weights as draft: quantised, or its first layers. Errors as load_pair."""
    chosen = preset(name)
    draft = replace(chosen.target, quantise=quantise, layers=layers)
    return _pair(f"{name}, {draft.name} as draft", chosen.target, draft, chosen.device, chosen.tokens)


def pair_sources(name: str) -> list[Path | str]:
    """Where a preset's target and draft are: local folders, or hub repositories. UnknownPair for an unknown name."""
    chosen = preset(name)
    return [chosen.target.source(), chosen.draft.source()]


def load_model(
    source: Path | str, device: str = "cpu", dtype: torch.dtype = torch.float32, quantise: str | None = None
) -> tuple[PreTrainedModel, str]:
    """(model, checksum of its weights) from a local folder or the hub; the same weights are not loaded twice.

    FileNotFoundError if weights are missing; ValueError if they are damaged, differ from the recorded sha256, or give
    logits that are not finite.
    """
    wanted = _Wanted(source, (device,), dtype, quantise)
    return wanted.load(), wanted.checksum


_loaded: weakref.WeakValueDictionary[tuple, PreTrainedModel] = weakref.WeakValueDictionary()


class _Wanted:
    """A model to load, known by what it will be; what is loaded already is found again, not loaded twice."""

    def __init__(self, source: Path | str, devices: tuple[str, ...], dtype: torch.dtype | None, quantise: str | None):
        self.source = Path(source) if Path(source).is_dir() else source
        self.local = isinstance(self.source, Path)
        self.files = weight_files(self.source) if self.local else []
        self.config = _config(self.source)
        stored = dtype or getattr(self.config, "dtype", None) or torch.float32
        self.dtype = compute_dtype(devices[0], stored) if dtype is None else dtype
        self.devices, self.quantise = devices, quantise
        revision = getattr(self.config, "_commit_hash", None)
        self.checksum = _checksum(self.files) if self.local else f"revision {revision}"
        self.key = (str(self.source), self.checksum, self.dtype, devices, quantise)

    @property
    def found(self) -> PreTrainedModel | None:
        """The model, if it is loaded and nobody has changed its dtype."""
        model = _loaded.get(self.key)
        return model if model is not None and model.dtype == self.dtype else None

    def load(self) -> PreTrainedModel:
        model = self.found
        if model is None:
            model = self._read()
            _check_finite(model, self.source, dtype_name(self.dtype, self.quantise))
            _loaded[self.key] = model
        return model

    def _read(self) -> PreTrainedModel:
        options: dict = {"dtype": self.dtype, "use_safetensors": True, **_NO_CODE, "local_files_only": self.local}
        if self.quantise:
            options["quantization_config"] = quantisation(self.quantise, self.dtype)
        if self.quantise or len(self.devices) > 1:  # placed while loading: a quantised model is never moved
            options["device_map"] = "auto" if len(self.devices) > 1 else {"": self.devices[0]}
        try:
            with _reading(self.source):
                model = AutoModelForCausalLM.from_pretrained(self.source, **options)
        except SafetensorError as error:
            names = ", ".join(map(str, self.files)) or self.source
            raise ValueError(f"the weights {names} cannot be read ({error}); restore or rebuild the file") from error
        return model if "device_map" in options else model.to(self.devices[0])


_NO_CODE = {"trust_remote_code": False}  # said, so that transformers does not ask


def _pair(name: str, target: ModelSpec, draft: ModelSpec, device: str, tokens: int) -> Pair:
    devices, reason = place(device)
    if not devices:
        raise OSError(f"{reason}, and it needs one; specdec presets lists what fits here")
    specs = (target, draft)
    wanted = [
        _Wanted(s.source(), tuple(devices), s.dtype and compute_dtype(devices[0], getattr(torch, s.dtype)), s.quantise)
        for s in specs
    ]
    tokenizer, draft_tokenizer = (load_tokenizer(w.source) for w in wanted)
    size = shared_vocabulary(tokenizer, draft_tokenizer)
    _check_fit(specs, wanted, tokens)
    models = [
        w.load() if s.layers is None else first_layers(w.load(), s.layers) for w, s in zip(wanted, specs, strict=True)
    ]
    eos = models[0].generation_config.eos_token_id
    eos_ids = frozenset([eos] if isinstance(eos, int) else eos or [])
    return Pair(
        name=name,
        target=CausalLM(models[0], size),
        draft=CausalLM(models[1], size),
        tokenizer=tokenizer,
        stops=Stops(eos_ids, tokenizer=tokenizer),
        checksums={"target": wanted[0].checksum, "draft": wanted[1].checksum},
        dtypes={role: dtype_name(w.dtype, w.quantise) for role, w in zip(("target", "draft"), wanted, strict=True)},
        note="; ".join(dict.fromkeys(s.note for s in specs if s.note)),
        forms={role: form for role, s in zip(("target", "draft"), specs, strict=True) if (form := form_of(s))},
    )


def form_of(spec: ModelSpec) -> str:
    """What is made of the stored weights: "nf4", "layers=4", both, or "" for the whole model as it is."""
    return ",".join(filter(None, (spec.quantise, spec.layers and f"layers={spec.layers}")))


def _check_fit(specs: tuple[ModelSpec, ...], wanted: list[_Wanted], tokens: int) -> None:
    """ValueError with numbers if what is not loaded yet, and two caches of so many tokens, do not fit."""
    gc.collect()  # what a notebook has dropped may still hold memory
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    needed, counted = 0.0, set()
    for spec, model in zip(specs, wanted, strict=True):
        if model.found is None and model.key not in counted:
            counted.add(model.key)
            needed += size_of(model.config, model.dtype, model.quantise).weight_bytes
        needed += size_of(model.config, model.dtype, model.quantise, spec.layers).cache_bytes(tokens)
    reason = why_not(needed, wanted[0].devices)
    if reason:
        raise ValueError(f"it does not fit: {reason}; choose a smaller pair, or quantise (:nf4)")


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a local model: one, or the shards that its index names. FileNotFoundError if missing."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return [single]
    if not index.is_file():
        raise FileNotFoundError(f"no weights in {folder}: model.safetensors is not there")
    files = [folder / name for name in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise FileNotFoundError(f"weights are missing in {folder}: {', '.join(missing)}, named by {index.name}")
    return files


def _checksum(files: list[Path]) -> str:
    """sha256 of the weights (of several files: of their sums). ValueError if another one is recorded."""
    recorded = recorded_checksum(files[0])
    if recorded is None and sum(file.stat().st_size for file in files) > REMEMBERED_SUM_BYTES:
        stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        return "unread " + hashlib.sha256(repr(stats).encode()).hexdigest()
    sums = [sha256_of(file) for file in files]
    checksum = sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest()
    if recorded is not None and recorded != checksum:
        raise ValueError(
            f"the weights {files[0]} are damaged: sha256 {checksum[:12]}... where {recorded[:12]}... was recorded; "
            "restore the file (git checkout) or make it again (make pocket; for SmolLM2 delete its folder first: "
            "make smollm2)"
        )
    return checksum


def recorded_checksum(weights: Path) -> str | None:
    """The sha256 that SHA256SUMS, one folder up, records for this file; None where nothing is recorded."""
    return read_sums(weights.parent.parent).get(f"{weights.parent.name}/{weights.name}")


def load_tokenizer(source: Path | str) -> PreTrainedTokenizerBase:
    """The tokenizer of a local folder or hub repository. OSError where it is not there."""
    with _reading(source):
        return AutoTokenizer.from_pretrained(source, **_NO_CODE, local_files_only=Path(source).is_dir())


def _config(source: Path | str) -> PreTrainedConfig:
    """The configuration of a decoder-only model. OSError where it is not there, ValueError for another kind."""
    with _reading(source):
        config = AutoConfig.from_pretrained(source, **_NO_CODE, local_files_only=Path(source).is_dir())
    if config.is_encoder_decoder:
        raise ValueError(f"{source} is an encoder-decoder model; only decoder-only models work here")
    return config


@contextmanager
def _reading(source: Path | str) -> Iterator[None]:
    """Read from a folder or the hub: no warnings, bars for downloads alone, the hub's errors as one sentence."""
    local = Path(source).is_dir()
    try:
        with quiet(bars=not local):
            yield
    except OSError as error:
        if local:
            raise
        raise OSError(_hub_sentence(source, error)) from error
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise ValueError(f"{source} needs code of its own to be read, which is never run here") from error


def _hub_sentence(source: Path | str, error: OSError) -> str:
    """What went wrong at the hub and what to do."""
    kinds, link = set(), error
    while link is not None:
        kinds |= {kind.__name__ for kind in type(link).__mro__}
        link = link.__cause__ or link.__context__
    if "GatedRepoError" in kinds:
        return f"{source} is gated: accept its licence on its page of the hub, then log in here with `hf auth login`"
    if kinds & {"RepositoryNotFoundError", "HFValidationError"}:
        return f"the hub has no repository {source}, or it is private: check the name, or `hf auth login`"
    if kinds & {"LocalEntryNotFoundError", "OfflineModeIsEnabled", "ConnectError", "TimeoutException", "ProxyError"}:
        return (
            f"{source} is neither a local folder nor in the hub's cache here, and the hub cannot be reached: connect "
            "and try again, or give a folder that holds the model"
        )
    return f"{source} cannot be loaded: {' '.join(str(error).split())}"


def _check_finite(model: PreTrainedModel, source: Path | str, dtype: str) -> None:
    """ValueError if a short pass gives NaN or infinite logits: float16 overflows in models made for bfloat16."""
    ids = torch.arange(8, device=model.device)[None] % model.config.get_text_config().vocab_size
    with torch.inference_mode():
        logits = model(input_ids=ids).logits
    if not bool((logits < float("inf")).all()):  # NaN fails this, too
        raise ValueError(
            f"{source} gives logits that are not finite in {dtype}: its numbers do not fit that type; use a device "
            "with bfloat16, or the CPU"
        )


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


class quiet:
    """Context manager: transformers without warnings and, unless bars, progress bars: neither belongs in a lesson."""

    def __init__(self, bars: bool = False):
        self.bars_wanted = bars

    def __enter__(self) -> None:
        self.level = transformers_logging.get_verbosity()
        self.bars = transformers_logging.is_progress_bar_enabled()
        transformers_logging.set_verbosity_error()
        if not self.bars_wanted:
            transformers_logging.disable_progress_bar()

    def __exit__(self, *error) -> None:
        transformers_logging.set_verbosity(self.level)
        if self.bars:
            transformers_logging.enable_progress_bar()


def parameter_bytes(model: PreTrainedModel) -> int:
    """Bytes that one pass must read: every parameter once (tied matrices count once), nf4 with its scales."""
    return sum(_bytes(parameter) for parameter in model.parameters())


def added_bytes(model: PreTrainedModel, beside: PreTrainedModel) -> int:
    """Bytes of the parameters that a model does not share with another one."""
    shared = {id(parameter) for parameter in beside.parameters()}
    return sum(_bytes(parameter) for parameter in model.parameters() if id(parameter) not in shared)


def _bytes(parameter: torch.nn.Parameter) -> int:
    state = getattr(parameter, "quant_state", None)  # nf4: bitsandbytes keeps the scales beside the packed weights
    scales = 0 if state is None else state.absmax.numel() * state.absmax.element_size()
    return parameter.numel() * parameter.element_size() + scales
