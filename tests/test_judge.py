"""The judge's rule on hand-made trees and on models; its head's file, and what is refused.
Follows specdec_lib/verifiers/judge.py and specdec_lib/judge/head.py.
Left out: the label set (test_judge_data.py), training and the shipped heads (test_judge_train.py).
"""

import dataclasses
import json
import math

import pytest
import tiny
import torch
from safetensors.torch import save_file
from test_verifiers import GREEDY, chance, one_hots

from specdec_lib.decode import Session, decode
from specdec_lib.drafters import ModelDrafter
from specdec_lib.judge import HeadError, JudgeHead, head_of
from specdec_lib.judge import head as head_file
from specdec_lib.judge.features import features
from specdec_lib.judge.labels import LabelledAnswer
from specdec_lib.model import CausalLM
from specdec_lib.sampling import SamplingSettings
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers import GreedyMatch, LosslessRejection, Scores
from specdec_lib.verifiers.judge import Judge

SAMPLED = SamplingSettings(temperature=1.0)
# Fires on a hidden state whose first number is large.
HEAD = JudgeHead(torch.tensor([1.0, 0.0]), 0.0, 2, "none")


def scores(rows, hidden, settings=GREEDY):
    hidden = torch.tensor(hidden, dtype=torch.float32)
    return Scores(torch.as_tensor(rows, dtype=torch.float64), settings.adjuster(), None, hidden)


def score(s):
    """A hidden state to which HEAD gives the score s."""
    return [math.log(s / (1 - s)), 7.0]


def kept(rule, tree, rows, hidden, settings=GREEDY):
    return rule.verify(tree, scores(rows, hidden, settings), chance())


# ---- the rule --------------------------------------------------------------------------------------------------


def test_by_hand_standard_or_score_above_delta_and_the_leading_run_is_kept():
    """Target 1 2 3 4 5; draft 1 8 8 4: match, .7, .4, match. At .5 node 3 falls and the target's 3 follows."""
    tree, rows = DraftTree.chain([0, 1, 8, 8, 4]), one_hots(1, 2, 3, 4, 5)
    hidden = [score(0.99), score(0.01), score(0.7), score(0.4), score(0.01)]
    verdict = kept(Judge(HEAD, 0.5), tree, rows, hidden)
    assert (verdict.path, verdict.token, verdict.kind) == ([1, 2], 3, "recovered")
    assert verdict.outcomes == {1: "exact", 2: "rescued", 3: "rejected"}
    verdict = kept(Judge(HEAD, 0.3), tree, rows, hidden)
    assert (verdict.path, verdict.token, verdict.kind) == ([1, 2, 3, 4], 5, "bonus")
    assert kept(Judge(HEAD, 0.8), tree, rows, hidden).path == [1]


def test_the_score_is_read_at_the_token_s_own_row():
    """Only row 2 fires: node 2 is rescued; a rule that read the parent's row would rescue node 3 instead."""
    tree, rows = DraftTree.chain([0, 1, 8, 8]), one_hots(1, 2, 3, 4)
    verdict = kept(Judge(HEAD), tree, rows, [score(0.1), score(0.1), score(0.9), score(0.1)])
    assert verdict.outcomes == {1: "exact", 2: "rescued", 3: "rejected"}


def test_exact_children_come_first_and_a_rescued_one_only_where_none_is():
    """Below the root: 8 (score .9) and 1 (exact): 1 is kept. Below 1: 7 (.2) and 8 (.9): 8 is rescued."""
    tree = DraftTree(torch.tensor([0, 8, 1, 7, 8]), [-1, 0, 0, 2, 2])
    hidden = [score(0.1), score(0.9), score(0.1), score(0.2), score(0.9)]
    verdict = kept(Judge(HEAD), tree, one_hots(1, 5, 2, 3, 4), hidden)
    assert (verdict.path, verdict.token) == ([2, 4], 4)
    assert verdict.outcomes == {1: "rejected", 2: "exact", 3: "rejected", 4: "rescued"}


