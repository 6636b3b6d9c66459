"""The correction memory: what it counts and forgets, and a file that is whole, its own pair's, or refused.
Follows specdec_lib/csd/ and its command.
Left out: the rule that reads it (test_csd.py).
"""

import json
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock
from test_csd import remembered
from test_decode import lms
from typer.testing import CliRunner

from specdec_lib import cli, zoo
from specdec_lib.csd import calibrate as calibrating
from specdec_lib.csd import file as csd_file
from specdec_lib.csd.calibrate import Stream, calibrate, stream
from specdec_lib.csd.file import MemoryFileError, check_fits, load, memory_of, merge_into, owner_of, save
from specdec_lib.csd.memory import CorrectionMemory, Owner
from specdec_lib.decode import Stops, decode
from specdec_lib.drafters import ModelDrafter
from specdec_lib.methods import build_method
from specdec_lib.pocket.world import problems
from specdec_lib.presets import ModelSpec
from specdec_lib.zoo import Pair


def tiny_pair(target="aa", draft="bb"):
    return Pair("tiny", *lms(), None, Stops(frozenset({3})), {"target": target, "draft": draft})


def taught(*pairs, **more):
    """A memory taught a round of one draft for each pair (x, t*)."""
    memory = CorrectionMemory(**more)
    for x, best in pairs:
        memory.teach([0, x], [-1, 0], {1: "rejected"}, [best, 0], [7, best], 1)
    return memory


# ---- counts ----------------------------------------------------------------------------------------------------


def test_pairs_are_directed_and_rates_are_over_all_times_drafted():
    memory = taught((1, 2), (1, 2), (2, 1), (1, 3))
    memory.teach([0, 1], [-1, 0], {1: "exact"}, [1, 0], [1, 5], 2)
    assert (memory.count(1, 2), memory.count(2, 1), memory.count(3, 1)) == (2, 1, 0)
    assert (memory.rate(1, 2), memory.rate(2, 1), memory.rate(3, 1)) == (0.5, 1.0, 0.0)


def test_rescued_and_rejected_are_counted_apart():
    memory = CorrectionMemory()
    memory.teach([0, 1, 1], [-1, 0, 1], {1: "rescued", 2: "rejected"}, [2, 2, 0], [1, 2], 2)
    assert memory.pairs == {(1, 2): [1, 1]} and memory.drafted == {1: 2}


def test_siblings_at_one_position_all_count_and_nothing_deeper_than_what_was_emitted():
    memory = CorrectionMemory()
    tree = [0, 1, 2, 5], [-1, 0, 0, 2]
    memory.teach(*tree, {1: "rejected", 2: "exact", 3: "rejected"}, [2, 0, 9, 0], [2], 1)
    assert memory.pairs == {(1, 2): [0, 1]} and memory.drafted == {1: 1, 2: 1}


def test_the_least_frequently_used_pair_is_forgotten_of_equals_the_longest_unused():
    assert list(taught((1, 9), (2, 9), (1, 9), (3, 9), cap=2).pairs) == [(1, 9), (3, 9)]
    memory = taught((1, 9), (2, 9), (3, 9), (2, 9), cap=3)
    memory.teach([0, 4], [-1, 0], {1: "rejected"}, [9, 0], [9], 1)
    assert set(memory.pairs) == {(3, 9), (2, 9), (4, 9)}
    assert set(taught((1, 9), (1, 9), (2, 9), (2, 9), (2, 9), (3, 9), cap=2).pairs) == {(2, 9), (3, 9)}
    assert set(taught((1, 9), (1, 9), (2, 9), (3, 9), cap=2).pairs) == {(1, 9), (3, 9)}
    assert set(taught((1, 9), (1, 9), (2, 9), (2, 9), (3, 9), cap=2).pairs) == {(2, 9), (3, 9)}
    assert taught((1, 2), (3, 4), cap=1, contexts_kept=1).contexts == {(3, 4): [[7]]}


def test_frozen_means_read_only_and_a_snapshot_goes_its_own_way():
    memory = taught((1, 2), contexts_kept=1)
    copy = memory.snapshot()
    memory.freeze()
    with pytest.raises(ValueError, match="frozen"):
        memory.teach([0, 1], [-1, 0], {1: "rejected"}, [2, 0], [2], 1)
    with pytest.raises(ValueError, match="frozen"):
        memory.merge(copy)
    assert (copy.pairs, copy.drafted, copy.contexts) == (memory.pairs, memory.drafted, memory.contexts)
    copy.contexts_kept = 2
    copy.teach([0, 1], [-1, 0], {1: "rejected"}, [2, 0], [2], 1)
    assert (memory.count(1, 2), copy.count(1, 2)) == (1, 2) and not copy.frozen
    assert (memory.drafted, copy.drafted) == ({1: 1}, {1: 2}) and memory.contexts == {(1, 2): [[7]]}
    told = CorrectionMemory(texts=4, made={"gamma": 8})
    assert (told.snapshot().texts, told.snapshot().made) == (4, {"gamma": 8})
    assert not told.freeze().snapshot().frozen


