"""The slider of lesson 05: its rules are the library's, its figures are what their names say, its record is whole.

Our own; the rules are those of verifiers/ at temperature 0.
Left out: controls (test_widgets.py, ui/).
"""

import json
import math
from dataclasses import replace

import pytest
import torch

from specdec_lib import knob
from specdec_lib.colours import COLOURS
from specdec_lib.decode import decode
from specdec_lib.judge.features import features, last_layer
from specdec_lib.judge.head import JudgeHead
from specdec_lib.judge.kind import Words
from specdec_lib.judge.labels import LabelledAnswer
from specdec_lib.knob import KNOBS, accepts, kept_by_round, leading_run, read_knob, read_knobs, score_above
from specdec_lib.pocket.world import problems
from specdec_lib.sampling import RandomChance, SamplingSettings
from specdec_lib.scored import ScoredText, from_row, load_scored, score_answer, score_drafts, to_row
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers import FLy, GreedyMatch, Lenience, Scores
from specdec_lib.verifiers.judge import Judge
from specdec_lib.verifiers.topk import TopK
from specdec_lib.verifiers.typical import Typical
from specdec_lib.zoo import data_folder, load_pair

RECORD = data_folder() / "traces" / "scored-pocket.json"


def make_text(labels=("right", "right", "wrong", "after"), question="how many?") -> ScoredText:
    """Four tokens: the argmax; second with .2 beside .5; third with .01 beside .9; the argmax again."""
    return ScoredText(
        question, [" so", " x", " 4", "."], list(labels), [" so", " *", " 5", "."], [0, 1, 2, 0],
        [math.log(v) for v in (0.9, 0.2, 0.01, 0.8)], [math.log(v) for v in (0.9, 0.5, 0.9, 0.8)],
        [0.3, 1.0, 0.4, 0.5], [3.0, 2.0, -2.0, 1.0],
    )  # fmt: skip


@pytest.mark.parametrize(
    "rule, value, wanted",
    [
        ("judge", 1.0, [1, 0, 0, 1]),
        ("judge", 0.5, [1, 1, 0, 1]),
        ("judge", 0.9, [1, 0, 0, 1]),  # sigmoid(2) = .88
        ("judge", 0.88, [1, 1, 0, 1]),
        ("judge", 0.1, [1, 1, 1, 1]),  # sigmoid(-2) = .12
        ("judge", 0.0, [1, 1, 1, 1]),
        ("topk", 1, [1, 0, 0, 1]),
        ("topk", 2, [1, 1, 0, 1]),
        ("topk", 3, [1, 1, 1, 1]),
        ("lenience", 1.0, [1, 0, 0, 1]),
        ("lenience", 0.41, [1, 0, 0, 1]),  # .2 / .5 = .4
        ("lenience", 0.39, [1, 1, 0, 1]),
        ("lenience", 0.01, [1, 1, 1, 1]),
        ("typical", 0.3, [1, 1, 0, 1]),  # the second's bar: min(.3, .3 exp(-1)) = .11
        ("typical", 0.02, [1, 1, 0, 1]),
        ("typical", 0.009, [1, 1, 1, 1]),
        ("fly", 0.0, [1, 0, 0, 1]),  # nobody has six tokens behind it
        ("words", 0, [1, 0, 0, 1]),
        ("words", 1, [1, 1, 0, 1]),
    ],
)
def test_each_rule_by_hand(rule, value, wanted):
    assert accepts(make_text(), rule, value) == [bool(w) for w in wanted]


def test_lenience_takes_what_is_just_likely_enough_and_at_1_no_tie():
    text = replace(make_text(), log_prob=[-0.1, math.log(0.5), -9.0, -0.1], log_max=[-0.1, 0.0, -0.1, -0.1])
    assert accepts(text, "lenience", 0.5)[1] and not accepts(text, "lenience", 0.500001)[1]
    tie = replace(text, log_prob=[-0.1, 0.0, -9.0, -0.1])
    assert not accepts(tie, "lenience", 1.0)[1] and accepts(tie, "lenience", 0.99)[1]