def test_above_is_strict_and_a_score_next_to_1_is_not_rounded_to_it():
    tree, rows = DraftTree.chain([0, 8]), one_hots(1, 2)
    assert kept(Judge(HEAD, 0.5), tree, rows, [[0.0, 0.0]] * 2).path == []
    assert torch.sigmoid(torch.tensor(30.0)) == 1
    assert kept(Judge(HEAD, 1 - 1e-12), tree, rows, [[30.0, 0.0]] * 2).path == [1]
    assert kept(Judge(HEAD, 1 - 1e-14), tree, rows, [[30.0, 0.0]] * 2).path == []


@pytest.mark.parametrize("hidden", [0.0, 1e30, -1e30, math.inf, -math.inf, math.nan])
def test_delta_0_keeps_all_and_delta_1_is_the_standard_rule_whatever_the_hidden_states(hidden):
    tree = DraftTree(torch.tensor([0, 1, 8, 8, 7]), [-1, 0, 1, 2, 2])
    rows, states = one_hots(1, 2, 3, 4, 5), [[hidden, hidden]] * 5
    everything, nothing = (kept(Judge(HEAD, delta), tree, rows, states) for delta in (0, 1))
    assert everything.path == [1, 2, 3]
    assert nothing == GreedyMatch().verify(tree, scores(rows, states), chance())
    assert Judge(HEAD, 1).lossless and not Judge(HEAD, 0.999).lossless


def test_a_score_that_is_nan_rescues_nothing():
    tree = DraftTree.chain([0, 1, 8])
    assert kept(Judge(HEAD, 0.01), tree, one_hots(1, 2, 3), [[math.nan, 0.0]] * 3).path == [1]


@pytest.mark.parametrize("delta", [0, 0.5])
def test_what_the_settings_forbid_or_the_vocabulary_lacks_is_never_rescued(delta):
    """D2, A23: id 11 of 9; a token with a logit of -inf."""
    rows = one_hots(1, 2)
    rows[0, 4] = -math.inf
    for token, path in ((11, []), (4, []), (5, [1])):
        assert kept(Judge(HEAD, delta), DraftTree.chain([0, token]), rows, [score(0.9)] * 2).path == path


@pytest.mark.parametrize("value", [-0.1, 1.1, True, "0.5", math.nan, None])
def test_delta_outside_0_to_1_is_refused(value):
    with pytest.raises(ValueError, match="delta"):
        Judge(HEAD, value)


def test_without_hidden_states_or_with_those_of_another_model_it_says_so():
    tree, rows = DraftTree.chain([0, 1]), one_hots(1, 2)
    with pytest.raises(ValueError, match="hidden states"):
        Judge(HEAD).verify(tree, Scores(rows, GREEDY.adjuster(), None), chance())
    with pytest.raises(HeadError, match="width 2; the target's have 3"):
        kept(Judge(HEAD), tree, rows, [[1.0, 2.0, 3.0]] * 2)


# ---- in the loop -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def models():
    target = tiny.llama(seed=1)
    return CausalLM(target), CausalLM(tiny.disturbed(target, 2, 0.12))


@pytest.fixture(scope="module")
def head():
    weight = torch.randn(32, generator=torch.Generator().manual_seed(5))
    return JudgeHead(weight, 0.0, 2, "tiny")


def pairs_of_rules(head):
    return [(GREEDY, GreedyMatch()), (GREEDY, LosslessRejection()), (SAMPLED, LosslessRejection())]


@pytest.mark.parametrize("siblings", [(), (2, 2)], ids=["chain", "tree"])
@pytest.mark.parametrize("which", [0, 1, 2], ids=["greedy", "lossless-0", "lossless-1"])
def test_at_delta_1_the_trace_is_the_base_rule_s(models, head, siblings, which):
    settings, base = pairs_of_rules(head)[which]
    target, draft = models
    traces = [
        decode(target, prompt, 30, ModelDrafter(draft, 4, siblings), rule, settings, seed=3)
        for prompt in tiny.prompts(3)
        for rule in (base, Judge(head, 1))
    ]
    rounds = [[(r.tokens, r.path, r.outcomes, r.emitted, r.last) for r in trace.rounds] for trace in traces]
    assert rounds[0::2] == rounds[1::2]
    assert any("rejected" in r.outcomes.values() for trace in traces for r in trace.rounds)


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_at_delta_0_the_text_is_the_draft_s_but_for_each_round_s_own_token(models, head, settings):
    target, draft = models
    trace = decode(target, [3, 1, 4], 33, ModelDrafter(draft, 4), Judge(head, 0), settings, seed=1)
    whole = [r for r in trace.rounds if r.proposed == 4]
    assert whole and all(len(r.path) == 4 and r.last == "bonus" for r in whole)
    assert {"exact", "rescued"} <= {outcome for r in whole for outcome in r.outcomes.values()}
    assert not trace.lossless


