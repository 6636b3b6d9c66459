"""The benchmark's run: what is timed and what is not, the order of the arms, equal texts and tokens, interruption.
Follows specdec_lib/bench.py and the reports behind cases H11, H12, H16 and H17.
Left out: figures from given calls (test_speed.py) and Hugging Face's arms by themselves (test_hf_arms.py).
"""

import json
from weakref import WeakKeyDictionary

import pytest
from tiny import disturbed, llama
from typer.testing import CliRunner

from specdec_lib import bench as bench_module
from specdec_lib import cli, pricing, speed, zoo
from specdec_lib.bench import OwnArm, bench, draft_step_s, plan, split_methods
from specdec_lib.decode import Stops
from specdec_lib.hf_arms import HFArm
from specdec_lib.kept_calls import KeptCalls
from specdec_lib.machine import PASS_SIZES
from specdec_lib.model import CausalLM
from specdec_lib.sampling import SamplingSettings
from specdec_lib.speed import ORDER
from specdec_lib.tasks import choose_tasks
from specdec_lib.zoo import Pair, data_folder, load_tokenizer

N, REPEATS, NEW = 3, 2, 16
EVERY = "hf-generate,hf-assisted,hf-lookup,greedy:gamma=2,lossless,lenience:gamma=4,lenience=0.5"


@pytest.fixture(scope="module")
def pair():
    """Random models with the pocket tokenizer, so that pocket problems can be asked, never answered."""
    tokenizer = load_tokenizer(data_folder() / "pocket" / "target")
    target = llama(seed=3, vocab=len(tokenizer), context=512)
    draft = disturbed(target, seed=4, spread=0.02)
    stops = Stops(frozenset([tokenizer.eos_token_id]), tokenizer=tokenizer)
    return Pair("tiny", CausalLM(target), CausalLM(draft), tokenizer, stops, {"target": "t", "draft": "d"})


@pytest.fixture(scope="module")
def tasks():
    return choose_tasks("pocket", N, seed=5)


def run(pair, tasks, methods=EVERY, **more):
    more = {"gamma": 3, "max_new_tokens": NEW, "repeats": REPEATS} | more
    return bench(pair, tasks, methods, progress=False, **more)


@pytest.fixture(scope="module")
def found(pair, tasks):
    return run(pair, tasks)


def rows_by_name(found):
    return {row["method"]: row for row in found["rows"]}


# ---- rows ------------------------------------------------------------------------------------------------------


def test_a_row_a_method_with_the_fixed_fields_and_null_where_nothing_applies(found):
    rows = rows_by_name(found)
    assert list(rows) == ["autoregressive", *(text.partition(":")[0] for text in split_methods(EVERY))]
    assert all(tuple(row) == ORDER for row in found["rows"])
    traced = ("mat", "kept", "alpha", "c", "share", "predicted_speedup", "formula_speedup", "rounds_speedup", "drafted")
    for name, row in rows.items():
        if name.startswith("hf"):
            assert {row[field] for field in traced} == {None}
        assert row["accuracy"] == 0.0 and row["tok_per_s"] > 0 and row["speedup"] > 0
    assert [rows[name]["gamma"] for name in ("hf-assisted", "greedy", "lossless", "lenience")] == [3, 2, 3, 4]
    assert rows["lenience"]["settings"] == {"gamma": 4, "lenience": 0.5, "temperature": 0.0}
    assert [row["lossless"] for row in found["rows"]] == [True] * 6 + [False]
    assert rows["autoregressive"]["speedup"] == 1 and rows["autoregressive"]["mat"] == 1
    for name in ("greedy", "lossless"):
        row = rows[name]
        assert row["mat"] > 1 and row["predicted_speedup"] > 0 and row["c"] > 0 and row["formula_speedup"] > 0
        assert sum(row["share"].values()) == pytest.approx(1)
        factors = row["explained"]
        assert factors["cut"] * factors["plain_step"] * factors["round"] == pytest.approx(row["attained"])
    json.dumps(found, allow_nan=False)


def test_texts_and_token_counts_are_equal_on_all_lossless_arms(found):
    rows = rows_by_name(found)
    assert rows["autoregressive"]["same_text"] is None and rows["lenience"]["same_text"] is None
    for name in ("hf-generate", "hf-assisted", "hf-lookup", "greedy", "lossless"):
        assert rows[name]["same_text"] == 1.0
        assert rows[name]["tokens"] == rows["autoregressive"]["tokens"]


