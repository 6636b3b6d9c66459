"""The loop: equal to plain decoding, in step after every round, exact at stops, limits, contexts and interruptions.
Follows specdec_lib/decode.py and drafters/; most cases come from public bug reports.
Left out: laws under sampling (test_exact_law.py) and trained models (test_pocket_pair.py).
"""

import pytest
import torch
from laws import SAMPLED, FixedTree
from tiny import VOCAB, disturbed, generated, gpt2, llama, mistral, prompts
from transformers import PreTrainedTokenizerFast

from specdec_lib.decode import Session, Stops, _Clock, check_prompt, decode
from specdec_lib.drafters import ModelDrafter, NoDrafter
from specdec_lib.model import CausalLM, TableModel
from specdec_lib.sampling import LogitsError, SamplingSettings
from specdec_lib.trace import accepted_over_tested
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers import GreedyMatch, Lenience, LosslessRejection, Verdict

LLAMA = llama(seed=1)
LLAMA_DRAFT = disturbed(LLAMA, seed=2, spread=0.03)


def lms(model=LLAMA, draft=LLAMA_DRAFT):
    return CausalLM(model), CausalLM(draft)


def successor(vocab=40, context=10**6):
    """A table model that counts: after t comes t + 1."""
    return TableModel(lambda ids: [9.0 * (v == (ids[-1] + 1) % vocab) for v in range(vocab)], vocab, context)


def saying(*tokens, vocab=40):
    """A table model that says these tokens after a prompt of one, whatever was said."""
    return TableModel(
        lambda ids: [9.0 * (v == tokens[min(len(ids) - 1, len(tokens) - 1)]) for v in range(vocab)], vocab
    )


# ---- equal to plain decoding -----------------------------------------------------------------------------------


class Schedule(ModelDrafter):
    """gamma by round."""

    def __init__(self, model, gammas):
        super().__init__(model, gammas[0])
        self.gammas = iter(gammas)

    def propose(self, context):
        self.gamma = next(self.gammas)
        return super().propose(context)


@pytest.mark.parametrize("gamma", [0, 1, 3, 8])
@pytest.mark.parametrize("family", ["llama", "gpt2", "mistral with a window of 4"])
def test_greedy_text_equals_generates(family, gamma):
    """B2, B11, B12, B15, C18: float32, prompts of 1 to 20 tokens, generation across the window's edge."""
    model = {"llama": llama, "gpt2": gpt2, "mistral with a window of 4": mistral}[family](seed=3)
    target, draft = lms(model, disturbed(model, 4, 0.05))
    accepted = rejected = 0
    for prompt in prompts(6):
        for verifier in (GreedyMatch(), LosslessRejection(), Lenience(1.0)):
            trace = decode(target, prompt, 12, ModelDrafter(draft, gamma), verifier)
            assert trace.ids == generated(model, prompt, 12)
            accepted += sum(len(r.path) for r in trace.rounds)
            rejected += sum("rejected" in r.outcomes.values() for r in trace.rounds)
    assert gamma == 0 or (accepted and rejected), "both must occur, or nothing was tested"


@pytest.mark.parametrize("drafter", ["siblings", "fixed tree", "right and wrong branches"])
def test_greedy_text_through_trees_equals_generates(drafter):
    """G19: paths that are not neighbours in the cache."""
    target, draft = lms()
    kept = 0
    for prompt in prompts(6):
        plain = generated(LLAMA, prompt, 12)
        made = {
            "siblings": ModelDrafter(draft, 3, siblings=(3, 2)),
            "fixed tree": FixedTree([0, 1, 2], [0, 3], *([v] for v in range(5, VOCAB))),
            "right and wrong branches": Oracle(plain, len(prompt)),
        }[drafter]
        trace = decode(target, prompt, 12, made)
        assert trace.ids == plain
        kept += sum(len(r.path) for r in trace.rounds)
    assert kept


