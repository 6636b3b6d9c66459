"""Pairs from folders: whole weights, checked sums, one vocabulary, prompts that are not empty.
Follows specdec_lib/zoo.py.
Left out: the shipped pair (tests/pocket/test_shipped.py).
"""

import copy
import gc
import hashlib
import json
import os
import shutil
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
from huggingface_hub import errors
from tiny import generated, llama, t5
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging
from typer.testing import CliRunner

from specdec_lib import cli, memory, zoo
from specdec_lib.decode import decode
from specdec_lib.drafters import ModelDrafter
from specdec_lib.layers import first_layers
from specdec_lib.sampling import SamplingSettings
from specdec_lib.zoo import encode, load_model, load_pair, parameter_bytes, shared_vocabulary

TOKENS = ["<s>", "</s>", "a", "b", "c", "d", "e", "f", "g"]
TEMPLATE = "{{ bos_token }}{% for m in messages %} {{ m['content'] }}{% endfor %}"


def tokenizer(tokens=TOKENS, bos="<s>", template=None):
    inner = Tokenizer(models.WordLevel({t: i for i, t in enumerate(tokens)}, unk_token=tokens[0]))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token=bos, eos_token="</s>")
    made.chat_template = template
    return made


def save(folder, model, tokens=TOKENS, **kwargs):
    model.generation_config.eos_token_id = 1
    model.save_pretrained(folder)
    tokenizer(tokens, **kwargs).save_pretrained(folder)


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A data folder with a tiny pair: 9 tokens; the target has 12 rows, the draft 10."""
    shutil.copy(zoo.data_folder() / "presets.toml", tmp_path)
    save(tmp_path / "pocket/target", llama(seed=1, vocab=12), template=TEMPLATE)
    save(tmp_path / "pocket/draft", llama(seed=2, vocab=10))
    monkeypatch.setenv("SPECDEC_DATA", str(tmp_path))
    return tmp_path


def record(data, *names):
    lines = []
    for name in names:
        checksum = hashlib.sha256((data / f"pocket/{name}/model.safetensors").read_bytes()).hexdigest()
        lines.append(f"{checksum}  {name}/model.safetensors\n")
    (data / "pocket/SHA256SUMS").write_text("".join(lines))


def test_a_pair_with_padding_rows_decodes_over_its_real_tokens(data):
    """D1: 12 and 10 rows with the same 9 tokens; padding rows are cut."""
    pair = load_pair("pocket")
    assert pair.target.vocab_size == pair.draft.vocab_size == 9
    assert pair.stops.eos_token_ids == {1}
    trace = decode(pair.target, [0, 2], 20, ModelDrafter(pair.draft, 3))
    assert trace.ids == generated(pair.target.model, [0, 2], 20, suppress_tokens=[9, 10, 11])


def test_prompts_are_opened_with_bos_and_chats_with_their_template(data):
    """C16: an empty text is BOS alone; a chat without text is refused."""
    pair = load_pair("pocket")
    assert encode(pair.tokenizer, "a b") == [0, 2, 3]
    assert encode(pair.tokenizer, "") == encode(pair.tokenizer, " \n ") == [0]
    assert pair.prompt("a b") == [0, 2, 3]
    assert pair.text([2, 3, 1]).split() == ["a", "b"]
    for empty in ([], [{"role": "user", "content": "  "}]):
        with pytest.raises(ValueError, match="the chat is empty"):
            pair.chat(empty)
    pair.tokenizer.chat_template = None
    assert pair.prompt("a") == [0, 2]
    with pytest.raises(ValueError, match="no chat template"):
        pair.chat([{"role": "user", "content": "a"}])


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_an_empty_prompt_without_bos_is_refused(text):
    """C16."""
    with pytest.raises(ValueError, match="the prompt is empty"):
        encode(tokenizer(bos=None), text)


# ---- vocabularies ----------------------------------------------------------------------------------------------


def test_equal_vocabularies_are_counted_and_a_shorter_or_longer_draft_is_taken():
    """D1, D2."""
    target = tokenizer()
    assert shared_vocabulary(target, tokenizer()) == 9
    assert shared_vocabulary(target, tokenizer(TOKENS[:7])) == 9
    assert shared_vocabulary(target, tokenizer([*TOKENS, "h", "i"])) == 9


def test_unrelated_vocabularies_are_refused_with_the_first_differing_token(data):
    """D4, D6: equal sizes, ids 3 and 4 swapped."""
    swapped = [*TOKENS[:3], TOKENS[4], TOKENS[3], *TOKENS[5:]]
    with pytest.raises(ValueError, match="id 3 is 'b' in the target and 'c' in the draft"):
        shared_vocabulary(tokenizer(), tokenizer(swapped))
    save(data / "pocket/draft", llama(seed=2, vocab=10), tokens=swapped)
    with pytest.raises(ValueError, match="id 3 is 'b'"):
        load_pair("pocket")


# ---- files -----------------------------------------------------------------------------------------------------


def test_checksums_are_compared_where_they_are_recorded(data):
    record(data, "target")
    pair = load_pair("pocket")
    assert pair.checksums["target"] == (data / "pocket/SHA256SUMS").read_text().split()[0]
    weights = data / "pocket/target/model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(ValueError, match="damaged: sha256"):
        load_pair("pocket")
    (data / "pocket/SHA256SUMS").unlink()
    load_pair("pocket")  # nothing recorded, nothing compared: the flipped bit is a weight like another


def test_cut_weights_are_refused_without_a_recorded_sum(data):
    weights = data / "pocket/draft/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"model\.safetensors cannot be read"):
        load_pair("pocket")
    weights.write_bytes(b"")
    with pytest.raises(ValueError, match="cannot be read"):
        load_model(data / "pocket/draft")


def test_missing_weights_folders_and_names_are_named(data, monkeypatch):
    shutil.rmtree(data / "pocket/draft")
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors is not there"):
        load_pair("pocket")
    with pytest.raises(ValueError, match="unknown pair 'giant'; choose one of pocket"):
        load_pair("giant")
    monkeypatch.setenv("SPECDEC_DATA", str(data / "nowhere"))
    with pytest.raises(FileNotFoundError, match="SPECDEC_DATA"):
        zoo.data_folder()


def test_loading_prints_nothing_and_leaves_the_logging_as_it_was(data, capfd):
    before = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    load_pair("pocket")
    assert (transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()) == before
    assert capfd.readouterr() == ("", "")


def test_loading_leaves_the_global_random_state(data):
    """A16."""
    before = torch.random.get_rng_state()
    load_pair("pocket")
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_bytes_of_a_pass_count_tied_matrices_once():
    model = llama(vocab=12)
    untied = parameter_bytes(model)
    assert untied == 4 * sum(p.numel() for p in model.state_dict().values())
    model.lm_head.weight = model.model.embed_tokens.weight
    assert parameter_bytes(model) == untied - 4 * 12 * 32
    assert parameter_bytes(model.bfloat16()) == (untied - 4 * 12 * 32) // 2


# ---- any two models --------------------------------------------------------------------------------------------


@pytest.fixture
def folders(tmp_path):
    """A target and a draft in folders with the hub's layout, 9 tokens in 12 and 10 rows."""
    save(tmp_path / "target", llama(seed=1, vocab=12), template=TEMPLATE)
    save(tmp_path / "draft", llama(seed=2, vocab=10))
    return str(tmp_path / "target"), str(tmp_path / "draft")


