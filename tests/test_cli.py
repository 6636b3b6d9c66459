"""The command line: what goes to which stream and file, exit statuses, one line for every error, and no wait for torch.

Follows specdec_lib/cli/, doctor.py, machine.py and provenance.py.
Left out: how a trace is drawn (test_render.py), and what evaluate measures.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from specdec_lib import cli, doctor, machine, methods, provenance, zoo
from specdec_lib.decode import Session, decode
from specdec_lib.drafters import ModelDrafter
from specdec_lib.model import TableModel
from specdec_lib.sampling import LogitsError
from specdec_lib.theory import best_gamma_from_times
from specdec_lib.trace import Trace

QUESTION = "ana earns 10 dollars a day. ana works 4 days. sam gives ana 24 dollars. how many dollars does ana have?"
OTHER = "leo has 43 nuts. leo gives sam 12 nuts. how many nuts does leo have?"
FEW = ["--max-new-tokens", "12"]


@pytest.fixture(scope="module")
def pair():
    return zoo.load_pair("pocket")


@pytest.fixture
def run(pair, monkeypatch):
    """Call the command line in this process, on a pair that is loaded once: run("generate", "...") -> result."""
    monkeypatch.setattr(zoo, "load_pair", lambda name: zoo.pair_sources(name) and pair)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def call(*arguments, **more):
        return CliRunner().invoke(cli.app, [str(a) for a in arguments], **more)

    return call


def in_a_process(*arguments, **more):
    return subprocess.run(
        [sys.executable, "-m", "specdec_lib", *map(str, arguments)], capture_output=True, text=True, timeout=120, **more
    )


def one_error_line(result, *words):
    """stderr is one line that says specdec and holds these words; nothing on stdout."""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("specdec: "), result.stderr
    assert [word for word in words if word not in lines[0]] == []
    assert result.stdout == ""


# ---- generate --------------------------------------------------------------------------------------------------


def test_a_text_goes_to_stdout_plain_and_what_is_said_about_it_to_stderr(run, pair):
    result = run("generate", QUESTION, *FEW)
    trace = decode(pair.target, pair.prompt(QUESTION), 12, ModelDrafter(pair.draft, 8), stops=pair.stops)
    assert result.exit_code == 0
    assert result.stdout == pair.text(trace.ids) + "\n"
    assert "lossless:gamma=8: lossless" in result.stderr and "MAT" in result.stderr


def test_json_holds_provenance_and_a_row_a_prompt_and_the_traces_replay_to_the_rows(run, pair, tmp_path):
    prompts, results, traces = tmp_path / "p.txt", tmp_path / "r.json", tmp_path / "t.jsonl"
    prompts.write_text(f"{QUESTION}\n\n{OTHER}\n")
    result = run("generate", "--file", prompts, "--json", results, "--trace", traces, "--seed", 5, "--temperature", 1)
    assert result.exit_code == 0, result.stderr
    found = json.loads(results.read_text())
    origin, rows = found["provenance"], found["rows"]
    assert set(origin) == {
        "git_sha", "dirty", "date", "versions", "device", "threads", "dtype", "arguments", "seed",
        "checksums", "dtypes", "note",
    }  # fmt: skip
    assert origin["seed"] == 5 and origin["arguments"]["temperature"] == 1 and origin["arguments"]["pair"] == "pocket"
    assert [row["prompt"] for row in rows] == [QUESTION, OTHER]
    loaded = Trace.load_all(traces)
    assert [t.ids for t in loaded] == [row["ids"] for row in rows]
    for row, trace in zip(rows, loaded, strict=True):
        assert row["text"] == pair.text(trace.ids) and row["lossless"] is True and row["reason"] in ("eos", "length")
        assert row["mat"] == len(row["ids"]) / row["rounds"] and 0 <= row["kept"] <= 8 and 0 <= row["alpha"] <= 1
        assert trace.method == row["method"] == "lossless:gamma=8" and trace.settings == {"temperature": 1.0}
        assert trace.provenance["seed"] == row["seed"]
    assert result.stdout == "".join(row["text"] + "\n" for row in rows)


def ids_of(run, folder, *arguments):
    """The ids that generate writes for these arguments."""
    result = run("generate", *arguments, *FEW, "--json", folder / "ids.json")
    assert result.exit_code == 0, result.stderr
    return [row["ids"] for row in json.loads((folder / "ids.json").read_text())["rows"]]


def test_the_same_seed_gives_the_same_text_and_prompts_do_not_depend_on_their_neighbours(run, tmp_path):
    prompts = tmp_path / "p.txt"
    prompts.write_text(f"{OTHER}\n{QUESTION}\n")
    hot = ["--temperature", 1.5]
    first, second = ids_of(run, tmp_path, "--file", prompts, *hot, "--seed", 3)
    assert ids_of(run, tmp_path, QUESTION, *hot, "--seed", 4) == [second]
    assert ids_of(run, tmp_path, OTHER, *hot, "--seed", 3) == [first]
    assert any(ids_of(run, tmp_path, OTHER, *hot, "--seed", seed) != [first] for seed in (4, 5, 6))


def test_a_prompt_a_chat_a_jsonl_entry_and_standard_input_are_the_same_prompt(run, tmp_path):
    chat = [{"role": "user", "content": QUESTION}]
    (tmp_path / "c.jsonl").write_text(json.dumps({"messages": chat}) + "\n" + json.dumps({"prompt": QUESTION}) + "\n")
    (tmp_path / "c.json").write_text(json.dumps({"messages": chat}, indent=2))
    plain = ids_of(run, tmp_path, QUESTION)
    assert ids_of(run, tmp_path, "--file", tmp_path / "c.jsonl") == plain * 2
    assert ids_of(run, tmp_path, "--file", tmp_path / "c.json") == plain
    result = run("generate", "-", *FEW, "--json", tmp_path / "stdin.json", input=QUESTION + "\n")
    assert result.exit_code == 0
    assert json.loads((tmp_path / "stdin.json").read_text())["rows"][0]["ids"] == plain[0]


def test_raw_prompts_skip_the_chat_template(run, pair, tmp_path):
    run("generate", "--raw", "first, ana earns", *FEW, "--trace", tmp_path / "raw.jsonl")
    run("generate", "first, ana earns", *FEW, "--trace", tmp_path / "chat.jsonl")
    raw, chat = (Trace.load(tmp_path / f"{name}.jsonl").prompt for name in ("raw", "chat"))
    assert chat == [*raw, pair.tokenizer.convert_tokens_to_ids("<answer>")]


def test_settings_and_stops_reach_the_loop(run, pair, tmp_path):
    (whole,) = ids_of(run, tmp_path, QUESTION)
    word = pair.text(whole[:3]).split()[-1]
    result = run("generate", QUESTION, "--stop", word, "--json", tmp_path / "s.json")
    row = json.loads((tmp_path / "s.json").read_text())["rows"][0]
    assert row["reason"] == "stop" and row["text"].endswith(word) and result.stdout == row["text"] + "\n"
    assert ids_of(run, tmp_path, QUESTION, "--temperature", 2, "--top-k", 1) == [whole]
    assert ids_of(run, tmp_path, QUESTION, "--repetition-penalty", 5) != [whole]


def test_methods_that_are_lossless_give_the_target_s_own_greedy_text(run, tmp_path):
    plain = ids_of(run, tmp_path, QUESTION, "--method", "autoregressive")
    assert ids_of(run, tmp_path, QUESTION, "--method", "greedy:gamma=3") == plain
    assert ids_of(run, tmp_path, QUESTION, "--method", "lossless:gamma=5") == plain


def test_a_lossy_method_says_so(run, tmp_path):
    result = run("generate", QUESTION, *FEW, "--method", "lenience:lenience=0.1", "--json", tmp_path / "l.json")
    assert "LOSSY" in result.stderr
    assert json.loads((tmp_path / "l.json").read_text())["rows"][0]["lossless"] is False


def test_colours_appear_in_a_terminal_only_and_not_under_no_color(run):
    plain = run("generate", QUESTION, *FEW)
    assert "\x1b" not in plain.stdout and "accepted rescued recovered bonus" not in plain.stderr
    coloured = run("generate", QUESTION, *FEW, env={"FORCE_COLOR": "1"})
    assert "\x1b[" in coloured.stdout and "recovered" in coloured.stderr
    refused = run("generate", QUESTION, *FEW, env={"FORCE_COLOR": "1", "NO_COLOR": "1"})
    assert refused.stdout == plain.stdout


def test_unknown_words_are_named_and_known_ones_are_not(run):
    warned = run("generate", "Ana has 3 zebras. how many pens does ana have?", *FEW)
    assert warned.exit_code == 0
    assert "'Ana', 'zebras.'" in warned.stderr and "<unk>" in warned.stderr and "'has'" not in warned.stderr
    assert "warning" not in run("generate", QUESTION, *FEW).stderr


def test_settings_that_change_nothing_at_temperature_0_are_noted(run):
    assert "temperature 0" in run("generate", QUESTION, *FEW, "--top-p", 0.9).stderr
    assert "note" not in run("generate", QUESTION, *FEW, "--top-p", 0.9, "--temperature", 1).stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["PROMPT", "--file"]),
        ([QUESTION, "--file", "x.txt"], ["PROMPT", "--file"]),
        (["--file", "missing.txt"], ["missing.txt", "No such file"]),
        (["--file", "."], [".", "directory"]),
        (["--file", "empty.txt"], ["empty.txt", "no prompt"]),
        (["--file", "binary.txt"], ["binary.txt", "not a text file"]),
        (["--file", "broken.jsonl"], ["broken.jsonl", "not JSONL"]),
        (["--file", "number.jsonl"], ["number.jsonl, entry 0", "messages"]),
        (["--file", "role.jsonl"], ["role.jsonl, entry 0", "role and a content"]),
        (["--file", "chat.jsonl", "--raw"], ["--raw", "chat template"]),
        ([""], ["prompt", "empty"]),
        ([QUESTION, "--method", "magic"], ["unknown method 'magic'", "lossless"]),
        ([QUESTION, "--method", "lossless:delta=1"], ["unknown knob 'delta'", "gamma"]),
        ([QUESTION, "--method", "lossless:gamma=2.5"], ["gamma", "whole number", "2.5"]),
        ([QUESTION, "--method", "lossless:gamma=-1"], ["gamma", "-1"]),
        ([QUESTION, "--pair", "nobody"], ["unknown pair 'nobody'", "pocket"]),
        ([QUESTION, "--temperature", "-1"], ["temperature", "-1"]),
        ([QUESTION, "--temperature", "1", "--top-k", "0"], ["top_k", "0"]),
        ([QUESTION, "--temperature", "1", "--top-p", "7"], ["top_p", "7"]),
        ([QUESTION, "--repetition-penalty", "-2"], ["penalty", "-2"]),
        ([QUESTION, "--stop", ""], ["stop string is empty"]),
        ([QUESTION, "--json", "no/such/folder.json"], ["no/such/folder.json", "not there"]),
        ([QUESTION, "--trace", "."], ["cannot write .", "folder"]),
        (["leo " * 600], ["prompt 0", "context"]),
    ],
)
def test_bad_input_is_one_line_that_names_it_and_status_2(run, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "broken.jsonl").write_text("{")
    (tmp_path / "number.jsonl").write_text("3")
    (tmp_path / "role.jsonl").write_text('{"messages": [{"content": "leo"}]}')
    (tmp_path / "chat.jsonl").write_text('{"messages": [{"role": "user", "content": "leo"}]}')
    result = run("generate", *arguments)
    assert result.exit_code == 2
    one_error_line(result, *words)


def test_options_that_do_not_exist_or_do_not_parse_are_status_2(run):
    for wrong in (["--seed", "x"], ["--lossy"], ["--max-new-tokens", "-1"]):
        result = run("generate", QUESTION, *wrong)
        assert result.exit_code == 2 and wrong[0] in result.stderr


def test_a_method_that_does_not_fit_the_temperature_is_status_2(run):
    result = run("generate", QUESTION, "--method", "greedy", "--temperature", 1)
    assert result.exit_code == 2 and "temperature 0 only" in result.stderr and "Traceback" not in result.stderr


def test_a_model_that_fails_is_status_1_and_what_was_made_before_is_kept(run, monkeypatch, tmp_path):
    rounds = Session.rounds

    def failing(session, max_new_tokens):
        for i, r in enumerate(rounds(session, max_new_tokens)):
            if i == 2:
                raise LogitsError("the target's logits cannot be used")
            yield r

    monkeypatch.setattr(Session, "rounds", failing)
    result = run("generate", QUESTION, "--json", tmp_path / "r.json", "--method", "lossless:gamma=1")
    assert result.exit_code == 1 and "specdec: the target's logits cannot be used" in result.stderr
    assert len(json.loads((tmp_path / "r.json").read_text())["rows"][0]["ids"]) >= 2


def test_a_bug_keeps_its_traceback(run, monkeypatch):
    def broken(*arguments):
        raise RuntimeError("a bug")

    monkeypatch.setattr(methods, "build_method", broken)
    assert isinstance(run("generate", QUESTION).exception, RuntimeError)


def test_an_interrupt_keeps_the_whole_rounds_and_is_status_130(run, monkeypatch, pair, tmp_path):
    rounds = Session.rounds

    def interrupted(session, max_new_tokens):
        for i, r in enumerate(rounds(session, max_new_tokens)):
            if i == 3:
                raise KeyboardInterrupt
            yield r

    (tmp_path / "p.txt").write_text(f"{QUESTION}\n{OTHER}\n")
    monkeypatch.setattr(Session, "rounds", interrupted)
    files = ["--json", tmp_path / "r.json", "--trace", tmp_path / "t.jsonl"]
    result = run("generate", "--file", tmp_path / "p.txt", "--method", "lossless:gamma=2", *files)
    assert result.exit_code == 130
    (row,) = json.loads((tmp_path / "r.json").read_text())["rows"]
    (trace,) = Trace.load_all(tmp_path / "t.jsonl")
    assert row["reason"] == trace.reason == "interrupted"
    assert row["ids"] == trace.ids and len(trace.rounds) >= 3
    assert result.stdout == row["text"] + "\n" and "ended by interrupted" in result.stderr


def test_ctrl_c_in_a_real_process_saves_what_there_is(tmp_path):
    (tmp_path / "p.txt").write_text(f"{QUESTION}\n" * 500)
    arguments = ["generate", "--file", "p.txt", "--json", "r.json", "--trace", "t.jsonl"]
    process = subprocess.Popen(
        [sys.executable, "-m", "specdec_lib", *arguments],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        process.stdout.readline()  # the first text is whole
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130 and said.strip().endswith("specdec: stopped") and "Traceback" not in said
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert 1 <= len(rows) < 500 and rows[0]["reason"] != "interrupted"
    assert [t.ids for t in Trace.load_all(tmp_path / "t.jsonl")] == [row["ids"] for row in rows]


# ---- show ------------------------------------------------------------------------------------------------------


@pytest.fixture
def traces(run, tmp_path):
    """A file of two traces."""
    (tmp_path / "p.txt").write_text(f"{QUESTION}\n{OTHER}\n")
    run("generate", "--file", tmp_path / "p.txt", *FEW, "--trace", tmp_path / "t.jsonl")
    return tmp_path / "t.jsonl"


def test_show_prints_every_round_and_the_text(run, pair, traces):
    loaded = Trace.load_all(traces)
    for index, trace in enumerate(loaded):
        result = run("show", traces, "--index", index)
        assert result.exit_code == 0 and "\x1b" not in result.stdout
        assert pair.text(trace.ids) in result.stdout
        assert result.stdout.count("\nround ") == len(trace.rounds)
        assert result.stdout.count("rejected") == sum(list(r.outcomes.values()).count("rejected") for r in trace.rounds)


def test_show_writes_a_page(run, traces, tmp_path):
    result = run("show", traces, "--html", tmp_path / "page.html")
    assert result.exit_code == 0 and result.stdout == ""
    page = (tmp_path / "page.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and page.count("<section") == len(Trace.load(traces).rounds)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: "", ["no whole trace"]),
        (lambda text: "hello", ["line 1", "not part of a trace"]),
        (lambda text: "\n".join(text.splitlines()[:-1]), ["no whole trace"]),
        (lambda text: text.replace('"schema": 1', '"schema": 99'), ["line 1", "schema"]),
        (lambda text: "\n".join(text.splitlines()[:1] + text.splitlines()[2:]), ["rounds"]),
        (lambda text: text.replace('"parents": [-1, 0', '"parents": [-1, 7'), ["line 2", "fit together"]),
        (lambda text: text.replace('"emitted": [', '"emitted": [5, '), ["line 2", "fit together"]),
        (lambda text: text.replace('"prompt": [', '"prompt": [99999, '), ["99999", "--pair"]),
    ],
)
def test_show_refuses_a_damaged_trace_in_one_line(run, traces, tmp_path, damage, words):
    (tmp_path / "bad.jsonl").write_text(damage(traces.read_text()))
    result = run("show", tmp_path / "bad.jsonl")
    assert result.exit_code == 2
    one_error_line(result, "bad.jsonl", *words)


def test_show_refuses_what_is_not_there(run, traces, tmp_path):
    for arguments, words in [
        ([tmp_path / "none.jsonl"], ["none.jsonl", "No such file"]),
        ([traces, "--index", 2], ["no trace 2", "holds 2"]),
        ([traces, "--pair", "nobody"], ["unknown pair 'nobody'"]),
    ]:
        result = run("show", *arguments)
        assert result.exit_code == 2
        one_error_line(result, *words)


# ---- eval, methods, doctor -------------------------------------------------------------------------------------


def test_eval_prints_the_table_and_writes_what_was_measured(run, pair, monkeypatch, tmp_path):
    from specdec_lib import evaluate

    asked = []

    def measured(*arguments, progress):
        asked.append(arguments)
        return {"provenance": {"seed": 7}, "rows": [{"model": "target"}], "alpha": 0.5}

    monkeypatch.setattr(evaluate, "evaluate", measured)
    monkeypatch.setattr(evaluate, "table", lambda result: f"alpha {result['alpha']}")
    result = run("eval", "--n", 3, "--seed", 7, "--json", tmp_path / "e.json")
    assert result.exit_code == 0 and result.stdout == "alpha 0.5\n"
    assert asked == [(pair, 3, 7)]
    assert json.loads((tmp_path / "e.json").read_text()) == {
        "provenance": {"seed": 7}, "rows": [{"model": "target"}], "alpha": 0.5,
    }  # fmt: skip


def test_methods_lists_every_method_with_its_knobs(run):
    text = run("methods").stdout
    for name, (what, knobs, _) in methods.METHODS.items():
        assert f"{name} " in text and what in text
        assert all(f"{knob}={value:g}" in text for knob, value in knobs.items())


@pytest.fixture
def quick_doctor(monkeypatch):
    """Without the import of a large package, and with a small block of memory."""
    monkeypatch.setattr(doctor, "import_error", lambda name: None)
    monkeypatch.setattr(doctor, "bandwidth_bytes_per_s", lambda device: machine.bandwidth_bytes_per_s(device, 2**20, 1))


def test_doctor_says_ready_and_measures(run, pair, monkeypatch, quick_doctor, tmp_path):
    monkeypatch.setattr(doctor, "load_pair", lambda name: pair)
    result = run("doctor", "--json", tmp_path / "d.json")
    assert result.exit_code == 0, result.stdout
    assert result.stdout.strip().splitlines()[-1].startswith("READY")
    found = json.loads((tmp_path / "d.json").read_text())
    assert list(found["pass_s"]) == ["1", "2", "4", "8", "16", "32", "64"]
    assert all(seconds > 0 for seconds in found["pass_s"].values())
    assert found["floor_s"] == found["weight_bytes"] / found["bandwidth_bytes_per_s"]
    times = {int(k): seconds for k, seconds in found["pass_s"].items()}
    assert found["nearly_free_k"] == machine.nearly_free(times)
    longest = [best_gamma_from_times([float(a)] * 63, times, found["draft_s"]) for a in found["best_gamma"]]
    assert list(found["best_gamma"].values()) == longest == sorted(longest)
    assert found["weight_bytes"] == zoo.parameter_bytes(pair.target.model)
    assert {row["state"] for row in found["rows"]} <= {"ok", "note"}


def sha256(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def damaged(folder):
    with (folder / "pocket/target/model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))


def missing(folder):
    (folder / "pocket/draft/model.safetensors").unlink()


def gone(folder):
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("harm", "words"), [(damaged, "damaged"), (missing, "no weights"), (gone, "data folder"), (None, "READY")]
)
def test_doctor_and_generate_fail_clearly_without_whole_weights(monkeypatch, quick_doctor, tmp_path, harm, words):
    data = tmp_path / "data"
    shutil.copytree(zoo.data_folder() / "pocket", data / "pocket")
    shutil.copy(zoo.data_folder() / "presets.toml", data)
    sums = [
        f"{sha256(data / 'pocket' / name / 'model.safetensors')}  {name}/model.safetensors\n"
        for name in ("target", "draft")
    ]
    (data / "pocket" / "SHA256SUMS").write_text("".join(sums))
    monkeypatch.setenv("SPECDEC_DATA", str(data))
    if harm is not None:
        harm(data)
    examined = CliRunner().invoke(cli.app, ["doctor"])
    assert examined.exit_code == (0 if harm is None else 1)
    assert words in examined.stdout
    assert examined.stdout.strip().splitlines()[-1].startswith("READY" if harm is None else "NOT READY")
    generated = CliRunner().invoke(cli.app, ["generate", QUESTION, *FEW])
    assert generated.exit_code == (0 if harm is None else 1)
    if harm is not None:
        one_error_line(generated, words)


def test_doctor_names_missing_and_broken_packages_and_their_use(monkeypatch):
    known = machine.package_version
    monkeypatch.setattr(machine, "package_version", lambda name: None if name == "accelerate" else known(name))
    monkeypatch.setattr(doctor, "import_error", lambda name: "OSError: undefined symbol: cquantize")
    found = {f.what: f for f in doctor._packages()}
    assert found["accelerate"].state == found["bitsandbytes"].state == doctor.NOTE
    assert "4 or 8 bits" in found["accelerate"].says and "pip install accelerate" in found["accelerate"].says
    assert "undefined symbol" in found["bitsandbytes"].says
    monkeypatch.setattr(machine, "package_version", lambda name: None if name == "transformers" else known(name))
    assert doctor._packages()[0] == doctor.Finding(
        "versions", doctor.PROBLEM, "not installed: transformers; run make course, which sets up first"
    )


def test_doctor_refuses_an_unknown_pair(run):
    result = run("doctor", "--pair", "nobody")
    assert result.exit_code == 2
    one_error_line(result, "unknown pair 'nobody'")


# ---- machine and provenance ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "free"),
    [
        ({1: 4.0, 2: 4.0, 4: 5.0, 8: 5.1}, 4),
        ({1: 4.0, 2: 5.1, 4: 4.0}, 1),  # a dip later on is noise, not a gift
        ({1: 4.0}, 1),
        ({8: 4.1, 1: 4.0}, 8),
    ],
)
def test_nearly_free_ends_where_a_pass_costs_more_than_a_quarter_more(times, free):
    assert machine.nearly_free(times) == free


def test_a_broken_import_is_told_by_its_last_line():
    assert machine.import_error("json") is None
    assert machine.import_error("no_such_package_here") == (
        "ModuleNotFoundError: No module named 'no_such_package_here'"
    )


def test_pass_times_measures_every_k_on_the_same_context_and_leaves_the_model_empty():
    scored = []

    class Watched(TableModel):
        def score(self, tokens, parents, needs=frozenset()):
            scored.append((self.length, len(tokens)))
            return super().score(tokens, parents, needs)

    model = Watched.constant([0.5, 0.5], context=20)
    times = machine.pass_times(model, ks=(1, 4), context=16, repeats=3)
    assert list(times) == [1, 4] and all(seconds > 0 for seconds in times.values())
    assert scored == [(16, 1), (16, 4)] * 4  # one round to warm up
    assert model.length == 0
    with pytest.raises(ValueError, match=r"16 \+ 5 tokens do not fit"):
        machine.pass_times(model, ks=(5,), context=16)
    with pytest.raises(ValueError, match="at least 1"):
        machine.pass_times(model, ks=(0,), context=1)


def test_pass_times_are_medians_without_the_first_round(monkeypatch):
    clock = iter([0, 100, 0, 5, 0, 1, 0, 3])  # begin and end of every pass, the first one slow
    monkeypatch.setattr(machine, "now", lambda device: next(clock))
    assert machine.pass_times(TableModel.constant([0.5, 0.5]), ks=(1,), context=2, repeats=3) == {1: 3}


def test_git_state_is_the_projects_own(tmp_path):
    def git(*arguments):
        subprocess.run(["git", "-C", tmp_path, *arguments], check=True, capture_output=True)

    assert provenance.git_state(tmp_path) == (None, None)
    git("init")
    (tmp_path / "a").write_text("1")
    git("add", "a")
    git("-c", "user.name=n", "-c", "user.email=e", "commit", "-m", "m")
    sha, dirty = provenance.git_state(tmp_path)
    assert len(sha) == 40 and dirty is False
    (tmp_path / "a").write_text("2")
    assert provenance.git_state(tmp_path) == (sha, True)
    (tmp_path / "below").mkdir()
    assert provenance.git_state(tmp_path / "below") == (None, None)  # someone else's checkout around us


def test_results_are_json_that_everybody_reads(tmp_path):
    with pytest.raises(ValueError):
        provenance.write_results(tmp_path / "r.json", {}, [{"alpha": float("nan")}])
    provenance.write_results(tmp_path / "inf.json", {}, [{"settings": {"lambda": float("inf"), "tau": 0.1}}])
    assert json.loads((tmp_path / "inf.json").read_text())["rows"] == [{"settings": {"lambda": "inf", "tau": 0.1}}]
    provenance.write_results(tmp_path / "r.json", {"seed": 1}, [{"alpha": None}], c=0.2)
    assert json.loads((tmp_path / "r.json").read_text()) == {
        "provenance": {"seed": 1},
        "rows": [{"alpha": None}],
        "c": 0.2,
    }


# ---- as a process ----------------------------------------------------------------------------------------------


def test_help_names_the_commands_and_does_not_wait_for_torch():
    script = (
        "import runpy, sys\n"
        "sys.argv = ['specdec', '--help']\n"
        "try:\n    runpy.run_module('specdec_lib', run_name='__main__')\n"
        "except SystemExit as end:\n    print(end.code, 'torch' in sys.modules, 'transformers' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "0 False False"
    assert all(name in done.stdout for name in ("generate", "show", "eval", "methods", "doctor"))


@pytest.mark.parametrize("name", ["generate", "show", "eval", "methods", "doctor"])
def test_every_command_explains_itself_with_an_example(name):
    text = CliRunner().invoke(cli.app, [name, "--help"]).stdout
    assert "Examples" in text and f"specdec {name}" in text


def test_the_module_and_its_exit_statuses_as_a_shell_sees_them(tmp_path):
    wrong = in_a_process("generate", "leo", "--method", "magic")
    assert wrong.returncode == 2 and wrong.stderr.startswith("specdec: unknown method 'magic'") and wrong.stdout == ""
    failed = in_a_process("generate", "leo", env={**os.environ, "SPECDEC_DATA": str(tmp_path)})
    assert failed.returncode == 1 and "presets.toml" in failed.stderr and "Traceback" not in failed.stderr
    right = in_a_process("generate", QUESTION, *FEW)
    assert right.returncode == 0 and right.stdout.strip() and "\x1b" not in right.stdout