class Oracle(FixedTree):
    """Proposes the right continuation behind two wrong branches."""

    def __init__(self, answer, prompt_length):
        self.answer, self.prompt_length = answer, prompt_length

    def propose(self, context):
        right = self.answer[len(context.committed) - self.prompt_length :][:3]
        wrong = [[(right[0] + 1) % VOCAB, 5], [right[0], (right[1] + 1) % VOCAB]] if len(right) > 1 else []
        self.paths = [*wrong, right]
        return super().propose(context)


def test_the_target_as_its_own_draft_is_always_right():
    """A27, B5: draft = target accepts everything in each of 200 rounds, greedy and sampled."""
    target, draft = lms(llama(context=1024), llama(context=1024))
    for settings in (SamplingSettings(), SAMPLED):
        session = Session(target, ModelDrafter(draft, 3), settings=settings).start([1, 2])
        rounds = 0
        for round_ in session.rounds(800):
            assert len(round_.emitted) == 4 and round_.last == "bonus"
            rounds += 1
        assert rounds == 200
        assert accepted_over_tested([session.trace]) == 1.0
    assert decode(target, [1, 2], 20, ModelDrafter(draft, 3)).ids == generated(target.model, [1, 2], 20)


def test_one_object_as_target_and_draft_is_refused():
    """A27's kind: it has one cache; the same weights twice are fine."""
    target = CausalLM(LLAMA)
    with pytest.raises(ValueError, match="one object with one cache"):
        decode(target, [1, 2], 5, ModelDrafter(target, 3))
    assert decode(target, [1, 2], 9, ModelDrafter(CausalLM(LLAMA), 3)).ids == generated(LLAMA, [1, 2], 9)


def test_two_texts_interleaved_on_one_model_are_refused():
    model = TableModel.random(4, seed=1)
    first = Session(model).start([0, 1])
    rounds = first.rounds(8)
    next(rounds)
    Session(model).start([2]).run(4)
    with pytest.raises(RuntimeError, match="another session has used the same model"):
        next(rounds)


def test_a_schedule_with_zeros_keeps_the_draft_in_step():
    """B8: gamma 3, 0, 0, 3 with draft = target; everything is accepted in the last round too."""
    target, draft = lms(LLAMA, LLAMA)
    drafter = Schedule(draft, [3, 0, 0, 3, 1, 0, 2])
    trace = Session(target, drafter).start([1, 2, 3]).run(4 + 1 + 1 + 4 + 2 + 1 + 3)
    assert [len(r.emitted) for r in trace.rounds] == [4, 1, 1, 4, 2, 1, 3]
    assert trace.ids == generated(LLAMA, [1, 2, 3], 16)


@pytest.mark.parametrize("siblings", [(), (2, 2)], ids=["chain", "tree"])
def test_caches_stay_in_step_for_any_number_accepted(siblings):
    """B6, B9: target holds all but the newest token; the draft the same, or one less where its last draft was kept."""
    target, draft = lms()
    session = Session(target, ModelDrafter(draft, 3, siblings), settings=SAMPLED, seed=5).start([1, 2, 3])
    accepted, before = set(), 0
    for round_ in session.rounds(100):
        committed = len(session.ids)
        assert target.length == target.cache.get_seq_length() == committed - 1
        behind = 1 if len(round_.path) == round_.depth else 0
        expected = committed - 1 - behind if round_.proposed else before  # nothing proposed, nothing read
        assert draft.length == draft.cache.get_seq_length() == expected
        before = draft.length
        assert not target.pending and not draft.pending
        accepted.add(len(round_.path))
    assert accepted == {0, 1, 2, 3}


def test_every_position_is_committed_once():
    """B9: over 50 rounds and more, positions 0, 1, 2, ... without a gap or a repeat."""
    table, committed = successor(), []
    original = table.keep

    def keep(path):
        before = table.length
        original(path)
        committed.extend(range(before, table.length))

    table.keep = keep
    wrong = TableModel(lambda ids: [9.0 * (v == (ids[-1] + 1 + (len(ids) % 3 == 0)) % 40) for v in range(40)], 40)
    session = Session(table, ModelDrafter(wrong, 4)).start([0])
    trace = session.run(150)
    assert len(trace.rounds) >= 50
    assert committed == list(range(len(session.ids) - 1))