def test_typical_s_entropy_is_in_nats():
    text = replace(make_text(), log_prob=[-0.1, math.log(0.13), -9.0, -0.1])
    assert accepts(text, "typical", 0.3)[1], "the bar is .3 exp(-1) = .110; with bits it would be .15"
    assert not accepts(replace(text, log_prob=[-0.1, math.log(0.1), -9.0, -0.1]), "typical", 0.3)[1]


def test_a_knob_at_its_limit_ignores_how_large_a_logit_is():
    assert score_above(-1e9, 0.0) and not score_above(1e9, 1.0)
    assert not score_above(0.0, 0.5) and score_above(1e-6, 0.5)


def test_an_unknown_rule_is_named():
    with pytest.raises(ValueError, match="'kl'; choose one of judge, topk"):
        accepts(make_text(), "kl", 1)


@pytest.mark.parametrize(
    "accepted, gamma, wanted",
    [
        ([1, 1, 0, 1, 1, 1], 8, [2, 3]),  # behind the rejected place the next round begins
        ([1, 1, 1, 1, 1], 2, [2, 2]),  # the bonus takes the third place; two are left
        ([0, 0, 1], 8, [0, 0, 1]),
        ([1, 0], 8, [1]),  # nothing is left to draft behind the last rejection
        ([], 8, []),
    ],
)
def test_rounds_along_a_text(accepted, gamma, wanted):
    assert kept_by_round(accepted, gamma) == wanted


def test_fly_wants_an_unsure_target_and_six_matches_in_the_same_round():
    ranks = [1, 0, 0, 0, 0, 0, 0, 1]
    text = ScoredText("q", ["a"] * 8, ["right"] * 8, ["b"] * 8, ranks, *([[-1.0] * 8] * 2), [0.5] * 8, [0.0] * 8)
    assert accepts(text, "fly", 0.5) == [True] * 7 + [False] and not accepts(text, "fly", 0.6)[0]
    assert not accepts(replace(text, rank=[1, 0, 0, 0, 1, 0, 0, 1]), "fly", 0.5)[0]
    assert read_knob([text], "fly", 0.5, gamma=8).kept_round == 7
    assert read_knob([text], "fly", 0.5, gamma=7).kept_round == 7
    assert (
        read_knob([text], "fly", 0.5, gamma=5).kept_round == 5 / 3
    )  # rounds 0, 5, 0: the first is too short for a window


@pytest.mark.parametrize("accepted, run", [([1, 0, 1, 1], 1), ([0, 1], 0), ([1, 1], 2), ([], 0)])
def test_the_leading_run_ends_at_the_first_that_is_not_accepted(accepted, run):
    assert leading_run(accepted) == run


def test_the_reading_by_hand():
    texts = [make_text(), make_text(labels=["right"] * 4)]
    standard = read_knob(texts, "judge", 1.0)
    # first text up to its wrong token: accepted 1 0 0, rounds 1 0; second: 1 0 0 1, rounds 1 0 1
    assert (standard.kept_run, standard.kept_round) == (1, 3 / 5)
    assert (standard.wrong_in_run, standard.wrong_accepted, standard.texts) == (0, 0, 2)
    lax = read_knob(texts, "topk", 3)
    assert (lax.kept_run, lax.kept_round, lax.wrong_in_run, lax.wrong_accepted) == (4, 3.5, 0.5, 0.5)
    stopped = read_knob(texts, "judge", 0.5)
    assert (stopped.kept_run, stopped.wrong_in_run) == (2, 0), "the run that ends at the wrong token does not hold it"
    behind = make_text(labels=["right", "right", "right", "wrong"])
    reading = read_knob([behind], "topk", 1)
    assert (reading.wrong_in_run, reading.wrong_accepted) == (0, 1), "let through, but behind a rejection"
    with pytest.raises(ValueError, match="no texts"):
        read_knob([], "judge", 0.5)


@pytest.fixture(scope="module")
def pair():
    return load_pair("pocket")


