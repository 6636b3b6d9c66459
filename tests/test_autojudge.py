"""AutoJudge: the rule on hand-made states, its limits, the mining of its labels, its head's training and its file.
Follows specdec_lib/verifiers/autojudge.py and specdec_lib/autojudge/; the search is compared with a plain one.
Left out: what it keeps on the pocket pair (data/pocket/autojudge.json).
"""

import json
import math
import re
from dataclasses import asdict

import pytest
import torch
from laws import SAMPLED, TOLERANCE, first_token_law
from test_batch import DRAFT, TARGET
from test_needs import states
from test_verifiers import chance, one_hots
from tiny import prompts
from typer.testing import CliRunner

from specdec_lib import cli, zoo
from specdec_lib.autojudge import mine as mining
from specdec_lib.autojudge.head import AutoJudgeHead, head_of
from specdec_lib.autojudge.labels import FORMAT, Mined, read_labels
from specdec_lib.autojudge.mine import mine, mine_to
from specdec_lib.autojudge.train import Swaps, held_out_auc, swaps_of, train
from specdec_lib.batch import decode_batch
from specdec_lib.decode import Stops, decode
from specdec_lib.drafters import ModelDrafter
from specdec_lib.judge.head import HeadError
from specdec_lib.model import CausalLM, TableModel
from specdec_lib.sampling import SamplingSettings
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers import LosslessRejection, Scores
from specdec_lib.verifiers.autojudge import AutoJudge

GREEDY = SamplingSettings()
STOPS = Stops(frozenset({3, 17}))


def head(*weight, bias=0.0):
    return AutoJudgeHead(torch.tensor(weight), bias, "t", "d")


def verdict(rule, draft_hidden, hidden, best=(1, 4, 3, 5), drafts=(1, 2, 3)):
    """Drafts where the target would write `best`: by default only the second draft is a mismatch."""
    tree = DraftTree.chain([0, *drafts])
    tree.draft_hidden = None if draft_hidden is None else torch.tensor(draft_hidden)
    rows = Scores(one_hots(*best), GREEDY.adjuster(), None, None if hidden is None else torch.tensor(hidden))
    return rule.verify(tree, rows, chance())


# ---- the rule --------------------------------------------------------------------------------------------------


def test_the_rule_by_hand():
    """Node 2 has draft state 1 and target state -2; weights 1 and .5, bias -1: logit -1, P(important) = .2689."""
    draft_hidden, hidden = [[9.0], [1.0], [9.0]], [[9.0], [9.0], [-2.0], [9.0]]
    for threshold, path in ((0.27, [1, 2, 3]), (0.26, [1])):
        found = verdict(AutoJudge(head(1.0, 0.5, bias=-1.0), threshold), draft_hidden, hidden)
        assert found.path == path
        assert found.outcomes[2] == ("rescued" if len(path) > 1 else "rejected")
        assert found.token == (5 if len(path) > 1 else 4)


@pytest.mark.parametrize("role, at", [("draft", 1), ("target", 2)])
def test_a_token_is_judged_by_its_own_target_row_and_by_the_draft_row_that_proposed_it(role, at):
    """The head calls everything important but one state, that of the second token: rows beside it change nothing."""
    for row in range(4 if role == "target" else 3):
        draft_hidden, hidden = torch.zeros(3, 1), torch.zeros(4, 1)
        (hidden if role == "target" else draft_hidden)[row] = -10.0
        weights = (0.0, 1.0) if role == "target" else (1.0, 0.0)
        found = verdict(AutoJudge(head(*weights, bias=5.0), 0.5), draft_hidden.tolist(), hidden.tolist())
        assert (len(found.path) == 3) is (row == at)


def test_an_equal_probability_is_rejected():
    """P(important) = .5 = threshold: the rule asks for less."""
    assert verdict(AutoJudge(head(0.0, 0.0), 0.5), [[0.0]] * 3, [[0.0]] * 4).path == [1]
    assert verdict(AutoJudge(head(0.0, 0.0), 0.51), [[0.0]] * 3, [[0.0]] * 4).path == [1, 2, 3]


def test_a_state_that_is_nan_rescues_nothing():
    assert verdict(AutoJudge(head(1.0, 1.0), 0.99), [[math.nan]] * 3, [[0.0]] * 4).path == [1]


def test_states_that_are_missing_are_asked_for():
    for draft_hidden, hidden in ((None, [[0.0]] * 4), ([[0.0]] * 3, None)):
        with pytest.raises(ValueError, match="draft model"):
            verdict(AutoJudge(head(1.0, 1.0), 0.5), draft_hidden, hidden)
    found = verdict(AutoJudge(head(1.0, 1.0), 0.5), None, None, best=(4,), drafts=())  # nothing proposed: a plain step
    assert (found.path, found.token) == ([], 4)