def test_nothing_proposed_is_a_plain_step():
    """C17, G1: no tokens proposed, none counted, text equal to plain decoding."""
    trace = decode(CausalLM(LLAMA), [1, 2, 3], 10, FixedTree())
    assert trace.ids == generated(LLAMA, [1, 2, 3], 10)
    assert all(r.proposed == 0 and r.last == "bonus" and not r.outcomes for r in trace.rounds)


def test_a_wrong_first_draft_is_replaced():
    """A26: prompt (1, 1, 1), the target's next is 2, the draft is 1."""
    target = TableModel.constant([0.1, 0.2, 0.7])
    assert decode(target, [1, 1, 1], 1, FixedTree([1])).ids == [2]
    assert decode(target, [1, 1, 1], 2, FixedTree([1])).ids == [2, 2]


@pytest.mark.parametrize("gamma", [-1, True, 2.5, "3", None])
def test_a_draft_length_that_is_none_is_refused(gamma):
    """C18."""
    with pytest.raises(ValueError, match="draft length gamma"):
        ModelDrafter(CausalLM(LLAMA), gamma)


@pytest.mark.parametrize("siblings", [(0,), (2, -1), (True,), (1.5,)], ids=str)
def test_numbers_of_siblings_that_are_none_are_refused(siblings):
    with pytest.raises(ValueError, match="siblings"):
        ModelDrafter(CausalLM(LLAMA), 2, siblings)


def test_a_draft_length_beyond_everything_is_cut_to_the_room():
    """C18: gamma 1000."""
    target, draft = lms()
    assert decode(target, [1, 2, 3], 12, ModelDrafter(draft, 1000)).ids == generated(LLAMA, [1, 2, 3], 12)


def test_a_drafter_that_proposes_deeper_than_the_room_is_an_error():
    class TooDeep(FixedTree):
        def propose(self, context):
            return DraftTree.from_paths(context.committed[-1], [[1, 2, 3]])

    with pytest.raises(ValueError, match="proposed 3 tokens deep where 1 fit"):
        decode(successor(), [0], 2, TooDeep())


def test_half_precision_flips_only_near_ties():
    """F1: in bfloat16 each emitted token is the argmax of its own row, or within the rounding of a tie of it."""
    model, draft = llama(seed=1).bfloat16(), disturbed(LLAMA, 2, 0.03).bfloat16()
    ids = [1, 2, 3]
    ids += decode(CausalLM(model), ids, 40, ModelDrafter(CausalLM(draft), 4)).ids
    with torch.inference_mode():
        rows = model(torch.tensor([ids])).logits[0].float()
    for position in range(3, len(ids)):
        row = rows[position - 1]
        assert row.max() - row[ids[position]] <= 0.05 * row.abs().max()


# ---- lengths and contexts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_the_budget_is_never_passed(n):
    """C3: gamma 5, a perfect draft, max_new_tokens 0 to 3."""
    trace = decode(successor(), [0], n, ModelDrafter(successor(), 5))
    assert trace.ids == list(range(1, n + 1))
    assert trace.reason == "length"
    assert len(trace.rounds) == (n > 0), "one round does it"


@pytest.mark.parametrize("n", [-1, True, 2.5, None])
def test_a_budget_that_is_none_is_refused(n):
    with pytest.raises(ValueError, match="max_new_tokens"):
        decode(successor(), [0], n)


def test_the_contexts_last_token_is_reached_and_not_passed():
    """B17: context 16, prompt 12, gamma 5: exactly 4 more."""
    model = llama(seed=1, context=16)
    prompt = list(range(12))
    for drafter in (NoDrafter(), ModelDrafter(CausalLM(model), 5), ModelDrafter(CausalLM(LLAMA), 5, (2,))):
        trace = decode(CausalLM(model), prompt, 4, drafter)
        assert trace.ids == generated(model, prompt, 4) and trace.reason == "length"
        trace = decode(CausalLM(model), prompt, 50, drafter)
        assert len(trace.ids) == 4 and trace.reason == "context"
    trace = decode(CausalLM(model), list(range(16)), 5, ModelDrafter(CausalLM(model), 5))
    assert (trace.ids, trace.reason) == ([], "context")
    with pytest.raises(ValueError, match="the prompt has 17 tokens; the target's context holds 16"):
        decode(CausalLM(model), list(range(17)), 5)