@pytest.mark.parametrize("larger_draft", [False, True])
def test_two_folders_decode_as_transformers_does(folders, larger_draft):
    """D1, D2: the smaller of the two may be the target."""
    target, draft = reversed(folders) if larger_draft else folders
    pair = zoo.load_custom(target, draft)
    assert pair.target.vocab_size == pair.draft.vocab_size == 9
    trace = decode(pair.target, [0, 2], 20, ModelDrafter(pair.draft, 3))
    assert trace.ids == generated(
        pair.target.model, [0, 2], 20, suppress_tokens=[9, 10, 11][: 1 if larger_draft else 3]
    )
    assert trace.ids and max(max(r.tokens) for r in trace.rounds) < 9


def test_a_draft_with_more_tokens_than_the_target_never_emits_one_of_them(tmp_path):
    """D2: the draft knows 12 tokens, the target 9."""
    save(tmp_path / "target", llama(seed=1, vocab=9))
    save(tmp_path / "draft", llama(seed=2, vocab=12), tokens=[*TOKENS, "x", "y", "z"])
    pair = zoo.load_custom(str(tmp_path / "target"), str(tmp_path / "draft"))
    for seed in range(20):
        trace = decode(pair.target, [0, 2], 20, ModelDrafter(pair.draft, 3), None, SamplingSettings(1.0), seed=seed)
        assert max(trace.ids) < 9