def test_a_rescued_token_is_one_whose_own_row_the_head_calls_right(models, head):
    """In the loop, against hidden states read in one pass over the finished text: the shift of one, on a model."""
    target, draft = models
    prompt = [5, 9, 2]
    trace = decode(target, prompt, 60, ModelDrafter(draft, 4), Judge(head, 0.5))
    from specdec_lib.model import final_norm, input_of

    with torch.inference_mode(), input_of(final_norm(target.model)) as states:
        target.model(input_ids=torch.tensor([[*prompt, *trace.ids]]))
    right = (head.logits(states[0][0]) > 0).tolist()
    at, rescued = len(prompt), 0
    for r in trace.rounds:
        for i, node in enumerate(r.path):
            assert r.outcomes[node] == "exact" or right[at + i]
            rescued += r.outcomes[node] == "rescued"
        at += len(r.emitted)
    assert rescued > 3


def test_features_are_what_the_loop_hands_the_verifier(pair):
    """Every answer token's state, read as a whole text, equals the row that a verifier is given for it."""
    prompt = "mia has 12 pens. tom gives mia 5 pens. how many pens does mia have?"
    seen = []

    class Noting(GreedyMatch):
        needs = frozenset({"hidden"})

        def verify(self, tree, scores, chance):
            verdict = super().verify(tree, scores, chance)
            seen.extend(scores.hidden[node] for node in [0, *verdict.path])
            return verdict

    trace = decode(pair.target, pair.prompt(prompt), 40, ModelDrafter(pair.draft, 4), Noting())
    answers = [LabelledAnswer(prompt, tuple(trace.ids[:n]), "+" * n) for n in (7, 39)]  # of two lengths: one is padded
    found = features(pair, answers).hidden[12]
    whole = found[7:]
    loop = torch.stack(seen)[1 : 1 + len(whole)]  # the first row is the prompt's last token
    assert torch.allclose(whole, loop, atol=1e-3) and torch.allclose(found[:7], whole[:7], atol=1e-3)
    assert not torch.allclose(whole[1:], loop[:-1], atol=0.5)


def test_session_and_batch_agree(pair, shipped_head):
    from specdec_lib.batch import decode_batch

    prompts = [pair.prompt(f"mia has {n} pens. tom gives mia 5 pens. how many pens does mia have?") for n in (12, 31)]
    drafter, rule = ModelDrafter(pair.draft, 8), Judge(shipped_head)
    batch = decode_batch(pair.target, prompts, 80, drafter, rule, stops=pair.stops)
    alone = [Session(pair.target, drafter, rule, stops=pair.stops).start(p).run(80) for p in prompts]
    assert [t.ids for t in batch] == [t.ids for t in alone]
    assert [[r.outcomes for r in t.rounds] for t in batch] == [[r.outcomes for r in t.rounds] for t in alone]


# ---- the head's file -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shipped_head(pair):
    return head_of(pair)


def test_a_head_survives_its_file(tmp_path):
    made = JudgeHead(torch.randn(5), -0.25, 3, "abc", True, {"labels": "x.jsonl", "n": 3})
    made.save(tmp_path / "head.safetensors")
    read = JudgeHead.load(tmp_path / "head.safetensors")
    assert torch.equal(read.weight, made.weight)
    assert dataclasses.replace(read, weight=None) == dataclasses.replace(made, weight=None)
    hidden = torch.randn(4, 5)
    assert torch.equal(read.scores(hidden), made.scores(hidden))


