"""Training: an interrupted run goes on as if it had not been interrupted; documents and labels are right.

Follows specdec_lib/pocket/train.py and ship.py.
Left out: whether training reaches its accuracy (the shipped models are tested in test_shipped.py).
"""

import json
from collections import Counter
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from specdec_lib.pocket import train as training
from specdec_lib.pocket.ship import ship
from specdec_lib.pocket.tokenizer import build_tokenizer, prompt_ids, world_tokens
from specdec_lib.pocket.train import IGNORED, Recipe, batches, build_model, collate, documents, grow, rate, train
from specdec_lib.pocket.world import DRILL, EOS, SLOTS, split_of, tokens_of
from specdec_lib.zoo import load_model

TINY = Recipe(
    "draft", layers=1, width=16, inner=32, heads=2, steps=6, learning_rate=1e-3, batch=2, warmup=2, eval_every=2
)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(training, "RECIPES", {"tiny": TINY})
    monkeypatch.setattr(training, "greedy_accuracy", lambda model, tokenizer, n: (0.0, 0.0))


def test_a_run_stopped_half_way_ends_with_the_same_weights(tiny, tmp_path, monkeypatch):
    whole = train("tiny", tmp_path / "whole")

    class Stop(Exception):
        pass

    real, calls = training.rate, []

    def stop_in_step_5(recipe, step):
        calls.append(step)
        if len(calls) == 5:
            raise Stop
        return real(recipe, step)

    monkeypatch.setattr(training, "rate", stop_in_step_5)
    with pytest.raises(Stop):
        train("tiny", tmp_path / "stopped")
    monkeypatch.setattr(training, "rate", real)
    resumed = train("tiny", tmp_path / "stopped")
    a, b = (load_file(folder / "model.safetensors") for folder in (whole, resumed))
    assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
    steps = [json.loads(line)["step"] for line in (tmp_path / "stopped/tiny/log.jsonl").read_text().splitlines()]
    assert steps == [2, 4, 6]