def test_a_foreign_draft_is_refused_before_weights_are_read(folders, monkeypatch):
    """D4, D6."""
    tokenizer(list("qwertyuio")).save_pretrained(folders[1])
    monkeypatch.setattr(zoo._Wanted, "load", lambda self: pytest.fail("weights were read"))
    with pytest.raises(ValueError, match="id 0 is '<s>' in the target and 'q' in the draft"):
        zoo.load_custom(*folders)


def test_first_layers_share_every_weight_and_a_copy_would_not(folders):
    target = folders[0]
    pair = zoo.load_custom(target, f"{target}:layers=1")
    assert len(pair.draft.model.model.layers) == 1 and len(pair.target.model.model.layers) == 2
    assert pair.forms == {"draft": "layers=1"} and pair.checksums["draft"] == pair.checksums["target"]
    assert zoo.added_bytes(pair.draft.model, pair.target.model) == 0
    assert zoo.parameter_bytes(pair.draft.model) < zoo.parameter_bytes(pair.target.model)
    assert zoo.added_bytes(copy.deepcopy(pair.draft.model), pair.target.model) == zoo.parameter_bytes(pair.draft.model)
    trace = decode(pair.target, [0, 2], 20, ModelDrafter(pair.draft, 3))
    assert trace.ids == generated(pair.target.model, [0, 2], 20, suppress_tokens=[9, 10, 11])
    with pytest.raises(ValueError, match="from 1 to 2; got 3"):
        first_layers(pair.target.model, 3)


def test_all_layers_are_the_model_itself(folders):
    pair = zoo.load_custom(folders[0], f"{folders[0]}:layers=2")
    trace = decode(pair.target, [0, 2], 21, ModelDrafter(pair.draft, 3))
    assert all(r.path == [1, 2, 3] for r in trace.rounds[:-1])


def test_the_command_takes_any_two_models_and_shows_their_traces(folders, tmp_path):
    file, trace = tmp_path / "out.json", str(tmp_path / "trace.jsonl")
    models = ["--target", folders[0], "--draft", f"{folders[1]}:layers=1"]
    arguments = ["generate", *models, "--max-new-tokens", "8", "--json", str(file), "--trace", trace, "a b"]
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 0, done.stderr
    origin = json.loads(file.read_text())["provenance"]
    assert origin["arguments"]["draft"] == models[3] and origin["dtypes"] == {"target": "float32", "draft": "float32"}
    assert CliRunner().invoke(cli.app, ["show", trace]).exit_code == 0
    alone = CliRunner().invoke(cli.app, ["generate", *models[:2], "a b"])
    assert alone.exit_code == 2 and "--target and --draft go together" in alone.stderr


