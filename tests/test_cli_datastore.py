"""`specdec datastore`: texts, lines of JSON and pocket problems become a datastore; bad input is named.
Follows specdec_lib/cli/datastore.py and corpus.py.
Left out: what is looked up (test_rest.py).
"""

import json

import pytest
from typer.testing import CliRunner

from specdec_lib.cli import app
from specdec_lib.corpus import file_ids
from specdec_lib.datastore import Datastore, fingerprint, store_file
from specdec_lib.presets import data_folder
from specdec_lib.zoo import load_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer(data_folder() / "pocket" / "target")


def run(*arguments):
    return CliRunner().invoke(app, ["datastore", *map(str, arguments)])


def test_texts_and_lines_of_json_are_read(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_text("sam has 3 pens\n" * 500)
    (tmp_path / "b.jsonl").write_text('{"text": "so sam has"}\n\n{"text": "3 pens"}\n')
    done = run("build", tmp_path / "a.txt", tmp_path / "b.jsonl", "--out", tmp_path / "x.store")
    assert done.exit_code == 0, done.output
    store = Datastore(tmp_path / "x.store", fingerprint(tokenizer))
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("so sam has", "3 pens")]
    assert store.header["texts"] == 3 and store.header["about"]["files"] == ["a.txt", "b.jsonl"]
    assert store.tokens[-2 - sum(map(len, ids)) :].tolist() == [*ids[0], 2**32 - 1, *ids[1], 2**32 - 1]
    assert "3 texts" in run("show", tmp_path / "x.store").stdout


def test_pocket_problems_are_made_and_the_shipped_store_is_of_them(tmp_path, tokenizer):
    assert run("build", "--problems", 1000, "--out", tmp_path / "x.store").exit_code == 0
    shipped = Datastore(store_file("pocket"), fingerprint(tokenizer))
    assert Datastore(tmp_path / "x.store").header == shipped.header
    assert tokenizer.unk_token_id not in shipped.tokens.tolist()
    assert store_file("pocket-uniform") == store_file("pocket") != store_file("smollm2")


@pytest.mark.parametrize(
    "line, field, said", [("{", "text", "line 2"), ('{"text": 3}', "text", "line 2"), ('{"text": "a"}', "b", "line 1")]
)
def test_a_line_that_is_no_text_is_named(tmp_path, tokenizer, line, field, said):
    file = tmp_path / "a.jsonl"
    file.write_text(f"{json.dumps({'text': 'fine'})}\n{line}\n")
    with pytest.raises(ValueError, match=said):
        list(file_ids([file], tokenizer, field))


def test_bad_input_is_refused_and_leaves_no_file(tmp_path):
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    for arguments, said in (
        ([], "give texts"),
        ([tmp_path / "empty.txt", "--problems", 3], "give texts"),
        ([tmp_path / "none.txt"], "none.txt"),
        ([tmp_path / "empty.txt"], "no token"),
        ([tmp_path / "binary.txt"], "not a text file"),
        (["--pair", "smollm2", "--problems", 3], "give FILES"),
        (["--pair", "magic", tmp_path / "empty.txt"], "magic"),
    ):
        done = run("build", *arguments, "--out", tmp_path / "x.store")
        assert done.exit_code == 2 and said in done.output, done.output
    assert not (tmp_path / "x.store").exists()
    assert run("show", tmp_path / "empty.txt").exit_code == 2