def test_a_text_that_differs_is_reported(pair, tasks, monkeypatch):
    right = HFArm.run
    monkeypatch.setattr(HFArm, "run", lambda self, prompt, seed: [*right(self, prompt, seed)[:-1], 7])
    assert rows_by_name(run(pair, tasks, "hf-generate,greedy"))["hf-generate"]["same_text"] == 0.0


def test_passes_are_counted_beforehand(found, pair):
    rows = rows_by_name(found)
    plain, greedy, generate = (rows[name]["watched"] for name in ("autoregressive", "greedy", "hf-generate"))
    assert plain["prompts"] == 2 and plain["draft_passes"] == 0
    assert plain["target_passes"] == plain["tokens"] + 2  # and a prefill a prompt
    assert generate["target_passes"] == generate["tokens"]  # there the prefill gives the first token
    assert greedy["target_passes"] < plain["target_passes"] and greedy["draft_passes"] > 0
    assert all(0 < row["watched"]["outside_passes"] < 1 for row in found["rows"])


def test_a_target_that_drafts_for_itself_has_its_passes_counted_once(pair, tasks):
    model = pair.target.model
    itself = Pair("itself", CausalLM(model), CausalLM(model), pair.tokenizer, pair.stops, {})
    rows = rows_by_name(run(itself, tasks, "greedy,hf-assisted", repeats=1))
    for name in ("greedy", "hf-assisted"):
        watched = rows[name]["watched"]
        assert rows[name]["same_text"] == 1.0
        assert watched["draft_passes"] is None and watched["target_passes"] >= watched["tokens"]
        assert 0 < watched["outside_passes"] < 1
    assert rows["greedy"]["kept"] == pytest.approx(rows["greedy"]["drafted"], abs=0.5)


def test_compiled_passes_are_not_counted_as_none(pair, tasks, monkeypatch):
    monkeypatch.setattr(pair.draft, "compiled", True)
    monkeypatch.setattr(pair.draft, "_compiled_forward", pair.draft.model.forward, raising=False)  # no hook sees it
    rows = rows_by_name(run(pair, tasks, "greedy,hf-assisted", repeats=1))
    assert rows["greedy"]["watched"]["draft_passes"] is None and rows["greedy"]["watched"]["outside_passes"] is None
    assert rows["hf-assisted"]["watched"]["draft_passes"] > 0


def test_costs_are_measured_where_the_run_was(found, pair, tasks):
    lengths = [len(pair.prompt(task.prompt)) for task in tasks]
    assert min(lengths) <= found["context"] <= max(lengths) + NEW
    assert set(found["pass_s"]) == {"1", "3", "4", "5"} and set(found["draft_step_s"]) == {"2", "3", "4"}


def test_sampling_gives_alpha_and_promises_no_equal_text(pair, tasks):
    rows = rows_by_name(run(pair, tasks, "lossless,hf-assisted", temperature=1.0))
    assert 0 < rows["lossless"]["alpha"] < 1
    assert rows["lossless"]["same_text"] is None and rows["hf-assisted"]["same_text"] is None


# ---- the run ---------------------------------------------------------------------------------------------------


class Watch:
    """A clock that moves only while an arm answers; every arm's first `slow` answers take a thousand times as long."""

    def __init__(self, monkeypatch, slow=1 + bench_module.WATCHED):
        self.time, self.order, self.answers, self.drafters = 0.0, [], {}, {}
        monkeypatch.setattr(bench_module, "now", lambda device: self.time)
        for kind in (OwnArm, HFArm):
            monkeypatch.setattr(kind, "run", self.around(kind.run, slow))

    def around(self, right, slow):
        def run(arm, prompt, seed):
            answer = right(arm, prompt, seed)
            so_far = self.answers.setdefault(arm.name, 0)
            self.answers[arm.name] += 1
            self.order.append(arm.name)
            if isinstance(arm, OwnArm):
                self.drafters.setdefault(arm.name, []).append(arm.method.drafter)
            self.time += 1000.0 if so_far < slow else 1.0
            self.interrupt()
            return answer

        return run

    def interrupt(self):
        pass


def test_warm_up_and_watched_answers_are_not_in_the_times(pair, tasks, monkeypatch):
    watch = Watch(monkeypatch)
    found = run(pair, tasks, "greedy,hf-generate")
    for row in found["rows"]:
        assert watch.answers[row["method"]] == found["warm_up_answers"] + N * REPEATS
        assert row["calls"] == row["seconds"] == N * REPEATS