@pytest.fixture(scope="module")
def head(pair):
    """A head of chance weights, which scores some tokens up and some down."""
    generator = torch.Generator().manual_seed(1)
    width = pair.target.model.config.hidden_size
    return JudgeHead(torch.randn(width, generator=generator), 0.5, last_layer(pair), pair.checksums["target"])


@pytest.fixture(scope="module")
def fresh(pair, head):
    return score_drafts(pair, problems("test", 3, seed=11), head.logits)


def test_the_rules_are_the_library_s(pair, head, fresh):
    """The leading run of a whole text as one chain, judged by the verifiers themselves."""
    adjuster, chance = SamplingSettings().adjuster(), RandomChance(torch.Generator())
    size = math.log(pair.target.vocab_size)
    for text in fresh:
        prompt = pair.prompt(text.question)
        ids = pair.tokenizer.convert_tokens_to_ids([token.replace(" ", "\u2581") for token in text.tokens])
        pair.target.start()
        pair.target.feed(prompt[:-1])
        tree = DraftTree.chain([prompt[-1], *ids])
        output = pair.target.score(tree.tokens, tree.parents, frozenset({"hidden"}))
        pair.target.start()
        scores = Scores(output.logits, adjuster, lambda i: (), hidden=output.hidden)
        for rule, value, verifier in [
            ("judge", 0.5, Judge(head, 0.5)), ("judge", 0.05, Judge(head, 0.05)), ("judge", 1.0, GreedyMatch()),
            ("topk", 2, TopK(2)), ("topk", 5, TopK(5)), ("lenience", 0.01, Lenience(0.01)),
            ("lenience", 0.001, Lenience(0.001)), ("typical", 0.01, Typical(0.01)), ("typical", 0.001, Typical(0.001)),
            ("fly", 0.05, FLy(0.05 / size)), ("fly", 0.4, FLy(0.4 / size)), ("words", 1, Words(pair)),
        ]:  # fmt: skip
            kept = verifier.verify(tree, scores, chance).path
            assert len(kept) == leading_run(accepts(text, rule, value)), (rule, value)


def test_a_looser_knob_never_keeps_less(fresh):
    for rule, (_, values) in KNOBS.items():
        curve = [read_knob(fresh, rule, value) for value in values]
        for strict, lax in zip(curve, curve[1:], strict=False):
            assert lax.kept_run >= strict.kept_run and lax.wrong_accepted >= strict.wrong_accepted


def test_the_target_s_own_greedy_answer_is_its_argmax_everywhere(pair, head):
    problem = problems("test", 1, seed=12)[0]
    ids = decode(pair.target, pair.prompt(problem.question), 260, stops=pair.stops).ids
    text = score_answer(pair, problem, ids, ["right"] * len(ids), head.logits)
    assert text.rank == [0] * len(ids) and text.best == text.tokens
    assert text.log_prob == text.log_max


def test_a_token_s_state_is_its_own_row_s_and_its_probability_the_row_before_s(pair, head, fresh):
    text = fresh[0]
    ids = pair.tokenizer.convert_tokens_to_ids([token.replace(" ", "\u2581") for token in text.tokens])
    found = features(pair, [LabelledAnswer(text.question, tuple(ids), "+" * len(ids))])
    assert torch.allclose(head.logits(found.hidden[last_layer(pair)]), torch.tensor(text.judge), atol=1e-3)
    assert torch.allclose(found.log_probs, torch.tensor(text.log_prob), atol=1e-4)


def test_equal_logits_rank_by_id():
    class Flat:
        """A target whose laws are uniform over three tokens."""

        device = torch.device("cpu")

        def start(self):
            pass

        def feed(self, tokens):
            pass

        def score(self, tokens, parents, needs):
            from specdec_lib.model import ModelOutput

            return ModelOutput(torch.zeros(len(tokens), 3), torch.zeros(len(tokens), 2))

    class Words:
        bos_token_id = 0

        def __call__(self, text, add_special_tokens):
            return {"input_ids": [1]}

        def convert_tokens_to_ids(self, token):
            return 2

        def convert_ids_to_tokens(self, ids):
            return ["abc"[i] for i in ids]

    class Pair:
        target, tokenizer = Flat(), Words()

    problem = problems("test", 1, seed=0)[0]
    text = score_answer(Pair(), problem, [0, 1, 2], ["right"] * 3, lambda hidden: hidden[:, 0])
    assert text.rank == [0, 1, 2] and text.best == ["a", "a", "a"]
    assert text.entropy == pytest.approx([math.log(3)] * 3)


