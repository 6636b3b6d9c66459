"""What a rule may ask of the loop: hidden states, draft rows, scouts; and what a rescued token is.
Our own; the shift of one between a token's own row and the row that verifies it is that of arXiv 2501.19309.
Left out: the rules that use them, each with its own tests.
"""

import pytest
import torch
from laws import SAMPLED
from test_batch import DRAFT, TARGET, prompts
from tiny import VOCAB

from specdec_lib.batch import decode_batch
from specdec_lib.decode import Session, decode
from specdec_lib.drafters import ModelDrafter
from specdec_lib.model import CausalLM, TableModel, final_norm
from specdec_lib.sampling import RandomChance, SamplingSettings
from specdec_lib.trace import Trace
from specdec_lib.tree import DraftTree, TreeError
from specdec_lib.verifiers import GreedyMatch, LosslessRejection, Scores
from specdec_lib.verifiers.base import SureRoll, walk
from specdec_lib.verifiers.greedy import matches

GREEDY = SamplingSettings()
EVERYTHING = frozenset({"hidden", "draft_rows", "draft_hidden"})


class Watcher(LosslessRejection):
    """The lossless rule; keeps what it was given, by the text before the round."""

    needs = EVERYTHING

    def __init__(self):
        self.seen = {}

    def verify(self, tree, scores, chance):
        self.seen[tuple(scores.prefix(0))] = tree, scores.hidden
        return super().verify(tree, scores, chance)


def watched(settings, siblings=()):
    """Every round of four short texts: (text before, tree, hidden)."""
    rule = Watcher()
    for text in prompts(4, longest=6):
        decode(CausalLM(TARGET), text, 10, ModelDrafter(CausalLM(DRAFT), 3, siblings), rule, settings)
    found = [(text, *given) for text, given in rule.seen.items() if len(given[0]) > 1]
    assert len(found) > 10
    return found


@torch.inference_mode()
def states(model, ids):
    """(tokens, width) before the final norm and (tokens, vocabulary) logits of a whole text, without any cache."""
    norms = []
    hook = final_norm(model).register_forward_pre_hook(lambda module, args: norms.append(args[0][0]))
    logits = model(torch.tensor([ids])).logits[0]
    hook.remove()
    return norms[0], logits


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("siblings", [(), (2, 2)], ids=["chain", "tree"])
def test_every_node_comes_with_its_own_hidden_state_and_with_the_draft_row_before_it(settings, siblings):
    for text, tree, hidden in watched(settings, siblings):
        for node in range(len(tree)):
            path = [int(tree.tokens[n]) for n in tree.path_to(node)]
            own, _ = states(TARGET, [*text, *path])
            torch.testing.assert_close(hidden[node], own[-1], rtol=0, atol=1e-9)
            if node:
                before, logits = states(DRAFT, [*text, *path[:-1]])
                torch.testing.assert_close(tree.draft_hidden[node - 1], before[-1], rtol=0, atol=1e-9)
                torch.testing.assert_close(tree.draft_rows[node - 1], logits[-1], rtol=0, atol=1e-9)


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_a_batch_gives_what_a_text_alone_is_given(settings):
    lm, texts, drafter = CausalLM(TARGET), prompts(6, longest=6), ModelDrafter(CausalLM(DRAFT), 3)
    alone, batched = Watcher(), Watcher()
    for i, text in enumerate(texts):
        decode(lm, text, 9, drafter, alone, settings, seed=i)
    decode_batch(lm, texts, 9, drafter, batched, settings, size=4)
    assert batched.seen.keys() == alone.seen.keys()
    for text, (tree, hidden) in batched.seen.items():
        other, other_hidden = alone.seen[text]
        assert tree.tokens.tolist() == other.tokens.tolist()
        pairs = [(hidden, other_hidden)]
        if len(tree) > 1:
            pairs += [(tree.draft_rows, other.draft_rows), (tree.draft_hidden, other.draft_hidden)]
        for found, expected in pairs:
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_nothing_is_collected_that_no_rule_needs():
    class Plain(Watcher):
        needs = frozenset()

    rule = Plain()
    decode(CausalLM(TARGET), [1, 2, 3], 8, ModelDrafter(CausalLM(DRAFT), 3), rule)
    assert all(t.draft_rows is t.draft_hidden is hidden is None for t, hidden in rule.seen.values())


def test_a_table_without_hidden_states_says_so():
    with pytest.raises(ValueError, match="hidden_of"):
        decode(TableModel.constant([0.5, 0.5]), [0], 3, None, Watcher())
    table = TableModel(lambda ids: [0.0, 1.0], 2, hidden_of=lambda ids: [len(ids), ids[-1]])
    rule = Watcher()
    decode(table, [0], 2, None, rule)
    assert [hidden.tolist() for _, hidden in rule.seen.values()] == [[[1.0, 0.0]], [[2.0, 1.0]]]


# ---- scouts ----------------------------------------------------------------------------------------------------


class SecondCopy(GreedyMatch):
    """Greedy match, with the whole proposal scored once more behind itself."""

    def __init__(self):
        self.rooms, self.rows = [], []

    def with_scouts(self, tree, room):
        self.rooms.append(room)
        copy = tree.tokens[1:]
        if tree.depth + len(copy) > room:
            return tree
        return tree.with_scouts(copy, range(len(tree) - 1, len(tree) + len(copy) - 1))

    def verify(self, tree, scores, chance):
        self.rows.append(len(scores.logits))
        return super().verify(tree, scores, chance)