def test_a_draft_with_a_shorter_context_falls_silent_and_the_text_goes_on():
    """C14: target 64 positions, draft 16; prompts of 5 and of 30."""
    target, draft = llama(seed=1, context=64), llama(seed=1, context=16)
    for prompt, drafted in ((list(range(5)), True), ([v % VOCAB for v in range(30)], False)):
        trace = decode(CausalLM(target), prompt, 34, ModelDrafter(CausalLM(draft), 3))
        assert trace.ids == generated(target, prompt, 34)
        assert any(r.proposed for r in trace.rounds) is drafted
        assert trace.rounds[-1].proposed == 0


# ---- prompts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prompt, message",
    [
        ([], "the prompt is empty"),
        (torch.empty(0, dtype=torch.long), "the prompt is empty"),
        ([[1, 2], [3]], "flat list"),
        (torch.ones(2, 3, dtype=torch.long), "one text at a time"),
        ([1, 2.0], "flat list"),
        ([True], "flat list"),
        (["a"], "flat list"),
        ([1, 99], "99 is not in the target's vocabulary"),
        ([-1], "-1 is not in the target's vocabulary"),
    ],
    ids=str,
)
def test_prompts_that_are_none_are_refused_with_a_reason(prompt, message):
    """C16, E1, E2: an empty prompt, a batch, ids that are none."""
    with pytest.raises(ValueError, match=message):
        decode(CausalLM(LLAMA), prompt, 3)


def test_a_prompt_of_one_token_and_a_tensor_of_one_row_work():
    """C16."""
    for prompt in ([5], torch.tensor([5]), torch.tensor([[5]])):
        assert decode(CausalLM(LLAMA), prompt, 4, ModelDrafter(CausalLM(LLAMA_DRAFT), 2)).ids == generated(
            LLAMA, [5], 4
        )
    assert check_prompt(torch.tensor([[5, 6]]), successor()) == [5, 6]


# ---- stops -----------------------------------------------------------------------------------------------------


def words(*tokens):
    from tokenizers import Tokenizer, decoders, models

    tokenizer = Tokenizer(models.WordLevel({t: i for i, t in enumerate(tokens)}, unk_token=tokens[0]))
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False)


@pytest.mark.parametrize("gamma", [0, 1, 2, 3, 5])
def test_a_text_ends_at_its_first_end_token(gamma):
    """C1, C2, H2: draft = target says 1, 2, EOS, 4, 5; nothing after EOS is emitted, kept, cached or counted."""
    target, draft = saying(1, 2, 3, 4, 5), saying(1, 2, 3, 4, 5)
    session = Session(target, ModelDrafter(draft, gamma), stops=Stops(frozenset({3}))).start([0])
    trace = session.run(20)
    assert (trace.ids, session.ids, trace.reason) == ([1, 2, 3], [0, 1, 2, 3], "eos")
    assert target.ids == [0, 1, 2]
    assert sum(len(r.emitted) for r in trace.rounds) == 3
    assert all(len(r.path) <= len(r.emitted) for r in trace.rounds)
    assert trace.rounds[-1].kinds == ["accepted"] * len(trace.rounds[-1].emitted) or gamma in (0, 2)


def test_no_bonus_follows_an_accepted_end():
    """C2: draft [EOS] alone, gamma 1."""
    trace = decode(saying(3, 9), [0], 10, FixedTree([3]), stops=Stops(frozenset({3})))
    assert trace.ids == [3]
    assert (trace.rounds[0].path, trace.rounds[0].last) == ([1], "accepted")