def test_every_arm_comes_first_in_turn(pair, tasks, monkeypatch):
    watch = Watch(monkeypatch)
    run(pair, tasks, "greedy,hf-generate")
    timed = watch.order[3 * (1 + bench_module.WATCHED) :]
    rounds = [timed[i : i + 3] for i in range(0, len(timed), 3)]
    assert len(rounds) == N * REPEATS
    assert [names[0] for names in rounds] == ["autoregressive", "greedy", "hf-generate"] * REPEATS
    assert all(set(names) == {"autoregressive", "hf-generate", "greedy"} for names in rounds)


def test_what_a_method_learns_is_forgotten_before_each_repeat_not_within_one(pair, tasks, monkeypatch):
    watch = Watch(monkeypatch)
    run(pair, tasks, "greedy")
    timed = watch.drafters["greedy"][1 + bench_module.WATCHED :]
    assert len({id(drafter) for drafter in timed[:N]}) == len({id(drafter) for drafter in timed[N:]}) == 1
    assert timed[0] is not timed[N]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_second_run_and_a_second_repeat_count_what_the_first_did(pair, tasks, temperature):
    methods = "lossless,hf-assisted,hf-lookup"
    once = run(pair, tasks, methods, repeats=1, temperature=temperature)
    twice = run(pair, tasks, methods, repeats=2, temperature=temperature)
    for first, second in zip(once["rows"], twice["rows"], strict=True):
        assert second["tokens"] == 2 * first["tokens"]
        for field in ("mat", "kept", "alpha", "drafted"):
            assert second[field] == (None if first[field] is None else pytest.approx(first[field]))
        for field in ("tokens", "target_passes", "draft_passes"):
            assert second["watched"][field] == first["watched"][field]


def test_ctrl_c_keeps_the_whole_repeats(pair, tasks, monkeypatch):
    watch = Watch(monkeypatch)

    def interrupt():
        if len(watch.order) == 2 * (1 + bench_module.WATCHED) + 2 * N + 3:  # in the second repeat
            raise KeyboardInterrupt

    watch.interrupt = interrupt
    found = run(pair, tasks, "greedy", repeats=5)
    assert found["interrupted"] and found["repeats"] == 1
    assert [row["calls"] for row in found["rows"]] == [N, N]
    assert "stopped early" in speed.table(found)


def test_ctrl_c_in_the_first_repeat_leaves_nothing_to_keep(pair, tasks, monkeypatch):
    watch = Watch(monkeypatch)

    def interrupt():
        if len(watch.order) == 2 * (1 + bench_module.WATCHED) + 3:
            raise KeyboardInterrupt

    watch.interrupt = interrupt
    with pytest.raises(KeyboardInterrupt):
        run(pair, tasks, "greedy")


def stopped_and_again(pair, tasks, monkeypatch, file, methods, after):
    """(answers before Ctrl-C, answers of the run that went on, its result), warm-up left out."""
    watch = Watch(monkeypatch)
    beforehand = 2 * (1 + bench_module.WATCHED)

    def interrupt():
        if len(watch.order) == beforehand + after:
            raise KeyboardInterrupt

    watch.interrupt = interrupt
    keep = KeptCalls(file, {})
    with pytest.raises(KeyboardInterrupt):
        run(pair, tasks, methods, repeats=1, keep=keep)
    watch.interrupt, before = (lambda: None), len(watch.order)
    found = run(pair, tasks, methods, repeats=1, keep=KeptCalls(file, {}))
    return before - beforehand, len(watch.order) - before - beforehand, found


def test_a_stopped_run_goes_on_with_the_next_prompt(pair, tasks, monkeypatch, tmp_path):
    made, more, found = stopped_and_again(pair, tasks, monkeypatch, tmp_path / "c", "greedy", after=5)
    assert made == 5 and more == 2 * N - 4  # the third prompt was half done
    once = run(pair, tasks, "greedy", repeats=1)
    for row, right in zip(found["rows"], once["rows"], strict=True):
        assert row["calls"] == N and row["tokens"] == right["tokens"] and row["mat"] == right["mat"]


