"""The table of pairs: whole, published sizes, and what fits is told with numbers.
Follows specdec_lib/presets.py, memory.py and listing.py; sizes from the models' own pages.
Left out: loading (test_zoo.py).
"""

import json

import pytest
import torch
from tiny import llama
from transformers import AutoConfig
from typer.testing import CliRunner

from specdec_lib import cli, listing, memory, presets
from specdec_lib.memory import size_of, why_not
from specdec_lib.presets import ModelSpec, UnknownPair, parse_model, preset
from specdec_lib.zoo import parameter_bytes

PUBLISHED = {  # parameters, as each model's page gives them
    "t4": (7_615_616_512, 494_032_768),
    "24gb": (8_030_261_248, 1_235_814_400),
    "80gb": (32_763_876_352, 494_032_768),
    "qwen-72b": (72_706_203_648, 7_615_616_512),
    "llama-70b": (70_553_706_496, 8_030_261_248),
    "llama-405b": (405_853_388_800, 8_030_261_248),
    "smollm2": (134_515_008, 134_515_008),
}


@pytest.fixture(scope="module")
def rows():
    return {row["pair"]: row for row in listing.rows()}


def test_shapes_give_the_published_numbers_of_parameters(rows):
    found = {name: tuple(rows[name][role]["parameters"] for role in ("target", "draft")) for name in PUBLISHED}
    assert found == PUBLISHED


def test_a_row_says_what_a_user_must_know(rows):
    for row in rows.values():
        for role in ("target", "draft"):
            assert row[role]["licence"] and row[role]["dtype"] in ("float32", "bfloat16", "float16")
            assert row[role]["gated"] == row[role]["model"].startswith("meta-llama/")
        assert row["fits"] or row["why"]
    assert rows["smollm2"]["draft"]["quantise"] == "nf4"
    assert "4 bits" in rows["smollm2"]["target"]["note"]


def test_memory_counts_both_models_and_caches_but_shared_layers_once(rows):
    weights = {name: [rows[name][role]["weight_bytes"] for role in ("target", "draft")] for name in rows}
    assert rows["24gb"]["memory_bytes"] > sum(weights["24gb"])
    assert rows["24gb"]["memory_bytes"] < sum(weights["24gb"]) + 10**9
    assert rows["smollm2-layers"]["memory_bytes"] < sum(weights["smollm2-layers"])
    assert weights["t4"][0] < 0.4 * 2 * 7_615_616_512  # nf4: about 4.5 of 16 bits, embeddings and output left whole