def test_any_of_several_end_tokens_ends_a_text():
    """C12: eos (2, 9), draft (a, 9, b)."""
    trace = decode(saying(5, 9, 6), [0], 10, FixedTree([5, 9, 6]), stops=Stops(frozenset({2, 9})))
    assert (trace.ids, trace.reason) == ([5, 9], "eos")


def test_without_an_end_token_only_the_limit_ends_a_text():
    """C5: no EOS, prompt (5, 6, 7, 5, 6)."""
    target, draft = lms()
    trace = decode(target, [5, 6, 7, 5, 6], 15, ModelDrafter(draft, 3))
    assert (len(trace.ids), trace.reason) == (15, "length")


@pytest.mark.parametrize("gamma", [0, 2, 5])
def test_the_earliest_boundary_wins(gamma):
    """C6: (10, 11, STOP, 20, ...) with a cap of 5 ends at the stop, with a cap of 2 at the cap."""
    said = (10, 11, 12, 20, 21, 22)
    stops = Stops(frozenset({12}))
    for cap, ids, reason in ((5, [10, 11, 12], "eos"), (2, [10, 11], "length"), (3, [10, 11, 12], "eos")):
        trace = decode(saying(*said), [0], cap, ModelDrafter(saying(*said), gamma), stops=stops)
        assert (trace.ids, trace.reason) == (ids, reason)


@pytest.mark.parametrize("gamma", [0, 1, 5])
def test_a_stop_string_may_span_tokens(gamma):
    """C6's kind: the text ends with the token that completes the string, wherever rounds begin."""
    tokenizer = words("<s>", "ab", "c", "x", "ST", "OP", "y")
    said = (1, 4, 2, 4, 5, 6, 6)  # ab ST c ST OP y y
    for string, ids in (("STOP", [1, 4, 2, 4, 5]), ("bST", [1, 4]), ("TOPyy", [1, 4, 2, 4, 5, 6, 6]), ("c", [1, 4, 2])):
        stops = Stops(strings=("never", string), tokenizer=tokenizer)
        trace = decode(saying(*said, vocab=7), [0], 9, ModelDrafter(saying(*said, vocab=7), gamma), stops=stops)
        assert (trace.ids, trace.reason) == (ids, "stop")
    stops = Stops(frozenset({6}), strings=("y",), tokenizer=tokenizer)
    assert decode(saying(*said, vocab=7), [0], 9, stops=stops).reason == "eos"


def test_a_stop_string_in_the_prompt_ends_nothing():
    tokenizer = words("ST", "OP", "y")
    stops = Stops(strings=("STOP",), tokenizer=tokenizer)
    trace = decode(TableModel.constant([0.2, 0.2, 0.6]), [0, 1], 3, stops=stops)
    assert (trace.ids, trace.reason) == ([2, 2, 2], "length")


def test_stop_strings_without_a_tokenizer_and_empty_ones_are_refused():
    with pytest.raises(ValueError, match="tokenizer"):
        Stops(strings=("x",))
    with pytest.raises(ValueError, match="empty"):
        Stops(strings=("x", ""), tokenizer=words("a"))


# ---- settings that look at the text ----------------------------------------------------------------------------


def test_a_drafts_own_prefix_is_penalised_and_rejected_drafts_are_forgotten():
    """A21: prompt (1), drafts (2, 2): the second 2 is rejected; 3, rejected in round 1, is not penalised in round 2."""
    settings = SamplingSettings(repetition_penalty=100.0)
    prefers_two = TableModel(lambda ids: [1.0, 0.5, 9.0, 2.0], 4)
    trace = decode(prefers_two, [1], 2, FixedTree([2, 2]), settings=settings)
    assert trace.ids == [2, 3]
    assert trace.rounds[0].outcomes == {1: "exact"}, "room for one draft and the token after it"
    trace = decode(prefers_two, [1], 3, FixedTree([2, 2]), settings=settings)
    assert trace.rounds[0].outcomes == {1: "exact", 2: "rejected"}
    assert trace.ids[:2] == [2, 3]
    two_then_three = TableModel(lambda ids: [0.0, 0.0, 9.0, 3.0] if len(ids) == 1 else [0.0, 0.0, 0.0, 3.0], 4)
    trace = decode(two_then_three, [1], 2, FixedTree([3]), settings=settings)
    assert trace.rounds[0].outcomes == {1: "rejected"}
    assert trace.ids == [2, 3]