def test_scouts_are_scored_and_never_kept():
    lm, drafter, text = CausalLM(TARGET), ModelDrafter(CausalLM(DRAFT), 3), [1, 2, 3]
    rule = SecondCopy()
    with_scouts, without = decode(lm, text, 12, drafter, rule), decode(lm, text, 12, drafter, GreedyMatch())
    assert with_scouts.ids == without.ids
    assert [r.path for r in with_scouts.rounds] == [r.path for r in without.rounds]
    for r, other, rows, room in zip(with_scouts.rounds, without.rounds, rule.rows, rule.rooms, strict=True):
        assert (r.proposed, r.depth) == (other.proposed, other.depth)
        assert len(r.scouts) == other.proposed and rows == 1 + 2 * other.proposed
        assert room == lm.context - len(text) - sum(
            len(x.emitted) for x in with_scouts.rounds[: rule.rooms.index(room)]
        )


def test_a_trace_remembers_its_scouts(tmp_path):
    trace = decode(CausalLM(TARGET), [1, 2], 6, ModelDrafter(CausalLM(DRAFT), 2), SecondCopy())
    trace.save(tmp_path / "t.jsonl")
    assert Trace.load(tmp_path / "t.jsonl").rounds == trace.rounds
    assert any(r.scouts for r in trace.rounds)


def test_a_batch_scores_scouts_too():
    lm, drafter, texts = CausalLM(TARGET), ModelDrafter(CausalLM(DRAFT), 3), prompts(5, longest=6)
    for text, trace in zip(texts, decode_batch(lm, texts, 9, drafter, SecondCopy(), size=3), strict=True):
        alone = decode(lm, text, 9, drafter, SecondCopy())
        assert [(r.tokens, r.scouts, r.emitted) for r in trace.rounds] == [
            (r.tokens, r.scouts, r.emitted) for r in alone.rounds
        ]


def test_a_batch_refuses_scouts_that_branch():
    class Branching(GreedyMatch):
        def with_scouts(self, tree, room):
            return tree.with_scouts([1, 2], [0, 0])

    with pytest.raises(ValueError, match="one by one"):
        decode_batch(CausalLM(TARGET), [[1, 2]], 4, ModelDrafter(CausalLM(DRAFT), 2), Branching())


def test_scouts_below_a_sampled_draft_leave_the_law_alone():
    """Their draft rows are zeros: no chance to be accepted, and nothing taken off the residual."""

    class Sampled(SecondCopy):
        verify = LosslessRejection.verify

    lm, drafter = CausalLM(TARGET), ModelDrafter(CausalLM(DRAFT), 3)
    for seed in range(5):
        with_scouts = decode(lm, [1, 2], 10, drafter, Sampled(), SAMPLED, seed=seed)
        first = with_scouts.rounds[0]
        assert len(first.scouts) == 3 and not set(first.scouts) & set(first.outcomes)


def test_rows_that_do_not_fit_the_tree_are_refused():
    for name in ("draft_rows", "draft_hidden"):
        with pytest.raises(TreeError, match=f"{name} has 3 rows for 2"):
            DraftTree(torch.tensor([0, 1, 2]), [-1, 0, 1], **{name: torch.zeros(3, 4)})


# ---- rescued tokens --------------------------------------------------------------------------------------------


def verdict(tree, rows, rescued, settings=GREEDY):
    scores = Scores(torch.as_tensor(rows, dtype=torch.float64), settings.adjuster(), lambda row: [0])
    return walk(tree, scores, matches(tree, scores), SureRoll(scores.best), torch.tensor(rescued))


def test_exact_children_come_before_rescued_ones():
    """Root 0 with children 1, 2, 3; the argmax is 3, and all three would be rescued."""
    rows = [[0.0, 1.0, 2.0, 3.0]] * 4
    tree = DraftTree(torch.tensor([0, 1, 2, 3]), [-1, 0, 0, 0])
    found = verdict(tree, rows, [True] * 4)
    assert (found.path, found.outcomes) == ([3], {1: "rejected", 2: "rejected", 3: "exact"})
    found = verdict(DraftTree(tree.tokens[:3], [-1, 0, 0]), rows[:3], [True] * 3)
    assert (found.path, found.outcomes) == ([1], {1: "rescued", 2: "rejected"})


def test_the_walk_goes_on_below_a_rescued_node():
    rows = [[0.0, 0.0, 5.0], [0.0, 5.0, 0.0], [5.0, 0.0, 0.0]]
    found = verdict(DraftTree.chain([0, 1, 1]), rows, [False, True, False])
    assert (found.path, found.outcomes, found.token) == ([1, 2], {1: "rescued", 2: "exact"}, 0)


def test_what_the_settings_forbid_is_never_rescued():
    settings = SamplingSettings(bad_words_ids=((1,),))
    rows = [[0.0, 9.0, 1.0], [0.0, 0.0, 1.0]]
    found = verdict(DraftTree.chain([0, 1]), rows, [True, True], settings)
    assert (found.path, found.token) == ([], 2)
    assert verdict(DraftTree.chain([0, 1]), rows, [True, True]).path == [1]


def test_an_id_outside_the_vocabulary_is_never_rescued():
    found = verdict(DraftTree.chain([0, 7]), [[0.0, 1.0], [0.0, 1.0]], [True, True])
    assert (found.path, found.outcomes) == ([], {1: "rejected"})


def test_a_rule_that_rescues_all_keeps_every_draft():
    class All(GreedyMatch):
        def verify(self, tree, scores, chance):
            kept = torch.ones(len(tree), dtype=torch.bool)
            return walk(tree, scores, matches(tree, scores), SureRoll(scores.best), kept)

    session = Session(CausalLM(TARGET), ModelDrafter(CausalLM(DRAFT), 3), All(), chance=RandomChance(torch.Generator()))
    session.start([1, 2])
    assert [len(r.path) for r in session.rounds(16)] == [3, 3, 3, 3]
    assert all(token < VOCAB for token in session.ids)