def test_normed_reads_the_state_s_direction_alone():
    head = JudgeHead(torch.tensor([1.0, -2.0]), 0.5, 1, "x", normed=True)
    hidden = torch.tensor([[3.0, 4.0]])
    root = math.sqrt(12.5)
    assert head.logits(hidden).item() == pytest.approx(3 / root - 8 / root + 0.5)
    assert head.logits(1000 * hidden).item() == pytest.approx(head.logits(hidden).item())


def spoiled(file, what):
    made = JudgeHead(torch.ones(4), 0.0, 2, "abc")
    made.save(file)
    data = file.read_bytes()
    tensors, about = {"weight": torch.ones(4), "bias": torch.zeros(1)}, {"format": head_file.FORMAT, "version": "1"}
    about |= {"width": "4", "layer": "2", "normed": "false", "target": "abc", "made": "{}"}
    if what == "changed by a bit":
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        return
    (file.parent / "SHA256SUMS").unlink()
    match what:
        case "cut short":
            file.write_bytes(data[:-3])
        case "no safetensors":
            file.write_text("hello")
        case "something else":
            save_file(tensors, file)
        case "another version":
            save_file(tensors, file, about | {"version": "2"})
        case "a tensor missing":
            save_file({"weight": torch.ones(4)}, file, about)
        case "another width":
            save_file(tensors, file, about | {"width": "5"})
        case "NaN":
            save_file(tensors | {"weight": torch.full((4,), math.nan)}, file, about)
        case "a field missing":
            save_file(tensors, file, {key: value for key, value in about.items() if key != "layer"})
        case "a field that is no number":
            save_file(tensors, file, about | {"layer": "last"})


@pytest.mark.parametrize(
    "what",
    ["changed by a bit", "cut short", "no safetensors", "something else", "another version", "a tensor missing",
     "another width", "NaN", "a field missing", "a field that is no number"],
)  # fmt: skip
def test_a_damaged_or_foreign_file_is_refused_with_what_to_do(tmp_path, what):
    file = tmp_path / "head.safetensors"
    spoiled(file, what)
    with pytest.raises(HeadError, match=r"head\.safetensors.*(restore|train)"):
        JudgeHead.load(file)


def test_a_missing_file_and_another_ending_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.safetensors"):
        JudgeHead.load(tmp_path / "none.safetensors")
    with pytest.raises(ValueError, match=r"\.safetensors"):
        HEAD.save(tmp_path / "head.bin")


def test_sums_of_other_files_stay(tmp_path):
    (tmp_path / "SHA256SUMS").write_text("00ff  target/model.safetensors\n")
    HEAD.save(tmp_path / "a.safetensors")
    HEAD.save(tmp_path / "a.safetensors")
    lines = (tmp_path / "SHA256SUMS").read_text().splitlines()
    assert len(lines) == 2 and lines[0] == "00ff  target/model.safetensors" and lines[1].endswith("  a.safetensors")


def test_the_head_of_a_pair_is_found_by_its_target_s_checksum(pair, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path))
    monkeypatch.setattr(head_file, "data_folder", lambda: tmp_path / "nothing")
    with pytest.raises(HeadError, match="specdec judge train --pair pocket"):
        head_of(pair)
    folder = head_file.heads_folder()
    folder.mkdir()
    (folder / "junk.safetensors").write_text("junk")
    JudgeHead(torch.ones(192), 0.0, 12, "another").save(folder / "b.safetensors")
    with pytest.raises(HeadError, match="no judge head"):
        head_of(pair)
    JudgeHead(torch.ones(192), 0.5, 12, pair.checksums["target"]).save(folder / "a.safetensors")
    assert head_of(pair).bias == 0.5


@pytest.mark.parametrize("change", [{"target": "other"}, {"layer": 11}, {"weight": torch.ones(64)}])
def test_a_head_of_another_target_layer_or_width_does_not_fit(pair, change):
    right = JudgeHead(torch.ones(192), 0.0, 12, pair.checksums["target"])
    head_file.check_fits(right, pair)
    with pytest.raises(HeadError, match="this head"):
        head_file.check_fits(dataclasses.replace(right, **change), pair)


def test_what_a_head_was_made_of_is_plain_json(shipped_head, pair):
    assert json.loads(json.dumps(shipped_head.made)) == shipped_head.made
    assert shipped_head.target == pair.checksums["target"]