@pytest.mark.parametrize("threshold", [-0.1, True, math.nan, math.inf, "low"])
def test_a_threshold_outside_its_range_is_refused(threshold):
    with pytest.raises(ValueError, match="threshold"):
        AutoJudge(head(1.0), threshold)


# ---- its limits ------------------------------------------------------------------------------------------------


def any_head(seed=0):
    """A head for the tiny pair (width 32 each) whose scores vary."""
    return head(*(torch.randn(64, generator=torch.Generator().manual_seed(seed)) / 4).tolist())


def runs(rule, settings=GREEDY, siblings=()):
    drafter = ModelDrafter(CausalLM(DRAFT), 3, siblings)
    traces = [decode(CausalLM(TARGET), text, 12, drafter, rule, settings, seed=7) for text in prompts(6, longest=8)]
    return [[(r.tokens, r.outcomes, r.emitted) for r in trace.rounds] for trace in traces]


@pytest.mark.parametrize("settings, siblings", [(GREEDY, ()), (SAMPLED, ()), (SAMPLED, (2, 2))], ids=str)
def test_threshold_0_is_the_standard_rule_and_from_1_on_all_is_kept(settings, siblings):
    assert AutoJudge(any_head(), 0).lossless and not AutoJudge(any_head(), 1e-9).lossless
    assert runs(AutoJudge(any_head(), 0), settings, siblings) == runs(LosslessRejection(), settings, siblings)
    for threshold in (1, 1.5):
        for rounds in runs(AutoJudge(any_head(), threshold), settings, siblings):
            assert [len(emitted) for *_, emitted in rounds] == [4, 4, 4]


def test_between_the_limits_some_mismatches_are_kept():
    outcomes = [o for rounds in runs(AutoJudge(any_head(), 0.5)) for _, found, _ in rounds for o in found.values()]
    assert {"exact", "rescued", "rejected"} == set(outcomes)


def test_a_batch_gives_what_a_text_alone_gives():
    texts, drafter = prompts(6, longest=8), ModelDrafter(CausalLM(DRAFT), 3)
    traces = decode_batch(CausalLM(TARGET), texts, 12, drafter, AutoJudge(any_head(), 0.5), size=4)
    assert [[(r.tokens, r.outcomes, r.emitted) for r in t.rounds] for t in traces] == runs(AutoJudge(any_head(), 0.5))


def test_above_temperature_0_the_residual_rule_stays():
    """p = (.2, .3, .5), q = (.6, .3, .1), one state: all important gives p exactly, all unimportant q exactly."""
    p, q = [0.2, 0.3, 0.5], [0.6, 0.3, 0.1]
    target, draft = (TableModel(lambda ids, law=law: [math.log(v) for v in law], 3, hidden_of=lambda ids: [1.0])
                     for law in (p, q))  # fmt: skip
    for bias, law in ((20.0, p), (-20.0, q)):
        found = first_token_law(target, ModelDrafter(draft, 1), AutoJudge(head(0.0, 0.0, bias=bias), 0.5), SAMPLED)
        assert found == pytest.approx(law, abs=TOLERANCE)


# ---- mining ----------------------------------------------------------------------------------------------------


class NumberPair:
    """The tiny pair; a text is its ids as numbers, so that an answer's last number is its last token before the end."""

    name, checksums = "tiny", {"target": "t", "draft": "d"}
    stops, dtypes, note = STOPS, {}, ""

    def __init__(self):
        self.target, self.draft = CausalLM(TARGET), CausalLM(DRAFT)

    def prompt(self, text):
        return [int(word) for word in text.split()]

    def text(self, ids):
        return " ".join(str(i) for i in ids if i not in STOPS.eos_token_ids)

    def provenance(self, arguments):
        return {"arguments": arguments}


QUESTIONS = [" ".join(map(str, text)) for text in prompts(12, longest=8, seed=4)]
LONGEST = 12


def plain_search(pair, question):
    """The search, one decode() after the other, as the paper's summary tells it."""
    prompt = pair.prompt(question)

    def finish(begun):
        if begun and begun[-1] in STOPS.eos_token_ids:
            return list(begun), True
        trace = decode(pair.target, [*prompt, *begun], LONGEST, stops=STOPS)
        return [*begun, *trace.ids], trace.reason == "eos"

    def answer(ids, ended):
        numbers = re.findall(r"\d+", pair.text(ids))
        return numbers[-1] if ended and numbers else None

    text, ended = finish([])
    wanted, swaps = answer(text, ended), []
    at = 0 if wanted is not None else len(text)
    while at < len(text):
        own = decode(pair.draft, [*prompt, *text[:at]], 1).ids[0]
        if own != text[at]:
            other, other_ended = finish([*text[:at], own])
            changed = answer(other, other_ended) != wanted
            swaps.append((at, own, changed))
            text = text if changed else other
        at += 1
    return Mined(question, text, swaps)