def test_a_row_that_is_read_after_the_verdict_has_the_prefix_of_before():
    """A21: rows are adjusted when asked for; the text has grown by then."""

    class ReadsNothing:
        name, lossless, needs = "nothing", True, frozenset()

        def verify(self, tree, scores, chance):
            return Verdict([1], 3, "bonus", {1: "exact"}, tree.tokens.tolist(), [0, 1], [1, 1], [0, 1])

    class ReadsLater(FixedTree):
        def observe(self, feedback):
            self.rows = feedback.scores.adjusted.tolist()

    drafter = ReadsLater([2])
    target = TableModel(lambda ids: [1.0] * 4, 4)
    session = Session(target, drafter, ReadsNothing(), SamplingSettings(repetition_penalty=10.0)).start([0])
    assert session.run(2).ids == [2, 3]
    assert drafter.rows == [pytest.approx([0.1, 1, 1, 1]), pytest.approx([0.1, 1, 0.1, 1])]


def test_an_end_token_before_the_least_length_is_rejected():
    """A23: min_new_tokens 3, EOS drafted second: rejected there, allowed from the fourth token on."""
    eager = TableModel(lambda ids: [9.0, 5.0, 0.0], 3)  # token 0 is EOS, and always the likeliest
    settings, stops = SamplingSettings(min_new_tokens=3), Stops(frozenset({0}))
    for drafter in (NoDrafter(), FixedTree([1, 0, 1]), FixedTree([1, 1, 1, 0, 1]), FixedTree([0])):
        trace = decode(eager, [2], 10, drafter, settings=settings, stops=stops)
        assert (trace.ids, trace.reason) == ([1, 1, 1, 0], "eos")


def test_tokens_cut_by_top_p_never_appear():
    """A12: top_p .5 of (.6, .3, .1) leaves token 0; 5,000 draws, with a draft that proposes 1."""
    settings = SamplingSettings(temperature=1.0, top_p=0.5)
    target = TableModel.constant([0.6, 0.3, 0.1])
    trace = decode(target, [0], 5000, FixedTree([1], [0, 1]), settings=settings)
    assert set(trace.ids) == {0}
    assert {round_.emitted[-1] for round_ in trace.rounds} == {0}, "bonus and recovered rows too"


@pytest.mark.parametrize(
    "settings",
    [
        SamplingSettings(repetition_penalty=1.5),
        SamplingSettings(min_new_tokens=6),
        SamplingSettings(bad_words_ids=((5,), (3, 7), (11, 2))),
    ],
    ids=["repetition penalty", "min_new_tokens", "bad words"],
)
def test_greedy_text_under_settings_equals_generates(settings):
    target, draft = lms()
    kwargs = {
        "repetition_penalty": settings.repetition_penalty,
        "min_new_tokens": settings.min_new_tokens or None,
        "bad_words_ids": [list(w) for w in settings.bad_words_ids] or None,
        "eos_token_id": [7, 12],
    }
    for prompt in prompts(8):
        trace = decode(target, prompt, 15, ModelDrafter(draft, 4), settings=settings, stops=Stops(frozenset({7, 12})))
        assert trace.ids == generated(LLAMA, prompt, 15, **kwargs)


# ---- chance ----------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_text_and_leaves_the_global_state():
    """A16."""
    target, draft = lms()
    before = torch.random.get_rng_state()
    texts = [
        decode(target, [1, 2], 30, ModelDrafter(draft, 3, (2,)), settings=SAMPLED, seed=seed).ids for seed in (7, 7, 8)
    ]
    assert texts[0] == texts[1] != texts[2]
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_generator_handed_in_drives_every_draw():
    generator = torch.Generator().manual_seed(7)
    session = Session(CausalLM(LLAMA), settings=SAMPLED, generator=generator).start([1, 2])
    assert session.run(20).ids == decode(CausalLM(LLAMA), [1, 2], 20, settings=SAMPLED, seed=7).ids