def test_contexts_are_kept_only_when_asked():
    assert taught((1, 2), (1, 2)).contexts == {}
    assert taught((1, 2), (1, 2), contexts_kept=1).contexts == {(1, 2): [[7]]}


def test_a_context_is_what_stood_right_before_the_drafted_token():
    """Behind 20 ids 1 is rescued for 2, and 3 rejected for 4 behind it: contexts of 16 ids, without the pair's own."""
    memory, before = CorrectionMemory(contexts_kept=1), list(range(50, 70))
    memory.teach([69, 1, 3], [-1, 0, 1], {1: "rescued", 2: "rejected"}, [2, 4, 0], [*before, 1, 4], 2)
    assert memory.contexts == {(1, 2): [before[-16:]], (3, 4): [[*before[-15:], 1]]}


def test_merging_adds_up_and_keeps_the_cap():
    memory = taught((1, 2), (1, 2), (3, 4), cap=2)
    memory.merge(taught((1, 2), (5, 6), (5, 6)))
    assert memory.pairs == {(1, 2): [0, 3], (5, 6): [0, 2]} and memory.drafted == {1: 3, 3: 1, 5: 2}
    with pytest.raises(ValueError, match="different models"):
        memory.merge(CorrectionMemory(Owner("other")))
    memory = taught((1, 2), contexts_kept=2)
    memory.merge(taught((1, 2), (1, 2), (3, 4), contexts_kept=2))
    assert memory.contexts == {(1, 2): [[7], [7]], (3, 4): [[7]]}
    memory = CorrectionMemory(texts=2)
    memory.merge(CorrectionMemory(texts=3))
    assert memory.texts == 5


def test_a_round_without_the_argmax_is_refused():
    with pytest.raises(ValueError, match="decode the text again"):
        CorrectionMemory().teach([0, 1], [-1, 0], {1: "rejected"}, [], [2], 1)


def test_the_most_frequent_pairs_come_first():
    assert taught((1, 2), (3, 4), (3, 4)).most_frequent(1) == [(3, 4, 0, 2, 1.0)]
    memory = CorrectionMemory(pairs={(1, 2): [0, 2], (3, 4): [2, 1]}, drafted={1: 4, 3: 3})
    assert memory.most_frequent() == [(3, 4, 2, 1, 1.0), (1, 2, 0, 2, 0.5)]


# ---- the file --------------------------------------------------------------------------------------------------


def test_round_trip(tmp_path):
    memory = taught((70_000, 151_935), (5, 4), (1, 2), (70_000, 151_935), contexts_kept=1)
    memory.owner, memory.texts, memory.made = Owner("a", "b", "c"), 3, {"prompts": "these"}
    save(memory.freeze(), tmp_path / "m.json")
    assert load(tmp_path / "m.json") == memory
    assert list(load(tmp_path / "m.json").pairs) == [(5, 4), (1, 2), (70_000, 151_935)], "the longest unused first"
    assert [file.name for file in tmp_path.iterdir()] == ["m.json"]