def test_mining_side_by_side_is_the_plain_search():
    pair = NumberPair()
    found = mine(pair, QUESTIONS, LONGEST)
    assert found == [plain_search(pair, question) for question in QUESTIONS]
    labels = [important for one in found for *_, important in one.swaps]
    assert labels.count(True) >= 5 and labels.count(False) >= 5
    assert any(not one.swaps for one in found), "a text that does not end has no answer"


def test_a_stopped_mining_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(mining, "SIDE_BY_SIDE", 5)
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps({"prompt": q}) + "\n" for q in QUESTIONS))
    pair, whole, stopped = NumberPair(), tmp_path / "whole.jsonl", tmp_path / "stopped.jsonl"
    expected = mine_to(whole, pair, 12, 0, LONGEST, tasks, progress=False)
    calls, real = [], mining.mine

    def stops_after_one(*args):
        calls.append(args[1])
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(mining, "mine", stops_after_one)
    with pytest.raises(KeyboardInterrupt):
        mine_to(stopped, pair, 12, 0, LONGEST, tasks, progress=False)
    with stopped.open("a") as file:
        file.write('{"question": "half a li')
    assert mine_to(stopped, pair, 12, 0, LONGEST, tasks, progress=False) == expected
    assert stopped.read_text() == whole.read_text()
    assert [len(questions) for questions in calls] == [5, 5, 5, 2]
    assert mine_to(stopped, pair, 12, 0, LONGEST, tasks, progress=False) == expected and len(calls) == 4
    with pytest.raises(ValueError, match="made with seed = 0, not 1"):
        mine_to(stopped, pair, 12, 1, LONGEST, tasks, progress=False)
    tasks.write_text("".join(json.dumps({"prompt": q}) + "\n" for q in reversed(QUESTIONS)))
    with pytest.raises(ValueError, match="other questions"):
        mine_to(stopped, pair, 12, 0, LONGEST, tasks, progress=False)
    with pytest.raises(ValueError, match="holds 12 questions, not 13"):
        mine_to(tmp_path / "new.jsonl", pair, 13, 0, LONGEST, tasks, progress=False)
    with pytest.raises(ValueError, match="--tasks"):
        mine_to(tmp_path / "new.jsonl", pair, 2, 0, LONGEST, progress=False)


GOOD = [{"format": FORMAT}, asdict(Mined("q", [5, 6, 7], [(0, 5, False), (2, 9, True)]))]


@pytest.mark.parametrize(
    "lines, message",
    [
        ([], "empty"),
        ([{"format": "other"}], "line 1"),
        (["not JSON"], "line 1"),
        ([GOOD[0], {"question": "q"}], "line 2"),
        ([GOOD[0], GOOD[1] | {"more": 1}], "line 2"),
        ([GOOD[0], GOOD[1] | {"swaps": [[0, 4, False]]}], "line 2.*not in the text"),
        ([GOOD[0], GOOD[1] | {"swaps": [[2, 9, True], [1, 6, False]]}], "line 2.*does not fit"),
        ([GOOD[0], GOOD[1] | {"swaps": [[0, 5, 0]]}], "line 2.*does not fit"),
    ],
)
def test_a_file_that_is_no_file_of_labels_is_refused(tmp_path, lines, message):
    file = tmp_path / "labels.jsonl"
    file.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    with pytest.raises(ValueError, match=message):
        read_labels(file)


def test_labels_are_read_as_they_were_written(tmp_path):
    file = tmp_path / "labels.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in GOOD))
    assert read_labels(file) == (GOOD[0], [Mined("q", [5, 6, 7], [(0, 5, False), (2, 9, True)])])


# ---- training --------------------------------------------------------------------------------------------------


def test_the_rows_of_a_swap_are_those_of_its_own_prefix():
    """Each state against a pass over the prefix and the swapped token alone, without any cache or tree."""
    pair = NumberPair()
    mined = mine(pair, QUESTIONS, LONGEST)
    found, at = swaps_of(pair, mined), 0
    for i, one in enumerate(mined):
        for position, token, important in one.swaps:
            prefix = [*pair.prompt(one.question), *one.text[:position]]
            for role, model in (("target", TARGET), ("draft", DRAFT)):
                expected, _ = states(model, [*prefix, token])
                for row, state in (("own", expected[-1]), ("before", expected[-2])):
                    torch.testing.assert_close(found.states[f"{role} {row}"][at], state.float(), rtol=0, atol=1e-5)
            assert (bool(found.important[at]), int(found.question[at])) == (important, i)
            at += 1
    assert at == len(found.important) > 10