def test_the_trace_names_what_may_differ_from_the_targets_law():
    """A30: lossless by default; lenience says lossy."""
    assert decode(successor(), [0], 3).lossless is True
    lossy = decode(successor(), [0], 3, ModelDrafter(successor(), 2), Lenience(0.5))
    assert (lossy.lossless, lossy.method) == (False, "lenience")


# ---- vocabularies and bad rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("draft_vocab", [10, 12, 14])
@pytest.mark.parametrize("settings", [SamplingSettings(), SAMPLED], ids=["greedy", "sampled"])
def test_a_draft_with_fewer_or_more_rows_than_the_target_works(draft_vocab, settings):
    """D1, D2: the target has 12; no index error, and no id that the target lacks."""
    target, draft = CausalLM(llama(vocab=12)), CausalLM(llama(seed=5, vocab=draft_vocab))
    trace = decode(target, [1, 2], 30, ModelDrafter(draft, 3), settings=settings)
    assert len(trace.ids) == 30 and max(trace.ids) < 12
    if settings is not SAMPLED:
        assert trace.ids == generated(target.model, [1, 2], 30)


@pytest.mark.parametrize("row", [[float("nan")] * 3, [0.0, float("nan"), 1.0], [-float("inf")] * 3], ids=str)
@pytest.mark.parametrize("settings", [SamplingSettings(), SAMPLED], ids=["greedy", "sampled"])
def test_bad_logits_stop_the_text_with_an_error(row, settings):
    """D8: the target's fourth row is bad; three good tokens stay, and none is made up."""
    target = TableModel(lambda ids: [0.0, 1.0, 0.0] if len(ids) < 4 else row, 3)
    session = Session(target, settings=settings).start([0])
    with pytest.raises(LogitsError):
        session.run(10)
    assert len(session.ids) == 4 == len(session.trace.ids) + 1
    bad_draft = ModelDrafter(TableModel(lambda ids: row, 3), 2)
    good = TableModel.constant([0.2, 0.5, 0.3])
    named = "draft law gives it probability nan" if settings is SAMPLED else "the draft's logits cannot be used: row 0"
    with pytest.raises(ValueError, match=named):
        decode(good, [0], 5, bad_draft, settings=settings)


# ---- streams, interruptions, going on --------------------------------------------------------------------------


def session_of(settings, seed=3, siblings=()):
    target, draft = lms()
    return Session(target, ModelDrafter(draft, 3, siblings), settings=settings, seed=seed)


both = pytest.mark.parametrize("settings", [SamplingSettings(), SAMPLED], ids=["greedy", "sampled"])


@both
def test_rounds_can_be_streamed_and_left(settings):
    whole = session_of(settings).start([1, 2, 3]).run(40).ids
    session = session_of(settings).start([1, 2, 3])
    seen = []
    for round_ in session.rounds(40):
        seen += round_.emitted
        if len(seen) > 10:
            break
    assert seen == session.ids[3:] == session.trace.ids == whole[: len(seen)]
    assert session.target.length == len(session.ids) - 1
    session.run(40 - len(seen))
    assert session.ids[3:] == session.trace.ids
    if settings is not SAMPLED:
        assert session.ids[3:] == whole