@pytest.mark.parametrize(
    "harm, words",
    [
        (lambda text: text[: len(text) // 2], "damaged"),
        (lambda text: text.replace("[1, 2, 0, 1]", "[1, 2, 0, 9]"), "another sha256"),
        (lambda text: text.replace('"texts": 0', '"texts": 1'), "another sha256"),
        (lambda text: text.replace('"version": 1', '"version": 2'), "version 2"),
        (lambda text: text.replace("correction memory", "shopping list"), "holds no correction memory"),
        (lambda text: "[]", "holds no correction memory"),
        (lambda text: "\x80", "damaged"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused(tmp_path, harm, words):
    file = tmp_path / "m.json"
    save(taught((1, 2)), file)
    text = file.read_text()
    assert harm(text) != text
    file.write_bytes(harm(text).encode("latin-1"))
    with pytest.raises(MemoryFileError, match=words):
        load(file)


def test_numbers_that_make_no_memory_are_refused_even_with_a_right_sum(tmp_path):
    for wrong in (
        remembered({(1, 2): 3}, drafted={1: 2}),
        CorrectionMemory(drafted={1: -1}),
        CorrectionMemory(texts=0.5),
        CorrectionMemory(texts=True),
    ):
        save(wrong, tmp_path / "m.json")
        with pytest.raises(MemoryFileError, match="no whole memory"):
            load(tmp_path / "m.json")


def test_a_missing_file_says_how_to_make_one(tmp_path):
    with pytest.raises(FileNotFoundError, match="specdec csd calibrate"):
        load(tmp_path / "m.json")


def test_a_memory_of_other_models_or_another_tokenizer_is_refused(pair):
    memory = CorrectionMemory(owner_of(tiny_pair()))
    assert check_fits(memory, tiny_pair()) is memory
    with pytest.raises(MemoryFileError, match="another target"):
        check_fits(memory, tiny_pair(target="cc"))
    with pytest.raises(MemoryFileError, match="another draft"):
        check_fits(memory, tiny_pair(draft="cc"))
    ours = owner_of(pair)
    with pytest.raises(MemoryFileError, match="another tokenizer"):
        check_fits(CorrectionMemory(Owner(ours.target, ours.draft, owner_of(tiny_pair()).tokenizer)), pair)


def test_quantised_whole_and_cut_models_of_the_same_weights_are_different_owners(tmp_path, monkeypatch):
    """The memory of each is found for it alone, whatever is newer; nothing is added behind a plain checksum."""
    monkeypatch.setattr(csd_file, "data_folder", lambda: tmp_path / "data")
    monkeypatch.setattr(csd_file, "memories_folder", lambda: tmp_path)
    forms = ({}, {"draft": "nf4"}, {"draft": "int8"}, {"draft": "layers=2"}, {"draft": "layers=4"}, {"target": "nf4"})
    pairs = [replace(tiny_pair(), forms=form) for form in forms]
    assert (owner_of(pairs[0]).target, owner_of(pairs[0]).draft) == ("aa", "bb")
    assert owner_of(pairs[3]).draft == "bb:layers=2" and len({owner_of(pair) for pair in pairs}) == len(pairs)
    for i, pair in enumerate(pairs):
        save(CorrectionMemory(owner_of(pair), texts=i), tmp_path / f"{i}.json")
    assert [memory_of(pair).texts for pair in pairs] == list(range(len(pairs)))
    with pytest.raises(MemoryFileError, match="another draft .bb:nf4, where tiny has bb:layers=2."):
        check_fits(load(tmp_path / "1.json"), pairs[3])


def test_a_loaded_pair_says_what_was_made_of_its_weights():
    spec = ModelSpec(folder="x")
    cut, small, both = (
        replace(spec, **how) for how in ({"layers": 4}, {"quantise": "nf4"}, {"quantise": "nf4", "layers": 4})
    )
    assert [zoo.form_of(s) for s in (spec, cut, small, both)] == ["", "layers=4", "nf4", "nf4,layers=4"]


def test_a_tokenizers_fingerprint_is_of_its_ids_and_special_tokens():
    def owner(vocab, special):
        tokenizer = SimpleNamespace(get_vocab=lambda: vocab, all_special_ids=special)
        return owner_of(replace(tiny_pair(), tokenizer=tokenizer)).tokenizer

    same, again = owner({"a": 0, "b": 1}, [1, 0]), owner({"b": 1, "a": 0}, [0, 1])
    assert same == again and len({same, owner({"a": 1, "b": 0}, [0, 1]), owner({"a": 0, "b": 1}, [0])}) == 3


def test_a_pairs_memory_is_the_shipped_one_then_the_newest_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(csd_file, "data_folder", lambda: tmp_path / "data")
    monkeypatch.setattr(csd_file, "memories_folder", lambda: tmp_path)
    pair = tiny_pair()
    with pytest.raises(MemoryFileError, match="specdec csd calibrate --pair tiny"):
        memory_of(pair)
    assert memory_of(pair, or_empty=True) == CorrectionMemory(owner_of(pair))
    for i, (name, owner) in enumerate([("z", owner_of(pair)), ("a", owner_of(pair)), ("b", Owner("other"))], start=1):
        save(CorrectionMemory(owner, texts=i), tmp_path / f"{name}.json")
        os.utime(tmp_path / f"{name}.json", (i, i))
    assert memory_of(pair).texts == 2
    (tmp_path / "data" / "pocket").mkdir(parents=True)
    save(CorrectionMemory(owner_of(pair), texts=9), tmp_path / "data" / csd_file.SHIPPED)
    assert memory_of(pair).texts == 9


def test_a_save_that_fails_leaves_the_file_before(tmp_path, monkeypatch):
    file = tmp_path / "m.json"
    save(taught((1, 2)), file)
    broken = taught((1, 2))
    broken.made = {"what": float("nan")}
    with pytest.raises(ValueError):
        save(broken, file)
    monkeypatch.setattr("os.replace", lambda *names: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save(taught((3, 4)), file)
    assert load(file) == taught((1, 2)) and [found.name for found in tmp_path.iterdir()] == ["m.json"]


def _merge_often(file, x):
    for _ in range(15):
        merge_into(file, taught((x, 9), (5, 9)))


def test_two_processes_that_add_to_a_file_lose_nothing(tmp_path):
    file = tmp_path / "m.json"
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_merge_often, args=(file, x)) for x in (1, 2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert load(file).drafted == {1: 15, 2: 15, 5: 30}


# ---- calibration -----------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    """Two texts between saves; three short prompts to a stream unless cut."""
    monkeypatch.setattr(calibrating, "CHUNK", 2)
    return lambda n=5: Stream("five", [[1, 2], [2, 3], [4], [5, 6], [7]][:n])


def test_a_longer_calibration_goes_on_from_the_shorter_and_equals_one_run(tmp_path, small):
    pair = tiny_pair()
    whole = calibrate(pair, small(), tmp_path / "whole.json", 12, gamma=3)
    calibrate(pair, small(3), tmp_path / "parts.json", 12, gamma=3)
    assert load(tmp_path / "parts.json").texts == 3
    assert calibrate(pair, small(), tmp_path / "parts.json", 12, gamma=3) == whole == load(tmp_path / "whole.json")
    assert whole.texts == 5 and whole.pairs


def test_calibration_teaches_what_decoding_the_prompts_one_by_one_does(tmp_path, small):
    """In their order, with the pair's stops and the draft length asked for."""
    pair, told = tiny_pair(), CorrectionMemory()
    for prompt in small().prompts:
        told.teach_trace(decode(pair.target, prompt, 12, ModelDrafter(pair.draft, 3), stops=pair.stops))
    found = calibrate(pair, small(), tmp_path / "m.json", 12, gamma=3)
    assert (list(found.pairs.items()), found.drafted) == (list(told.pairs.items()), told.drafted)
    assert found.made == {"prompts": "five", "max_new_tokens": 12, "gamma": 3}


def test_an_interrupted_calibration_goes_on(tmp_path, small, monkeypatch):
    pair, file, batch = tiny_pair(), tmp_path / "m.json", calibrating.decode_batch

    def interrupted(target, chunk, *arguments, **more):
        chunk = list(chunk)
        if chunk == [[4], [5, 6]]:
            raise KeyboardInterrupt
        return batch(target, chunk, *arguments, **more)

    monkeypatch.setattr(calibrating, "decode_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        calibrate(pair, small(), file, 12)
    assert load(file).texts == 2
    monkeypatch.setattr(calibrating, "decode_batch", batch)
    assert calibrate(pair, small(), file, 12) == calibrate(pair, small(), tmp_path / "whole.json", 12)


def test_a_file_of_another_run_is_refused(tmp_path, small):
    pair, file = tiny_pair(), tmp_path / "m.json"
    calibrate(pair, small(3), file, 12, gamma=3)
    for arguments, words in [
        ((pair, Stream("others", [[1]]), file, 12, 3), "made with prompts five, not others"),
        ((pair, small(), file, 13, 3), "made with max_new_tokens 12, not 13"),
        ((pair, small(), file, 12, 4), "made with gamma 3, not 4"),
        ((pair, small(), file, 12, 3, 2), "made with contexts_kept 0, not 2"),
        ((pair, small(2), file, 12, 3), "already taught 3 texts, more than 2"),
        ((tiny_pair(draft="cc"), small(), file, 12, 3), "another draft"),
    ]:
        with pytest.raises(ValueError, match=words):
            calibrate(*arguments)
    with FileLock(file.with_name(".m.json.lock")), pytest.raises(ValueError, match="another process"):
        calibrate(pair, small(), file, 12, 3)
    save(load(file).freeze(), file)
    with pytest.raises(ValueError, match="m.json is frozen; choose another file"):
        calibrate(pair, small(), file, 12, 3)


def test_a_stream_of_prompts_begins_with_the_shorter_one(pair, tmp_path):
    assert stream(pair, 3, 1).prompts == stream(pair, 5, 1).prompts[:3]
    assert stream(pair, 3, 1).prompts == [pair.prompt(p.question) for p in problems("calibration", 3, 1)]
    assert stream(pair, 3, 1).name != stream(pair, 3, 2).name
    file = tmp_path / "p.txt"
    file.write_text("ana has 4 nuts.\n\nleo has 5 nuts.\n")
    assert stream(pair, 2, file=file).prompts == [pair.prompt("ana has 4 nuts."), pair.prompt("leo has 5 nuts.")]
    (tmp_path / "other.txt").write_text("ana has 4 nuts.\n\nleo has 6 nuts.\n")
    assert stream(pair, 1, file=file).name == stream(pair, 2, file=file).name
    assert stream(pair, 1, file=file).name != stream(pair, 1, file=tmp_path / "other.txt").name
    with pytest.raises(ValueError, match="holds 2 prompts, not 3"):
        stream(pair, 3, file=file)
    with pytest.raises(ValueError, match="give a file of prompts for tiny"):
        stream(tiny_pair(), 2)


# ---- by name, and the command ----------------------------------------------------------------------------------


def test_methods_find_the_shipped_memory_read_only_unless_online(pair):
    never = {pair.tokenizer.eos_token_id, pair.tokenizer.bos_token_id}
    for name in ("csd", "csd-rate", "csd-memory"):
        rule = build_method(name, pair).verifier
        assert rule.memory.frozen and rule.memory.texts == 100 and never <= rule.never
        online = build_method(f"{name}:online=1", pair).verifier
        assert online.learns and online.memory.pairs == rule.memory.pairs
    assert build_method("csd:lambda=inf", pair).verifier.lossless


def test_the_shipped_memory_is_the_pocket_pair_s_own(pair):
    memory = check_fits(memory_of(pair), pair)
    assert memory.made == {"prompts": "calibration, seed 0", "max_new_tokens": 260, "gamma": 8} and not memory.contexts


@pytest.fixture
def run(pair, monkeypatch):
    monkeypatch.setattr(zoo, "load_pair", lambda name: pair)
    return lambda *arguments: CliRunner().invoke(cli.app, [str(a) for a in arguments])


def test_the_command_calibrates_inspects_merges_and_freezes(run, pair, tmp_path):
    file, all_ = tmp_path / "m.json", tmp_path / "all.json"
    made = run("csd", "calibrate", "--n", 2, "--max-new-tokens", 40, "--contexts", 1, "--out", file)
    assert made.exit_code == 0 and "2 texts" in made.stdout, made.output
    memory = load(file)
    shown = run("csd", "inspect", file, "--top", 3, "--json", tmp_path / "i.json")
    assert shown.exit_code == 0, shown.output
    rows = json.loads((tmp_path / "i.json").read_text())["rows"]
    assert [row["ids"] for row in rows] == [[x, best] for x, best, *_ in memory.most_frequent(3)]
    assert rows[0]["draft"] == pair.tokenizer.decode(rows[0]["ids"][:1]) and repr(rows[0]["target"]) in shown.stdout
    assert len(rows[0]["contexts"]) == 1
    assert run("csd", "merge", all_, file, file).exit_code == 0
    assert load(all_).texts == 4 and load(all_).count(*rows[0]["ids"]) == 2 * memory.count(*rows[0]["ids"])
    assert run("csd", "freeze", all_).exit_code == 0 and load(all_).frozen
    refused = run("csd", "merge", all_, file)
    assert refused.exit_code == 2 and "frozen" in refused.stderr
    refused = run("csd", "inspect", tmp_path / "none.json")
    assert refused.exit_code == 2 and "none.json" in refused.stderr


def test_two_models_of_one_s_own_get_a_memory_that_is_found_by_their_checksums(run, pair, monkeypatch, tmp_path):
    monkeypatch.setattr(zoo, "load_custom", lambda target, draft: pair)
    monkeypatch.setattr(csd_file, "memories_folder", lambda: tmp_path / "memories")
    monkeypatch.setattr(csd_file, "SHIPPED", Path("none.json"))
    (tmp_path / "prompts.txt").write_text("leo has 43 nuts. leo gives sam 12 nuts. how many nuts does leo have?\n")
    own = ("--target", "a", "--draft", "b")
    made = run("csd", "calibrate", *own, "--prompts", tmp_path / "prompts.txt", "--n", 1, "--max-new-tokens", 20)
    assert made.exit_code == 0, made.output
    (file,) = (tmp_path / "memories").glob("[!.]*.json")
    assert file.stem == f"{pair.checksums['target'][:12]}-{pair.checksums['draft'][:12]}"
    assert memory_of(pair) == load(file) and load(file).texts == 1
    assert run("csd", "inspect", file, *own).exit_code == 0
    refused = run("csd", "inspect", file, "--target", "a")
    assert refused.exit_code == 2 and "go together" in refused.stderr
