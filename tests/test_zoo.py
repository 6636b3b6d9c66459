"""Pairs from folders: whole weights, checked sums, one vocabulary, prompts that are not empty.
Follows specdec_lib/zoo.py.
Left out: the shipped pair (tests/pocket/test_shipped.py).
"""

import hashlib
import shutil

import pytest
import torch
from tiny import generated, llama
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from specdec_lib import zoo
from specdec_lib.decode import decode
from specdec_lib.drafters import ModelDrafter
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