@both
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("siblings", [(), (2,)], ids=["chain", "tree"])
@pytest.mark.parametrize("place", ["draft", "draft later", "score", "verify", "keep", "observe", "draft keep", "clock"])
def test_an_exception_in_a_round_leaves_the_session_as_before_it(monkeypatch, place, siblings, error, settings):
    """Before and after the step where it strikes; the session goes on as if nothing had been."""
    undisturbed = session_of(settings, siblings=siblings).start([1, 2, 3])
    undisturbed.run(10)
    undisturbed.run(1)
    undisturbed.run(20)
    for after in (False, True):
        session = session_of(settings, siblings=siblings).start([1, 2, 3])
        session.run(10)
        kept, rounds = list(session.ids), len(session.trace.rounds)
        draft = session.drafter.model
        owner, name, skip = {
            "draft": (draft, "_forward", 0),
            "draft later": (draft, "_forward", 1),
            "score": (session.target, "_forward", 0),
            "verify": (session.verifier, "verify", 0),
            "keep": (session.target, "keep", 0),
            "observe": (session.drafter, "observe", 0),
            "draft keep": (draft, "keep", 0),
            "clock": (_Clock, "seconds", 0),
        }[place]
        with monkeypatch.context() as patch:
            strike(patch, owner, name, skip, error, after)
            with pytest.raises(error):
                session.run(20)
        assert session.ids == kept
        assert len(session.trace.rounds) == rounds and session.trace.ids == kept[3:]
        assert session.target.length == len(kept) - 1 and not session.target.pending
        session.run(1)  # a round with no room to draft, while the draft may hold what was left behind
        session.run(20)
        assert session.ids == undisturbed.ids
        assert session.trace.ids == undisturbed.trace.ids


def strike(patch, owner, name, skip, error, after):
    """Make the skip-th call of owner.name raise, before or after it has done its work."""
    original, calls = getattr(owner, name), [0]

    def struck(*args, **kwargs):
        calls[0] += 1
        if calls[0] <= skip:
            return original(*args, **kwargs)
        if after:
            original(*args, **kwargs)
        raise error("struck")

    patch.setattr(owner, name, struck)


def test_an_exception_in_the_middle_of_a_pass_leaves_no_half_filled_cache():
    """The second layer never sees the new tokens; the first one must forget them."""
    session = session_of(SamplingSettings()).start([1, 2, 3])
    session.run(10)
    for model in (session.target.model, session.drafter.model.model):
        handle = model.model.layers[1].register_forward_pre_hook(lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            session.run(5)
        handle.remove()
        assert session.target.cache.get_seq_length() == len(session.ids) - 1
    session.run(20)
    assert session.ids[3:] == generated(LLAMA, [1, 2, 3], 30)


@both
def test_a_session_goes_on_after_a_stop_as_a_fresh_one_would(settings):
    """C11: a stop inside a block; cache, ids, trace and chance are those of the kept text."""
    probe = session_of(settings).start([1, 2, 3]).run(30)
    drafted_and_cut = next(
        r.emitted[0] for r in probe.rounds[1:] if len(r.path) == 3 and r.emitted[0] not in r.emitted[1:]
    )
    session = session_of(settings)
    session.stops = Stops(frozenset({drafted_and_cut}))
    trace = session.start([1, 2, 3]).run(30)
    assert trace.reason == "eos" and trace.ids.count(drafted_and_cut) == 1
    assert session.ids == [1, 2, 3, *trace.ids]
    text, state = list(session.ids), session.generator.get_state()
    session.stops = Stops()
    session.extend([4, 5, 6, 7])
    more = session.run(20)
    assert more.prompt == [*text, 4, 5, 6, 7] and session.ids == [*more.prompt, *more.ids]
    fresh = session_of(settings)
    fresh.generator.set_state(state)
    again = fresh.start([*text, 4, 5, 6, 7]).run(20)
    assert more.ids == again.ids
    assert [r.path for r in more.rounds] == [r.path for r in again.rounds]
    assert session.target.length == fresh.target.length
    assert session.drafter.model.length == fresh.drafter.model.length


def test_a_session_can_begin_another_text():
    session = session_of(SamplingSettings())
    session.start([9, 8, 7]).run(15)
    assert session.start([1, 2, 3]).run(15).ids == generated(LLAMA, [1, 2, 3], 15)


def test_extending_by_nothing_changes_nothing_and_by_nonsense_is_refused():
    session = session_of(SamplingSettings()).start([1, 2, 3])
    session.run(5)
    before, trace = list(session.ids), session.trace
    session.extend([])
    assert session.ids == before and session.trace is trace
    for wrong in ([99], [[1]], [0] * 200):
        with pytest.raises(ValueError):
            session.extend(wrong)
    assert session.ids == before and session.target.length == len(before) - 1
