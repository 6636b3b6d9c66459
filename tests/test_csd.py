"""CSD, the rule: the worked example token by token and count by count, its limits, and what it never rescues.
Follows arXiv 2604.13634, from digests; the example's numbers are theirs.
Left out: the memory by itself (test_csd_memory.py), the emitted law (test_exactness.py).
"""

import math

import pytest
import torch
from laws import SAMPLED, FixedTree
from test_batch import DRAFT, TARGET, prompts
from tiny import VOCAB
from torch.utils._python_dispatch import TorchDispatchMode

from specdec_lib.batch import decode_batch
from specdec_lib.csd.memory import CorrectionMemory
from specdec_lib.decode import Session, Stops, decode
from specdec_lib.drafters import ModelDrafter
from specdec_lib.model import CausalLM, TableModel
from specdec_lib.sampling import RandomChance, SamplingSettings
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers import GreedyMatch, Lenience, LosslessRejection, Scores
from specdec_lib.verifiers.cascade import Cascade
from specdec_lib.verifiers.csd import CSD
from specdec_lib.verifiers.csd_rate import CSDRate

GREEDY = SamplingSettings()


def remembered(pairs, drafted=None, **more):
    """A memory of these counts of rejections; every x drafted as often as it was rejected unless said."""
    memory = CorrectionMemory(pairs={pair: [0, count] for pair, count in pairs.items()}, **more)
    for (x, _), count in pairs.items():
        memory.drafted[x] = memory.drafted.get(x, 0) + count
    memory.drafted |= drafted or {}
    return memory


def full_memory(vocab=VOCAB):
    return remembered({(x, t): 1 for x in range(vocab) for t in range(vocab)}).freeze()


# ---- the worked example ----------------------------------------------------------------------------------------

# (committed before the round, draft, target's logits behind the root and every draft)
ROUNDS = [
    ([0, 2, 3], [[2, 2.5, 0.1, 0], [0, 0.2, 3, 1], [0.1, 0, 2, 1.8], [0, 0, 0, 1]]),
    ([3, 0, 1], [[0.5, 0.3, 1.2, 1], [0.3, 1.5, 0.2, 0.1], [0, 1, 0, 0], [0, 0, 0, 1]]),
    ([1, 2, 0], [[0, 2, 0.5, 0.5], [0.1, 0.2, 2.2, 0.3], [1.9, 0.4, 0.3, 0.2], [0.2, 0.1, 0.9, 0.4]]),
]
START = {(0, 1): 3, (3, 2): 2}


class Script:
    """A drafter that proposes the example's drafts; beside it a table that gives the rows of the round at hand."""

    name = "script"

    def __init__(self):
        self.round, self.base = -1, 0

    def start(self, prompt):
        pass

    def propose(self, context):
        self.round, self.base = self.round + 1, len(context.committed)
        return DraftTree.chain([context.committed[-1], *ROUNDS[self.round][0]][: context.room + 1])

    def observe(self, feedback):
        pass

    def logits_of(self, ids):
        return ROUNDS[self.round][1][len(ids) - self.base]


def worked(rule, limit=20):
    """Emitted ids and (0, 1), (3, 2) counts after each of the three rounds."""
    script, found = Script(), []
    session = Session(TableModel(script.logits_of, 4), script, rule).start([0])
    for r in session.rounds(limit):
        found.append((r.emitted, rule.memory.count(0, 1), rule.memory.count(3, 2)))
        if len(found) == len(ROUNDS):
            break
    return found, session.trace


def test_the_worked_example_token_by_token_and_count_by_count():
    memory = remembered(START)
    found, trace = worked(CSD(memory, 2, 0.5))
    assert found == [([0, 2, 2], 4, 3), ([3, 1], 5, 4), ([1, 2, 0, 2], 5, 4)]
    assert [r.outcomes for r in trace.rounds] == [
        {1: "rescued", 2: "exact", 3: "rejected"},
        {1: "rescued", 2: "rejected"},
        {1: "exact", 2: "exact", 3: "exact"},
    ]
    assert [r.last for r in trace.rounds] == ["recovered", "recovered", "bonus"]
    assert memory.pairs == {(3, 2): [1, 3], (0, 1): [1, 4]}
    # reached: 0 in both rounds and in the third; 2; 3; and nothing behind the stop of round 2
    assert memory.drafted == {0: 3 + 3, 3: 2 + 2, 2: 2, 1: 1}