def planted(n, seed=0, noise=False):
    """n swaps of n / 5 questions; important iff the first of 30 numbers is positive, or, as noise, by chance."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(n, 60, generator=generator)
    important = torch.rand(n, generator=generator) < 0.5 if noise else rows[:, 0] > 0
    return Swaps({"draft before": rows[:, :30], "target own": rows[:, 30:]}, important, torch.arange(n) // 5)


def test_the_auc_is_that_of_questions_the_head_has_not_seen():
    """60 weights learn 150 labels of noise by heart: only an AUC on other questions says that nothing is learnt."""
    learnt, noise = held_out_auc(planted(1000)), held_out_auc(planted(150, noise=True))
    assert learnt["auc"] > 0.97 and learnt["held_out"] == 200 and learnt["swaps"] == 1000
    assert 0.2 < noise["auc"] < 0.8
    assert learnt["auc_interval"][0] < learnt["auc"] < learnt["auc_interval"][1]


def test_training_gives_the_same_head_again_and_scores_important_tokens_higher():
    pair, swaps = NumberPair(), planted(400)
    made = train(pair, swaps, {"n": 80})
    again = train(pair, swaps)
    assert torch.equal(made.weight, again.weight) and made.bias == again.bias
    assert (made.target, made.draft, made.made) == ("t", "d", {"n": 80})
    logits = made.logits(swaps.of(("draft before", "target own")))
    assert logits[swaps.important].mean() > 1 > -1 > logits[~swaps.important].mean()


def test_labels_of_one_kind_cannot_be_learnt():
    swaps = planted(50)
    swaps.important[:] = False
    with pytest.raises(ValueError, match="one kind"):
        train(NumberPair(), swaps)
    with pytest.raises(ValueError, match="no swap"):
        swaps_of(NumberPair(), [Mined("1 2", [3])])


# ---- the file --------------------------------------------------------------------------------------------------


def test_a_head_comes_back_from_its_file(tmp_path):
    file = tmp_path / "head.safetensors"
    made = AutoJudgeHead(torch.randn(5), 0.25, "t", "d", {"n": 3})
    made.save(file)
    found = AutoJudgeHead.load(file)
    assert torch.equal(found.weight, made.weight)
    assert (found.bias, found.target, found.draft, found.made) == (0.25, "t", "d", {"n": 3})
    with pytest.raises(HeadError, match="5 numbers.*give 4"):
        found.logits(torch.zeros(2, 4))


def test_a_damaged_or_foreign_head_is_refused(tmp_path):
    file = tmp_path / "head.safetensors"
    head(1.0, 2.0).save(file)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(HeadError, match="SHA256SUMS"):
        AutoJudgeHead.load(file)
    (tmp_path / "SHA256SUMS").unlink()
    head(1.0, math.nan).save(file)
    with pytest.raises(HeadError, match="do not make a head"):
        AutoJudgeHead.load(file)
    file.write_bytes(b"nothing")
    with pytest.raises(HeadError, match="no autojudge head"):
        AutoJudgeHead.load(file)
    with pytest.raises(FileNotFoundError):
        AutoJudgeHead.load(tmp_path / "none.safetensors")


def test_a_head_is_found_for_its_very_pair(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path))
    (tmp_path / "heads").mkdir()
    pair = NumberPair()
    with pytest.raises(HeadError, match="specdec autojudge mine"):
        head_of(pair)
    head(1.0, 2.0).save(tmp_path / "heads" / "a.safetensors")
    AutoJudgeHead(torch.ones(2), 0.0, "t", "another draft").save(tmp_path / "heads" / "0.safetensors")
    assert head_of(pair).weight.tolist() == [1.0, 2.0]


# ---- the commands ----------------------------------------------------------------------------------------------


def test_the_commands_mine_and_train_a_head_that_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(zoo, "load_pair", lambda name: NumberPair())
    tasks, labels, result = tmp_path / "tasks.jsonl", tmp_path / "labels.jsonl", tmp_path / "auc.json"
    tasks.write_text("".join(json.dumps({"prompt": q}) + "\n" for q in QUESTIONS))

    def run(*arguments):
        return CliRunner().invoke(cli.app, ["autojudge", *map(str, arguments), "--pair", "tiny"])

    found = run("mine", labels, "--n", 12, "--tasks", tasks, "--max-new-tokens", LONGEST)
    assert (found.exit_code, found.stdout) == (0, "15 swaps in 12 answers, 10 of them change the final number\n")
    found = run("train", labels, "--json", result)
    assert found.exit_code == 0, found.stderr
    rows = json.loads(result.read_text())["rows"]
    assert [row["states"] for row in rows][:2] == ["draft before + target own", "draft own + target own"]
    assert rows[0]["swaps"] == 15 and rows[0]["important"] == 10
    assert head_of(NumberPair()).made["questions"] == 12
    monkeypatch.setattr(NumberPair, "checksums", {"target": "other", "draft": "d"})
    found = run("train", labels)
    assert found.exit_code == 2 and "other models" in found.stderr