def test_where_a_method_learns_from_answer_to_answer_a_repeat_begins_anew(pair, tasks, monkeypatch, tmp_path):
    _, more, found = stopped_and_again(pair, tasks, monkeypatch, tmp_path / "c", "recycling:keep=1", after=5)
    assert more == 2 * N and [row["calls"] for row in found["rows"]] == [N, N]


def test_a_run_that_goes_on_buys_at_the_prices_of_its_first_calls(pair, tasks, monkeypatch, tmp_path):
    measured = iter(({1: 1.0, 8: 1.5}, {1: 1.0, 8: 9.0}))
    monkeypatch.setattr(pricing, "round_times", lambda target: next(measured))
    monkeypatch.setattr(pricing, "_known", WeakKeyDictionary())
    file = tmp_path / "calls"
    first = KeptCalls(file, {})
    run(pair, tasks, "logitspec-cost", repeats=2, keep=first)
    assert first.get("prices") == {"1": 1.0, "8": 1.5}  # measured once for both repeats
    monkeypatch.setattr(pricing, "_known", WeakKeyDictionary())  # as in a new process
    watch = Watch(monkeypatch)
    found = run(pair, tasks, "logitspec-cost", repeats=2, keep=KeptCalls(file, {}))
    assert list(found["prices"].values()) == [{"1": 1.0, "8": 1.5}]
    assert len(watch.order) == 2 * (1 + bench_module.WATCHED) and next(measured, None) is None


def test_the_prices_that_nodes_were_bought_by_stand_in_the_result(pair, tasks):
    found = run(pair, tasks, "logitspec-cost", repeats=1)
    (prices,) = found["prices"].values()
    assert list(prices) == [str(k) for k in PASS_SIZES] and all(seconds > 0 for seconds in prices.values())
    assert [(r["method"].split(":")[0], r["over"].split(":")[0]) for r in found["ratios"]] == [
        ("autoregressive", "logitspec-cost"), ("logitspec-cost", "autoregressive"),
    ]  # fmt: skip
    assert found["ratios"][1]["speed"] == pytest.approx(rows_by_name(found)["logitspec-cost"]["speedup"])


def test_a_draft_step_is_a_share_of_a_whole_proposal_and_needs_room(pair, tasks, monkeypatch):
    times = iter(range(0, 10_000, 6))
    monkeypatch.setattr(bench_module, "now", lambda device: next(times))
    ids = pair.prompt(tasks[0].prompt)
    assert draft_step_s(pair, 3, ids, SamplingSettings(0.0)) == 2.0  # 6 s a proposal of three
    small = CausalLM(llama(vocab=pair.target.vocab_size, context=len(ids) - 1))
    short = Pair("short", pair.target, small, pair.tokenizer, pair.stops, {})
    assert draft_step_s(short, 3, ids, SamplingSettings(0.0)) is None


# ---- what is asked for -----------------------------------------------------------------------------------------


def test_methods_are_split_where_a_new_one_begins():
    assert split_methods("greedy, lenience:lenience=0.1,gamma=4,hf-assisted") == [
        "greedy", "lenience:lenience=0.1,gamma=4", "hf-assisted",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="'gamma=4' in --methods belongs to no method"):
        split_methods("greedy,gamma=4")
    with pytest.raises(ValueError, match="names no method"):
        split_methods(" ,")


def test_plain_decoding_comes_first_and_gamma_reaches_those_without_their_own():
    assert plan("greedy:gamma=2,autoregressive,hf-assisted,hf-generate", 5, 0.0) == [
        ("autoregressive", {}), ("greedy", {"gamma": 2}), ("hf-assisted", {"gamma": 5}), ("hf-generate", {}),
    ]  # fmt: skip


def test_defaults_are_lossless_ones_for_the_temperature():
    def names(temperature):
        return [name for name, _ in plan(None, None, temperature)]

    assert names(0.0) == ["autoregressive", "hf-generate", "hf-assisted", "hf-lookup", "greedy"]
    assert names(1.0)[:5] == ["autoregressive", "hf-generate", "hf-assisted", "hf-lookup", "lossless"]


@pytest.mark.parametrize(
    "methods, temperature, said",
    [
        ("gredy", 0.0, "unknown method 'gredy'"),
        ("hf-assisted:delta=1", 0.0, "unknown knob 'delta'"),
        ("greedy,greedy:gamma=8", 0.0, "greedy:gamma=8 is asked for twice"),
        ("greedy", 1.0, "temperature 0 only"),
    ],
)
def test_methods_that_cannot_be_run_are_refused(methods, temperature, said):
    with pytest.raises(ValueError, match=said):
        plan(methods, None, temperature)