def test_with_a_count_of_at_least_lambda_one_position_more_is_rescued():
    """>= lambda is > lambda - 1: position 1,3 passes, and the bonus behind it is token 3."""
    found, trace = worked(CSD(remembered(START), 1, 0.5))
    assert found[0] == ([0, 2, 3, 3], 4, 3)
    assert trace.rounds[0].outcomes == {1: "rescued", 2: "exact", 3: "rescued"}


def test_with_final_rejections_only_the_text_is_the_same_and_the_counts_are_lower():
    class FinalOnly(CorrectionMemory):
        def count(self, x, best):
            return self.pairs.get((x, best), (0, 0))[1]

    memory = FinalOnly(pairs={pair: [0, count] for pair, count in START.items()}, drafted={0: 3, 3: 2})
    found, _ = worked(CSD(memory, 2, 0.5))
    assert found == [([0, 2, 2], 3, 3), ([3, 1], 4, 3), ([1, 2, 0, 2], 4, 3)]


def test_plain_greedy_speculation_emits_one_token_in_the_first_round():
    found, _ = worked(CSD(remembered(START), math.inf, 0.5))
    assert found[0][0] == [1]


# ---- the two conditions ----------------------------------------------------------------------------------------


def verdict(rule, tree, rows, settings=GREEDY):
    scores = Scores(torch.as_tensor(rows, dtype=torch.float32), settings.adjuster(), lambda row: [0])
    return rule.verify(tree, scores, RandomChance(torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("count, kept", [(5, False), (6, False), (7, True)])
def test_the_count_must_exceed_lambda(count, kept):
    rule = CSD(remembered({(1, 2): count}), 6, 0)
    assert (verdict(rule, DraftTree.chain([0, 1]), [[0.0, 1.0, 2.0]] * 2).path == [1]) is kept


@pytest.mark.parametrize("gap, kept", [(0.69, True), (math.log(2) - 1e-6, True), (0.70, False)])
def test_the_gate_is_a_natural_logarithm(gap, kept):
    rule = CSD(remembered({(1, 2): 9}), 6, 0.5)
    assert (verdict(rule, DraftTree.chain([0, 1]), [[0.0, 2 - gap, 2.0]] * 2).path == [1]) is kept


def test_the_gate_reads_raw_logits():
    """At temperature 4 the adjusted gap is a quarter of the raw one; a banned argmax is not what x is compared with."""
    rows = [[-40.0, 0.0, 8.0]] * 2
    warm = SamplingSettings(temperature=4.0)
    tree = DraftTree(torch.tensor([0, 1]), [-1, 0], torch.tensor([[0.0, 1.0, 0.0]]))
    kept = [bool(verdict(CSD(remembered({(1, 2): 9}), 6, tau), tree, rows, warm).path) for tau in (0.01, 0.0001)]
    assert kept == [False, True]  # e^-8 = .0003; adjusted it would be e^-2 = .135
    banned = SamplingSettings(bad_words_ids=((2,),))
    rows = [[1.5, 1.0, 9.0]] * 2
    assert verdict(CSD(remembered({(1, 0): 9}), 6, 0.5), DraftTree.chain([0, 1]), rows, banned).path == [1]


def test_a_pair_is_directed():
    rule = CSD(remembered({(2, 1): 99}), 6, 0)
    assert verdict(rule, DraftTree.chain([0, 1]), [[0.0, 1.0, 2.0]] * 2).path == []


def test_the_second_of_two_equal_pairs_in_a_round_is_looked_up_as_the_round_began():
    """A rate falls as its token is drafted: looked up after the first, the second would fail. Both are then counted."""
    rows = [[0.0, 1.0, 2.0]] * 3
    memory = remembered({(1, 2): 5}, drafted={1: 10})
    rule = CSDRate(memory, 4, 0, rate=0.5)
    drafter = FixedTree([1, 1])
    target = TableModel(lambda ids: rows[0], 3)
    trace = decode(target, [0], 3, drafter, rule)
    assert trace.ids == [1, 1, 2] and memory.pairs[1, 2] == [2, 5] and memory.drafted[1] == 12


def test_verify_has_no_side_effect():
    rule = CSD(remembered({(1, 2): 5}), 4, 0)
    before = rule.memory.snapshot()
    verdict(rule, DraftTree.chain([0, 1, 0]), [[0.0, 1.0, 2.0]] * 3)
    assert rule.memory == before


# ---- limits ----------------------------------------------------------------------------------------------------


def run_all(rule, settings=GREEDY, n=6, new=14):
    texts = prompts(n, longest=6)
    lm, drafter = CausalLM(TARGET), ModelDrafter(CausalLM(DRAFT), 3)
    traces = decode_batch(lm, texts, new, drafter, rule, settings, size=3)
    return [(r.emitted, r.path, r.outcomes) for trace in traces for r in trace.rounds]


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_lambda_infinite_is_plain_speculation(settings):
    rule = CSD(full_memory(), math.inf, 0)
    assert rule.lossless and run_all(rule, settings) == run_all(LosslessRejection(), settings)


@pytest.mark.parametrize("tau", [0.5, 0.1])
def test_lambda_0_with_a_full_memory_the_gate_alone_lenience_and_cascade_are_one_rule_when_greedy(tau):
    runs = [run_all(rule) for rule in (CSD(full_memory(), 0, tau), CSD(None, 0, tau), Lenience(tau), Cascade(1 - tau))]
    assert runs[0] == runs[1] == runs[2] == runs[3]
    assert any("rescued" in outcomes.values() for _, _, outcomes in runs[0])
    assert any("rejected" in outcomes.values() for _, _, outcomes in runs[0])


def test_tau_0_is_the_memory_alone():
    memory = remembered({(x, t): 1 for x in range(0, VOCAB, 2) for t in range(VOCAB)}).freeze()
    found = run_all(CSD(memory, 0, 0))
    assert any("rescued" in outcomes.values() for _, _, outcomes in found)
    assert run_all(CSD(full_memory(), 0, 0)) == [
        (emitted, path, outcomes) for emitted, path, outcomes in run_all(CSD(None, 0, 0))
    ]
    assert all("rejected" not in outcomes.values() for _, _, outcomes in run_all(CSD(full_memory(), 0, 0)))


def test_the_gate_alone_is_never_lossless_whatever_lambda():
    assert not CSD(None, math.inf, 0.5).lossless and not CSD(None, math.inf, 0.5).learns
    assert verdict(CSD(None, math.inf, 0), DraftTree.chain([0, 1]), [[0.0, 1.0, 2.0]] * 2).path == [1]


@pytest.mark.parametrize("tau", [0.0, 0.1, 0.4])
def test_the_rescue_set_is_what_the_rule_rescues_token_by_token(tau):
    """Three rows with other argmaxes, a directed memory, a banned word that is one row's argmax."""
    settings = SamplingSettings(bad_words_ids=((3,),))
    rows = torch.tensor([[0.2, 2.0, 1.5, 1.9], [1.0, 0.5, 1.2, 0.0], [0.0, 0.3, 0.2, 9.0]])
    memory = remembered({(2, 1): 9, (0, 1): 9, (0, 2): 9, (1, 0): 9, (2, 0): 9, (3, 1): 9, (1, 2): 2})
    rule = CSD(memory, 6, tau, never={0} if tau == 0.1 else ())
    scores = Scores(rows, settings.adjuster(), lambda row: [0])
    found = rule.rescue_set(scores, torch.tensor([0, 1, 2]))
    for i, row in enumerate(rows):
        for x in range(4):
            kept = verdict(rule, DraftTree.chain([0, x]), torch.stack([row, row]), settings).outcomes[1]
            assert bool(found[i, x]) is (kept == "rescued")
    assert found.any() and not found.all()


def test_tau_1_rescues_ties_alone():
    rule = CSD(full_memory(3), 0, 1)
    assert verdict(rule, DraftTree.chain([0, 2]), [[1.0, 2.0, 2.0]] * 2).outcomes == {1: "rescued"}
    assert verdict(rule, DraftTree.chain([0, 2]), [[1.0, 2.0, 1.999]] * 2).path == []


@pytest.mark.parametrize("made", [lambda m: CSD(m, 0, 0), lambda m: CSDRate(m, 0, 0, rate=0.0)])
def test_rate_0_is_the_count_alone_and_a_rate_asks_for_more(made):
    memory = remembered({(1, 2): 3}, drafted={1: 10})
    tree, rows = DraftTree.chain([0, 1]), [[0.0, 1.0, 2.0]] * 2
    assert verdict(made(memory), tree, rows).path == [1]
    assert verdict(CSDRate(memory, 0, 0, rate=0.3), tree, rows).path == [1]
    assert verdict(CSDRate(memory, 0, 0, rate=0.31), tree, rows).path == []
    assert verdict(CSDRate(memory, 3, 0, rate=0.3), tree, rows).path == []


# ---- what it costs ---------------------------------------------------------------------------------------------


class Large(TorchDispatchMode):
    """How many tensors of a vocabulary or more were made, views left out."""

    def __init__(self, vocab):
        super().__init__()
        self.vocab, self.made = vocab, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        for tensor in found if isinstance(found, list | tuple) else [found]:
            if isinstance(tensor, torch.Tensor) and tensor.numel() >= self.vocab and not function.is_view:
                self.made += 1
        return found


@pytest.mark.parametrize(
    "made", [lambda m: CSD(m, 0, 0.01), lambda m: CSDRate(m, 0, 0.01), lambda m: CSD(None, 0, 0.01)]
)
def test_a_greedy_verdict_takes_no_softmax_and_makes_nothing_as_large_as_the_vocabulary(made, monkeypatch):
    """Of bfloat16 logits one float32 copy is made, by the loop's scores: the standard rule's verdict makes it, too."""
    vocab = 5000
    rows = torch.randn(4, vocab, generator=torch.Generator().manual_seed(1))
    drafts = [int(rows[0].argmax()), int(rows[1].topk(2).indices[1]), 7]
    memory = remembered({(drafts[1], int(rows[1].argmax())): 9}).freeze()
    for owner in (torch, torch.Tensor, torch.nn.functional):
        for name in ("softmax", "log_softmax", "logsumexp"):
            monkeypatch.setattr(
                owner, name, lambda *a, **k: pytest.fail("a softmax over the vocabulary"), raising=False
            )
    for dtype, copies in ((torch.float32, 0), (torch.bfloat16, 1)):
        scores = [Scores(rows.to(dtype), GREEDY.adjuster(), lambda row: [0]) for _ in range(2)]
        counts = []
        for rule, known in zip((made(memory), GreedyMatch()), scores, strict=True):
            with Large(vocab) as large:
                found = rule.verify(DraftTree.chain([0, *drafts]), known, None)
            counts.append(large.made)
            assert ("rescued" in found.outcomes.values()) is not isinstance(rule, GreedyMatch)
        assert counts == [copies, copies]


@pytest.mark.parametrize(
    "made, rescued",
    [
        (lambda m: CSD(m, 6, 0), ["right", "wrong", "slip"]),
        (lambda m: CSDRate(m, 6, 0, rate=0.3), ["right", "wrong"]),
        (lambda m: CSDRate(m, 6, 0, rate=0.9), []),
        (lambda m: CSDRate(m, 6, 0.01, rate=0.3), ["right"]),
    ],
    ids=["count", "rate .3", "rate .9", "rate .3 and a gate"],
)
def test_a_pair_that_is_right_by_its_context_has_one_rate_for_all_places(made, rescued):
    """Word 0 was turned down for 1 in 60 of 100 places, right in half of them: no rate tells these apart, a gate can.
    The slip 2 for 3 was turned down 9 times of 300: a count passes it, a rate refuses it.
    """
    rule = made(remembered({(0, 1): 60, (2, 3): 9}, drafted={0: 100, 2: 300}).freeze())
    places = {"right": (0, 1, 0.2), "wrong": (0, 1, 0.004), "slip": (2, 3, 0.03)}
    found = []
    for name, (x, wanted, ratio) in places.items():
        rows = torch.full((2, 4), -9.0)
        rows[:, wanted], rows[:, x] = 0.0, math.log(ratio)
        found += [name] if verdict(rule, DraftTree.chain([1, x]), rows).path else []
    assert found == rescued


# ---- what is never rescued -------------------------------------------------------------------------------------


def test_eos_and_special_tokens_are_never_rescued_unless_asked():
    tree, rows = DraftTree.chain([0, 1]), [[0.0, 1.0, 2.0]] * 2
    assert verdict(CSD(full_memory(3), 0, 0), tree, rows).path == [1]
    assert verdict(CSD(full_memory(3), 0, 0, never={1}), tree, rows).path == []


def test_what_the_settings_forbid_is_never_rescued():
    tree, rows = DraftTree.chain([0, 1]), [[0.0, 1.0, 2.0]] * 2
    banned = SamplingSettings(bad_words_ids=((1,),))
    assert verdict(CSD(full_memory(3), 0, 0), tree, rows, banned).path == []
    top = SamplingSettings(temperature=1.0, top_k=1)
    drawn = DraftTree(torch.tensor([0, 1]), [-1, 0], torch.tensor([[0.0, 1.0, 0.0]]))
    assert verdict(CSD(full_memory(3), 0, 0), drawn, rows, top).path == []


def test_an_id_outside_the_vocabulary_is_rejected():
    assert verdict(CSD(full_memory(9), 0, 0), DraftTree.chain([0, 7]), [[0.0, 1.0, 2.0]] * 2).path == []


def test_the_argmax_rejected_by_chance_is_no_pair():
    """Drawn far too often, the argmax is turned down: neither rescued nor remembered, only counted as drafted."""
    memory = remembered({(2, 2): 99})
    tree = DraftTree(torch.tensor([0, 2]), [-1, 0], torch.tensor([[0.0, 0.0, 1.0]]))
    rows, rejected = [[1.0, 1.0, 1.01]] * 2, 0
    for seed in range(20):
        scores = Scores(torch.tensor(rows), SAMPLED.adjuster(), lambda row: [0])
        found = CSD(memory, 0, 0).verify(tree, scores, RandomChance(torch.Generator().manual_seed(seed)))
        assert "rescued" not in found.outcomes.values()
        rejected += found.path == []
    assert rejected > 5
    memory = CorrectionMemory()
    memory.teach([0, 2], [-1, 0], {1: "rejected"}, [2, 0], [0, 1], 1)
    assert memory.pairs == {} and memory.drafted == {2: 1}


def test_a_tree_tries_exact_children_first():
    rows = [[0.0, 1.0, 2.0, 3.0]] * 4
    tree = DraftTree(torch.tensor([0, 1, 2, 3]), [-1, 0, 0, 0])
    assert verdict(CSD(full_memory(4), 0, 0), tree, rows).path == [3]
    only_two = remembered({(2, 3): 9})
    assert verdict(CSD(only_two, 6, 0), DraftTree(tree.tokens[:3], [-1, 0, 0]), rows[:3]).outcomes == {
        1: "rejected",
        2: "rescued",
    }


# ---- learning --------------------------------------------------------------------------------------------------


def test_a_round_that_is_interrupted_teaches_nothing():
    class Breaks(FixedTree):
        def observe(self, feedback):
            raise KeyboardInterrupt

    rule = CSD(CorrectionMemory(), 0, 0)
    session = Session(TableModel(lambda ids: [0.0, 1.0, 2.0], 3), Breaks([1]), rule).start([0])
    with pytest.raises(KeyboardInterrupt):
        next(session.rounds(4))
    assert rule.memory == CorrectionMemory()


def test_nothing_is_counted_behind_a_stop():
    """EOS 1 is accepted, and ends the text before the mismatch behind it."""
    target = TableModel(lambda ids: [0.0, 2.0, 1.0] if len(ids) == 1 else [2.0, 0.0, 1.0], 3)
    counts = []
    for eos in ({}, {1}):
        rule = CSD(CorrectionMemory(), 9, 0)
        decode(target, [0], 2, FixedTree([1, 2]), rule, stops=Stops(frozenset(eos)))
        counts.append((rule.memory.pairs, rule.memory.drafted))
    assert counts[1] == ({}, {1: 1})
    assert counts[0][1][1] == 1


def test_a_frozen_memory_stays_as_it_is_and_goes_in_batches_a_learning_one_text_by_text():
    lm, drafter, texts = CausalLM(TARGET), ModelDrafter(CausalLM(DRAFT), 3), prompts(5, longest=6)
    for frozen in (True, False):
        memory = CorrectionMemory().freeze() if frozen else CorrectionMemory()
        rule = CSD(memory, 1, 0)
        assert rule.learns is not frozen
        alone = CSD(memory.snapshot().freeze() if frozen else memory.snapshot(), 1, 0)
        batched = decode_batch(lm, texts, 10, drafter, rule, size=4)
        one_by_one = [decode(lm, text, 10, drafter, alone) for text in texts]
        assert [t.ids for t in batched] == [t.ids for t in one_by_one]
        assert alone.memory == rule.memory and bool(memory.pairs) is not frozen
        assert {t.learning for t in batched} == {not frozen}


def test_a_frozen_memory_makes_texts_independent_of_the_order_of_requests_a_learning_one_does_not():
    """A taught memory: frozen, each request gets the same rounds in any order; learning, not, and the traces say so."""
    lm, drafter, texts = CausalLM(TARGET), ModelDrafter(CausalLM(DRAFT), 3), prompts(6, longest=6)
    taught = CorrectionMemory()
    for text in texts:
        taught.teach_trace(decode(lm, text, 14, drafter))
    assert max(sum(counts) for counts in taught.pairs.values()) > 1

    def answers(memory, order):
        rule = CSD(memory, 1, 0)
        traces = {i: decode(lm, texts[i], 14, drafter, rule) for i in order}
        assert {trace.learning for trace in traces.values()} == {rule.learns}
        return {i: [(r.emitted, r.path, r.outcomes) for r in trace.rounds] for i, trace in traces.items()}

    there, back = range(6), (3, 5, 0, 4, 2, 1)
    frozen = answers(taught.snapshot().freeze(), there)
    assert frozen == answers(taught.snapshot().freeze(), back)
    assert any("rescued" in outcomes.values() for rounds in frozen.values() for *_, outcomes in rounds)
    assert answers(taught.snapshot(), there) != answers(taught.snapshot(), back)


def test_what_a_text_teaches_is_the_same_from_its_trace():
    lm, drafter, texts = CausalLM(TARGET), ModelDrafter(CausalLM(DRAFT), 3), prompts(4, longest=6)
    stops = Stops(frozenset({3, 17}))
    learning, told = CSD(CorrectionMemory(contexts_kept=2), math.inf, 0), CorrectionMemory(contexts_kept=2)
    for text in texts:
        told.teach_trace(decode(lm, text, 12, drafter, GreedyMatch(), stops=stops))
        decode(lm, text, 12, drafter, learning, stops=stops)
    learning.memory.texts = len(texts)
    assert told == learning.memory and told.pairs


@pytest.mark.parametrize(
    "made, message",
    [
        (lambda: CSD(None, -1), "lambda of csd.*got -1"),
        (lambda: CSD(None, math.nan), "lambda of csd"),
        (lambda: CSD(None, True), "lambda of csd"),
        (lambda: CSD(None, 6, 1.5), "tau of csd.*got 1.5"),
        (lambda: CSD(None, 6, -0.1), "tau of csd"),
        (lambda: CSDRate(CorrectionMemory(), 6, 0, rate=2), "rate of csd-rate.*got 2"),
    ],
)
def test_knobs_out_of_range_are_named(made, message):
    with pytest.raises(ValueError, match=message):
        made()