# ---- the file


def test_a_row_gives_back_its_text(fresh):
    for text in [*fresh, make_text()]:
        back = from_row(json.loads(json.dumps(to_row(text))))
        assert (back.tokens, back.labels, back.best, back.rank) == (text.tokens, text.labels, text.best, text.rank)
        for name in ("log_prob", "log_max", "entropy", "judge"):
            assert getattr(back, name) == pytest.approx(getattr(text, name), abs=5e-5)


@pytest.mark.parametrize(
    "change",
    [{"labels": "rrw"}, {"labels": "rrz"}, {"rank": "0 1 2 x"}, {"judge": "1 2 nan 3"}, {"tokens": "a|b"}, {"best": 3}],
)
def test_a_damaged_row_is_refused(change, tmp_path):
    with pytest.raises(ValueError):
        from_row(to_row(make_text()) | change)
    file = tmp_path / "scored.json"
    file.write_text(json.dumps({"rows": [to_row(make_text()), to_row(make_text()) | change]}))
    with pytest.raises(ValueError, match="scored.json is not a file of scored texts"):
        load_scored(file)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"rows": 3}', '{"rows": [{}]}', '{"rows": []}'])
def test_another_file_is_refused(content, tmp_path):
    file = tmp_path / "other.json"
    file.write_text(content)
    with pytest.raises(ValueError, match="specdec scored makes one"):
        load_scored(file)


def test_the_record_is_of_the_shipped_pair_and_head():
    from specdec_lib.judge.head import head_of

    pair, results = load_pair("pocket"), json.loads(RECORD.read_text())
    assert results["provenance"]["checksums"] == pair.checksums
    texts = load_scored(RECORD)
    again = score_drafts(pair, problems("test", 2, results["provenance"]["seed"]), head_of(pair).logits)
    for recorded, now in zip(texts[:2], again, strict=True):
        assert recorded.tokens == now.tokens and recorded.judge == pytest.approx(now.judge, abs=2e-3)


# ---- what is shown


def test_the_kept_run_is_shown_up_to_the_first_rejected_token():
    shown = knob.knob_html(make_text(question="a < b"), "judge", 0.9)
    fates = [part.split('"')[1].split(",")[0] for part in shown.split("<span ")[1:] if part.startswith("title")]
    assert fates == ["accepted", "rejected", "recovered", "not reached", "not reached"]
    assert "a &lt; b" in shown and 'title="not reached, wrong"' in shown
    kept = knob.knob_html(make_text(), "topk", 3)
    assert kept.count('title="rescued') == 2 and "rejected, " not in kept and kept.count('title="recovered') == 0


def test_the_line_says_what_the_reading_holds():
    text = make_text()
    line = knob.knob_line(read_knob([text, text], "lenience", 0.01), text)
    assert "lenience = 0.01" in line and "4 of 4 tokens kept" in line and "All 2: kept run 4.0" in line
    assert line.endswith("sooner or later in 100%")


def test_the_picture_has_a_curve_a_rule_and_the_place_of_the_knob():
    behind = make_text(labels=["right", "right", "right", "wrong"])  # let through, but not in the kept run
    (axes,) = knob.draw_knob(read_knobs([behind]), "judge", 1.0).axes
    assert [line.get_ydata()[0] for line in axes.get_lines() if line.get_label() in KNOBS] == [100] * len(KNOBS)
    figure = knob.draw_knob(read_knobs([make_text()]), "lenience", 0.01)
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert [name for name in lines if name in KNOBS] == list(KNOBS)
    for name in KNOBS:
        assert lines[name].get_color() == COLOURS[name] and len(lines[name].get_xdata()) == len(KNOBS[name][1])
    assert (list(lines["here"].get_xdata()), list(lines["here"].get_ydata())) == ([3.0], [100.0])