@pytest.mark.parametrize("missing", [False, True])
def test_weights_in_shards_are_read_and_a_missing_one_is_named(folders, missing):
    target = Path(folders[0])
    whole = zoo.load_model(target)[0]
    (target / "model.safetensors").unlink()
    whole.save_pretrained(target, max_shard_size="10KB")
    shards = sorted(target.glob("model-*.safetensors"))
    assert len(shards) > 2
    if missing:
        shards[1].unlink()
        with pytest.raises(FileNotFoundError, match=shards[1].name):
            zoo.load_custom(*folders)
    else:
        pair = zoo.load_custom(*folders)
        ours, theirs = pair.target.model.state_dict(), whole.state_dict()
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_code_in_a_repository_is_neither_run_nor_asked_about(folders, tmp_path):
    config = json.loads((tmp_path / "target/config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil"}}
    (tmp_path / "target/config.json").write_text(json.dumps(config))
    (tmp_path / "target/evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(ValueError, match="needs code of its own"):
        zoo.load_custom(*folders)
    assert not (tmp_path / "ran").exists()


def test_an_encoder_decoder_is_refused(folders, tmp_path):
    t5().save_pretrained(tmp_path / "target")
    with pytest.raises(ValueError, match="is an encoder-decoder model"):
        zoo.load_custom(*folders)


# ---- loading twice, and what does not fit ----------------------------------------------------------------------


def test_loading_twice_holds_one_copy_with_a_cache_each(folders):
    """I20."""
    first, again = zoo.load_custom(*folders), zoo.load_custom(*folders)
    assert again.target.model is first.target.model and again.draft.model is first.draft.model
    assert again.target is not first.target
    a = decode(first.target, [0, 2], 8)
    b = decode(again.target, [0, 3], 8)
    assert (a.ids, b.ids) == tuple(
        generated(first.target.model, [0, t], 8, suppress_tokens=[9, 10, 11]) for t in (2, 3)
    )


def test_what_nobody_holds_is_freed(folders):
    pair = zoo.load_custom(*folders)
    gone = weakref.ref(pair.target.model)
    del pair
    gc.collect()
    assert gone() is None


def test_changed_files_and_changed_dtypes_are_loaded_anew(folders):
    pair = zoo.load_custom(*folders)
    pair.draft.model.double()
    assert zoo.load_custom(*folders).draft.model.dtype == torch.float32
    save(Path(folders[0]), llama(seed=9, vocab=12))
    assert zoo.load_custom(*folders).target.model is not pair.target.model


def test_a_pair_that_does_not_fit_is_refused_with_numbers_before_weights_are_read(folders, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 10**5)
    monkeypatch.setattr(zoo._Wanted, "load", lambda self: pytest.fail("weights were read"))
    with pytest.raises(ValueError, match=r"does not fit: needs 1\.\d MB, 0\.1 MB free on cpu"):
        zoo.load_custom(*folders)


def test_what_is_loaded_already_needs_no_second_place(folders, monkeypatch):
    pair = zoo.load_custom(*folders)
    caches = sum(zoo.size_of(m.model.config, torch.float32).cache_bytes(zoo.TOKENS) for m in (pair.target, pair.draft))
    monkeypatch.setattr(memory, "free_bytes", lambda device: int(memory.SPARE * caches) + 1)
    zoo.load_custom(*folders)
    del pair
    with pytest.raises(ValueError, match="does not fit"):
        zoo.load_custom(*folders)


def test_a_gpu_pair_without_a_gpu_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(OSError, match="no GPU here, and it needs one"):
        load_pair("t4")


def test_numbers_that_overflow_are_refused_with_the_dtype(folders, monkeypatch):
    """F10."""
    target = Path(folders[0])
    model = llama(seed=1, vocab=12)
    model.lm_head.weight.data[3] = 1e38
    save(target, model)
    with pytest.raises(ValueError, match="not finite in float32"):
        zoo.load_custom(*folders)


# ---- the hub ---------------------------------------------------------------------------------------------------


def hub_says(kind):
    """What transformers raises: an OSError of its own, caused by the hub library's error."""
    error = kind.__new__(kind)

    def fail(*args, **kwargs):
        raise OSError("a page of advice") from error

    return fail


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (errors.GatedRepoError, "a/b is gated: accept its licence"),
        (errors.RepositoryNotFoundError, "the hub has no repository a/b"),
        (errors.LocalEntryNotFoundError, "hub cannot be reached: connect and try again, or give a folder"),
        (errors.OfflineModeIsEnabled, "hub cannot be reached"),
    ],
)
def test_the_hub_s_errors_are_one_sentence(monkeypatch, folders, kind, words):
    monkeypatch.setattr(zoo.AutoConfig, "from_pretrained", hub_says(kind))
    with pytest.raises(OSError, match=words) as caught:
        zoo.load_custom("a/b", "a/b")
    assert "advice" not in str(caught.value)


def test_without_a_network_the_command_says_one_sentence(folders):
    command = [sys.executable, "-m", "specdec_lib", "generate", "--target", "a/b", "--draft", folders[1], "hello"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"}, timeout=300
    )
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1
    assert "the hub cannot be reached" in done.stderr