@pytest.mark.parametrize("counts", [{"max_new_tokens": 0}, {"repeats": 0}, {"repeats": True}, {"max_new_tokens": 2.5}])
def test_counts_below_one_are_refused(pair, tasks, counts):
    with pytest.raises(ValueError, match="whole number, 1 or more"):
        run(pair, tasks, "greedy", **counts)


def test_prompts_that_leave_no_room_for_the_answer_are_refused(pair, tasks):
    with pytest.raises(ValueError, match="do not fit the target's context of 512; ask for at most"):
        run(pair, tasks, "greedy", max_new_tokens=500)


def test_a_draft_longer_than_the_context_is_refused(pair, tasks):
    with pytest.raises(ValueError, match="a draft of 600 tokens does not fit"):
        run(pair, tasks, "greedy", gamma=600)


def test_without_one_size_of_logits_assisted_generation_is_left_out_unless_asked_for(pair, tasks):
    models = Pair("two", pair.target, CausalLM(llama(vocab=140, context=512), 138), pair.tokenizer, pair.stops, {})
    assert "hf-assisted" not in rows_by_name(run(models, tasks, None, repeats=1))
    with pytest.raises(ValueError, match="leave hf-assisted out"):
        run(models, tasks, "hf-assisted")


# ---- the command -----------------------------------------------------------------------------------------------


FEW = ["--n", 2, "--max-new-tokens", 6]


def command(*arguments):
    return CliRunner().invoke(cli.app, ["bench", *map(str, arguments)])


def test_the_command_prints_a_table_and_writes_rows_with_provenance(pair, monkeypatch, tmp_path):
    monkeypatch.setattr(zoo, "load_pair", lambda name: pair)
    file = tmp_path / "bench.json"
    result = command(*FEW, "--repeats", 1, "--gamma", 2, "--methods", "greedy,hf-generate", "--seed", 3, "--json", file)
    assert result.exit_code == 0, result.stderr
    assert "greedy:gamma=2" in result.stdout and "speed-up" in result.stdout
    written = json.loads(file.read_text())
    assert [row["method"] for row in written["rows"]] == ["autoregressive", "greedy", "hf-generate"]
    assert written["n"] == 2 and written["repeats"] == 1 and not written["interrupted"]
    origin = written["provenance"]
    assert origin["seed"] == 3 and origin["dtype"] == "float32"
    assert origin["arguments"]["methods"] == ["autoregressive", "greedy:gamma=2", "hf-generate"]
    assert origin["arguments"]["pair"] == "pocket" and origin["arguments"]["temperature"] == 0.0


def test_a_stopped_command_writes_what_is_whole_and_says_so(pair, monkeypatch, tmp_path):
    monkeypatch.setattr(zoo, "load_pair", lambda name: pair)
    watch = Watch(monkeypatch)

    def interrupt():
        if len(watch.order) == 2 * 3 + 2 * 2 + 1:
            raise KeyboardInterrupt

    watch.interrupt = interrupt
    file = tmp_path / "bench.json"
    result = command(*FEW, "--repeats", 3, "--methods", "greedy", "--json", file)
    assert result.exit_code == 130 and "stopped" in result.stderr
    assert json.loads(file.read_text())["repeats"] == 1
    watch.interrupt = lambda: None
    result = command(*FEW, "--repeats", 3, "--methods", "greedy", "--json", file)
    assert result.exit_code == 0 and json.loads(file.read_text())["repeats"] == 3
    assert not file.with_name("bench.json.calls").exists()


@pytest.mark.parametrize(
    "options, said",
    [
        (["--methods", "gredy"], "unknown method"),
        (["--methods", "greedy", "--temperature", "1"], "temperature 0 only"),
        (["--temperature", "-1"], "temperature must be"),
        (["--tasks", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--json", "nowhere/bench.json"], "nowhere"),
        (["--pair", "other", "--n", "25"], "holds 24 prompts"),
    ],
)
def test_bad_input_is_refused_before_models_are_loaded(monkeypatch, options, said):
    monkeypatch.setattr(zoo, "load_pair", lambda name: pytest.fail("models were loaded"))
    result = command(*options)
    assert result.exit_code == 2 and said in result.stderr and result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