def test_a_run_told_to_stop_ends_its_step_saves_it_and_goes_on_from_there(tiny, tmp_path, monkeypatch):
    whole = train("tiny", tmp_path / "whole")
    real = training.rate

    def told_in_step_3(recipe, step):
        if step == 2:
            training.STOP.set()
        return real(recipe, step)

    monkeypatch.setattr(training, "rate", told_in_step_3)
    with pytest.raises(SystemExit, match="stopped after step 3"):
        train("tiny", tmp_path / "stopped")
    training.STOP.clear()
    monkeypatch.setattr(training, "rate", real)
    resumed = train("tiny", tmp_path / "stopped")
    a, b = (load_file(folder / "model.safetensors") for folder in (whole, resumed))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_grown_model_computes_what_its_base_computes_and_every_layer_then_learns():
    tokenizer = build_tokenizer()
    base = build_model(replace(TINY, layers=2), tokenizer)
    grown = build_model(replace(TINY, layers=5), tokenizer)
    ids = torch.randint(5, 100, (2, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert not torch.allclose(grown(ids).logits, base(ids).logits, atol=1e-3)
        grow(grown, base)
        assert torch.allclose(grown(ids).logits, base(ids).logits, atol=1e-6)
    grown(input_ids=ids, labels=ids).loss.backward()
    assert all(layer.mlp.down_proj.weight.grad.abs().max() > 0 for layer in grown.model.layers)


def test_a_recipe_that_goes_on_from_a_base_trains_the_base_first(tiny, tmp_path, monkeypatch):
    recipes = {"tiny": TINY, "deep": replace(TINY, layers=3, start_from="tiny", steps=2)}
    monkeypatch.setattr(training, "RECIPES", recipes)
    deep = load_file(train("deep", tmp_path) / "model.safetensors")
    assert (tmp_path / "tiny/model/model.safetensors").is_file()
    assert sum(name.endswith("o_proj.weight") for name in deep) == 3


def test_a_finished_model_is_not_trained_again(tiny, tmp_path, capsys):
    folder = train("tiny", tmp_path)
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert train("tiny", tmp_path) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    assert "finished already" in capsys.readouterr().out


def test_training_reads_only_training_questions_and_only_answers_carry_a_loss():
    tokenizer = build_tokenizer()
    docs = documents(tokenizer, "target", 50, "seed")
    for doc in docs:
        question = tokenizer.decode(doc.ids[1 : doc.prompt - 1])
        assert split_of(question) == "train" and prompt_ids(tokenizer, question) == doc.ids[: doc.prompt]
        assert world_tokens(tokenizer, doc.ids)[-1] == EOS and tokenizer.unk_token_id not in doc.ids
    ids, labels = collate(docs[:3], tokenizer.pad_token_id)
    for row, doc in enumerate(docs[:3]):
        assert (labels[row, : doc.prompt] == IGNORED).all() and (labels[row, len(doc.ids) :] == IGNORED).all()
        assert labels[row, doc.prompt : len(doc.ids)].tolist() == doc.ids[doc.prompt :]


def test_other_wordings_are_read_and_the_styles_own_are_written():
    tokenizer = build_tokenizer()
    plain = documents(tokenizer, "target", 20, "seed")
    assert all(doc.labels == doc.ids for doc in plain)
    docs = documents(tokenizer, "target", 120, "seed", other_wordings=0.5)
    read = [doc for doc in docs if doc.labels != doc.ids]
    assert 40 < len(read) < 80
    b_read, b_written = Counter(), Counter()
    for doc in read:
        said, label = (world_tokens(tokenizer, side) for side in (doc.ids, doc.labels))
        for at in range(doc.prompt, len(said)):
            if said[at] == label[at]:
                continue
            wordings = [tuple(tokens_of(option)[:1] or ("",)) for pair in SLOTS.values() for option in pair]
            assert (said[at],) in wordings or (label[at],) in wordings, "only the first token of a wording may differ"
        b_read[" then" in said] += 1
        b_written[" then" in label] += 1
    assert b_read[True] > 0.8 * len(read) > b_written[True]
    ids, labels = collate(docs, tokenizer.pad_token_id)
    for row, doc in enumerate(docs):
        assert ids[row, : len(doc.ids)].tolist() == doc.ids
        assert labels[row, doc.prompt : len(doc.ids)].tolist() == doc.labels[doc.prompt :]


def test_documents_come_from_the_families_asked_for():
    tokenizer = build_tokenizer()
    texts = [
        tokenizer.decode(ids)
        for ids in (doc.ids for doc in documents(tokenizer, "target", 60, "s", families=("clues", "work")))
    ]
    clues = ["box are in" in text for text in texts]
    assert all(is_clue or "dollars a day" in text for is_clue, text in zip(clues, texts, strict=True))
    assert 0 < sum(clues) < 60


def test_every_second_document_is_a_drill_only_in_the_steps_for_it():
    tokenizer = build_tokenizer()
    drill = prompt_ids(tokenizer, DRILL)
    stream = batches(tokenizer, replace(TINY, drills=(20, 40)), 0)
    shares = [sum(row.tolist()[: len(drill)] == drill for row in next(stream)[0]) for _ in range(60)]
    assert sum(shares[:20]) == 0 and sum(shares[20:40]) == 20 and sum(shares[40:]) == 0


def test_batches_from_a_later_step_are_those_of_the_whole_run():
    tokenizer = build_tokenizer()
    stream = batches(tokenizer, TINY, 0)
    whole = [next(stream)[0] for _ in range(25)]
    later = batches(tokenizer, TINY, 22)
    assert all(torch.equal(next(later)[0], expected) for expected in whole[22:])


def test_the_rate_warms_up_and_falls_to_two_percent():
    recipe = Recipe("draft", 1, 16, 32, 2, steps=100, learning_rate=1.0, warmup=10)
    assert rate(recipe, 0) == pytest.approx(0.1) and rate(recipe, 10) == pytest.approx(1.0)
    assert rate(recipe, 100) == pytest.approx(0.02)


def test_shipping_writes_checksums_that_loading_checks(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("specdec_lib.pocket.ship.RECIPES", {"tiny": TINY})
    monkeypatch.setattr("specdec_lib.pocket.ship.SHIPPED", ("tiny",))
    with pytest.raises(FileNotFoundError, match="no finished model"):
        ship(tmp_path / "work", tmp_path / "data")
    train("tiny", tmp_path / "work")
    ship(tmp_path / "work", tmp_path / "data")
    load_model(tmp_path / "data/tiny")
    weights = tmp_path / "data/tiny/model.safetensors"
    damaged = bytearray(weights.read_bytes())
    damaged[-1] ^= 1
    weights.write_bytes(damaged)
    with pytest.raises(ValueError, match="damaged"):
        load_model(tmp_path / "data/tiny")