@pytest.mark.parametrize("gigabytes", [16, 24, 80])
def test_a_preset_fits_the_card_that_it_is_for(rows, gigabytes):
    name = {16: "t4", 24: "24gb", 80: "80gb"}[gigabytes]
    assert rows[name]["memory_bytes"] * memory.SPARE < gigabytes * 2**30 * 0.95


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UnknownPair, match="unknown pair 'giant'; choose one of pocket, pocket-uniform, smollm2"):
        preset("giant")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ('draft = { model = "smollm2", quantise = "fp3" }', "unknown quantisation 'fp3'"),
        ('draft = { model = "nobody" }', "'nobody' is missing"),
        ('draft = { model = "smollm2", colour = 1 }', "colour"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path, monkeypatch, change, words):
    text = (presets.data_folder() / "presets.toml").read_text()
    (tmp_path / "presets.toml").write_text(text.replace('draft = { model = "smollm2", quantise = "nf4" }', change))
    monkeypatch.setenv("SPECDEC_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=f"pair smollm2.*{words}"):
        presets.presets()


# ---- sizes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_the_size_is_what_the_loaded_model_has(tied):
    model = llama(vocab=12)
    model.config.tie_word_embeddings = tied
    if tied:
        model.lm_head.weight = model.model.embed_tokens.weight
    size = size_of(model.config, torch.float32)
    assert size.weight_bytes == parameter_bytes(model)
    assert size_of(model.config, torch.bfloat16).weight_bytes == parameter_bytes(model) / 2
    keys = model(torch.tensor([[1, 2, 3]])).past_key_values.layers[0].keys
    assert size.cache_bytes(3) == 2 * model.config.num_hidden_layers * keys.numel() * keys.element_size()


def test_quantisation_reduces_the_layers_alone():
    config = llama(vocab=12).config
    linear = size_of(config, torch.float32).parameters - (2 * 12 * 32 + 5 * 32)  # embeddings, output, norms
    whole = size_of(config, torch.bfloat16).weight_bytes
    assert size_of(config, torch.bfloat16, "int8").weight_bytes == pytest.approx(whole - linear)
    assert size_of(config, torch.bfloat16, "nf4").weight_bytes == pytest.approx(whole - linear * (2 - 4.5 / 8))


def test_fewer_layers_are_counted_and_more_than_there_are_refused():
    config = llama().config
    assert size_of(config, torch.float32, layers=1).layers == 1
    assert config.num_hidden_layers == 2
    with pytest.raises(ValueError, match="3 layers asked of a model that has 2"):
        size_of(config, torch.float32, layers=3)


def test_what_does_not_fit_is_told_with_numbers(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 8 * 10**9)
    assert why_not(7e9, ["cpu"]) == ""
    assert why_not(7.6e9, ["cpu"]) == "needs 8.4 GB, 8.0 GB free on cpu"  # a tenth to spare is asked for
    assert why_not(10e9, ["cpu"]) == "needs 11.0 GB, 8.0 GB free on cpu"
    assert why_not(10e9, ["cuda:0", "cuda:1"]) == ""
    monkeypatch.setattr(memory, "free_bytes", lambda device: None)
    assert why_not(1e15, ["cpu"]) == ""  # nothing is known against it


def test_free_memory_is_some_of_what_there_is():
    assert 0 < memory.free_bytes("cpu") <= memory.memory_bytes()


def test_devices_without_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert memory.place("best") == memory.place("cpu") == (["cpu"], "")
    assert memory.place("gpu") == memory.place("gpus") == ([], "no GPU here")


# ---- models by text --------------------------------------------------------------------------------------------


def test_models_are_folders_or_hub_names_with_how_to_load_them(tmp_path):
    folder = str(tmp_path.resolve())
    assert parse_model(folder) == ModelSpec(folder=folder)
    assert parse_model(f"{folder}:nf4") == ModelSpec(folder=folder, quantise="nf4")
    assert parse_model("Qwen/Qwen2.5-7B:int8") == ModelSpec(hub="Qwen/Qwen2.5-7B", quantise="int8")
    assert parse_model("a/b:layers=3") == ModelSpec(hub="a/b", layers=3)
    assert parse_model("a/b:layers=3").name == "a/b:layers=3"


@pytest.mark.parametrize("text", ["", "gpt2", "./nowhere", "/no/where", "~/no", "a/b/c", "a/b:fp4", "a/", "/b"])
def test_what_is_neither_folder_nor_hub_name_is_refused(text):
    with pytest.raises(ValueError, match="is neither a folder that is there nor a hub repository"):
        parse_model(text)


@pytest.mark.parametrize("text", ["a/b:layers=0", "a/b:layers=x", "a/b:layers="])
def test_a_bad_number_of_layers_is_refused(text):
    with pytest.raises(ValueError, match="layers, how many to keep|layers is how many to keep"):
        parse_model(text)


# ---- the command -----------------------------------------------------------------------------------------------


def test_the_command_lists_every_pair_and_writes_rows(tmp_path, rows):
    file = tmp_path / "presets.json"
    done = CliRunner().invoke(cli.app, ["presets", "--json", str(file)])
    assert done.exit_code == 0
    assert [name for name in rows if name not in done.stdout] == []
    written = json.loads(file.read_text())
    assert [row["pair"] for row in written["rows"]] == list(rows) and "git_sha" in written["provenance"]


def test_a_config_of_the_pocket_pair_comes_from_its_folder():
    spec = preset("pocket").target
    assert spec.config().to_dict() == AutoConfig.from_pretrained(spec.source()).to_dict()
