"""Lesson 07's pictures and widget: they read a memory as the rule does, count as they say, refuse other records.

Follows specdec_lib/filling.py, correction.py and experiments/csd_filling.py.
Left out: the rule (test_csd.py), the page in a browser (ui/).
"""

import json
import math

import ipywidgets
import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_hex

from specdec_lib import correction, filling
from specdec_lib.colours import COLOURS
from specdec_lib.csd.memory import CorrectionMemory
from specdec_lib.experiments import csd_filling, find
from specdec_lib.experiments.base import Lab
from specdec_lib.filling import accepts, drawn_pairs, fates, filling_line, filling_of, measured_at, read_filling
from specdec_lib.knob import fates_html
from specdec_lib.pocket.tokenizer import world_ids
from specdec_lib.pocket.world import problems
from specdec_lib.sampling import SamplingSettings
from specdec_lib.scored import ScoredText, draft_answers, read_answer, score_answer
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers import Scores
from specdec_lib.verifiers.csd import CSD
from specdec_lib.widgets import filling_widget


def make_text(labels=("right", "right", "wrong", "after", "after")) -> ScoredText:
    """The argmax; `x` for `*` at a ratio of .4; `4` for `5` at a ratio of .01; the argmax; the end for a full stop."""
    own, top = (0.9, 0.2, 0.009, 0.8, 0.4), (0.9, 0.5, 0.9, 0.8, 0.5)
    return ScoredText(
        "<how> many?", [" so", " x", " 4", ".", "</s>"], list(labels), [" so", " *", " 5", ".", "."], [0, 1, 2, 0, 1],
        [math.log(v) for v in own], [math.log(v) for v in top], [0.3] * 5, [0.0] * 5,
    )  # fmt: skip


def make_record() -> dict:
    """Two lengths, one lambda, two taus; a word's pair seen 4 and 40 times, a digit's 1 and 9 times."""
    measured = {(10, 0.1): (3.0, 1.0), (10, 0.001): (4.0, 0.9), (100, 0.1): (3.5, 0.95), (100, 0.001): (6.0, 0.7)}
    rows = [{"method": "greedy", "settings": {}, "kept": 2.0, "accuracy": 1.0, "n": 20}]
    rows += [
        {"settings": {"gamma": 8, "lambda": 6, "tau": tau}, "texts": texts, "kept": kept, "accuracy": accuracy, "n": 20}
        for (texts, tau), (kept, accuracy) in measured.items()
    ]
    pairs = [
        {"draft": " x", "target": " *", "counts": [4, 40]}, {"draft": " 4", "target": " 5", "counts": [1, 9]},
        {"draft": "</s>", "target": ".", "counts": [9, 90]},
    ]  # fmt: skip
    drafted = [
        {"word": " x", "times": [5, 50]},
        {"word": " 4", "times": [100, 900]},
        {"word": "</s>", "times": [9, 90]},
    ]
    return {"rows": rows, "lengths": [10, 100], "pairs": pairs, "drafted": drafted}


FILLING, TEXT = filling_of(make_record()), make_text()


# ---- the record ------------------------------------------------------------------------------------------------


def test_the_record_is_read_as_it_says():
    assert FILLING.lengths == (0, 10, 100) and FILLING.lambdas == (6,) and FILLING.taus == (0.1, 0.001)
    assert FILLING.memory(0) == {}
    assert FILLING.memory(10) == {(" x", " *"): 4, (" 4", " 5"): 1, ("</s>", "."): 9}
    assert FILLING.memory(100)[" 4", " 5"] == 9
    assert (FILLING.rate((" x", " *"), 10), FILLING.rate((" 4", " 5"), 100)) == (0.8, 0.01)
    assert FILLING.rate((" x", " *"), 0) == 0
    assert measured_at(FILLING, 100, 6, 0.001) == (6.0, 0.7)
    assert measured_at(FILLING, 0, 6, 0.001) == (2.0, 1.0), "an empty memory is greedy speculation"


def test_what_is_not_recorded_is_named():
    with pytest.raises(ValueError, match="50 prompts.*0, 10, 100"):
        FILLING.memory(50)
    with pytest.raises(ValueError, match="lambda 3 and tau 0.1 are not recorded"):
        measured_at(FILLING, 10, 3, 0.1)
    with pytest.raises(ValueError, match="no texts"):
        read_filling(FILLING, [], 10, 6, 0.1)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: r.pop("pairs"),
        lambda r: r["rows"].clear(),
        lambda r: r["rows"].pop(),
        lambda r: r["pairs"][0]["counts"].pop(),
        lambda r: r["drafted"][0]["times"].append(7),
        lambda r: r["rows"][1].pop("texts"),
    ],
)
def test_a_record_that_is_not_whole_is_refused(spoil):
    record = make_record()
    spoil(record)
    with pytest.raises(ValueError, match="record of csd-filling"):
        filling_of(record)


# ---- the reading -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "seen, lambda_, tau, wanted",
    [
        (0, 6, 0.001, [1, 0, 0, 1, 0]),
        (10, 6, 0.001, [1, 0, 0, 1, 0]),
        (10, 3, 0.001, [1, 1, 0, 1, 0]),
        (10, 4, 0.001, [1, 0, 0, 1, 0]),  # strictly more than lambda
        (100, 6, 0.001, [1, 1, 1, 1, 0]),  # now the slip passes, too; the end of the text never does
        (100, 6, 0.1, [1, 1, 0, 1, 0]),
        (100, 6, 0.41, [1, 0, 0, 1, 0]),  # .2 / .5 = .4
        (100, 6, 0.0, [1, 1, 1, 1, 0]),
    ],
)
def test_the_rule_by_hand(seen, lambda_, tau, wanted):
    assert accepts(TEXT, FILLING.memory(seen), lambda_, tau) == [bool(w) for w in wanted]


def test_the_rule_is_the_library_s(pair):
    """Every place of two answers: kept in the replay exactly where CSD keeps the token behind its own prefix."""
    tokenizer, seen = pair.tokenizer, {"rescued": 0, "rejected": 0}
    for found in draft_answers(pair, problems("validation", 2, seed=5)):
        ids, question = found.trace.ids, pair.prompt(found.problem.question)
        text = score_answer(
            pair, found.problem, ids, found.marking.labels, lambda hidden: hidden.new_zeros(len(hidden))
        )
        logits, _ = read_answer(pair.target, question, ids)
        known = {pair_: 1 + i % 4 for i, pair_ in enumerate(dict.fromkeys(zip(text.tokens, text.best, strict=True)))}
        memory = CorrectionMemory()
        for words, count in known.items():
            memory.pairs[tuple(world_ids(tokenizer, words))] = [0, count]
        rule = CSD(memory.freeze(), 2, 0.002, pair.stops.eos_token_ids)
        replayed = fates(text, accepts(text, known, 2, 0.002))
        for i, (x, fate) in enumerate(zip(ids, replayed, strict=True)):
            scores = Scores(logits[[i, i]], SamplingSettings().adjuster(), lambda row: [0])
            verdict = rule.verify(DraftTree.chain([question[-1], x]), scores, None)
            assert verdict.outcomes[1] == {"accepted": "exact"}.get(fate, fate)
            seen[fate] = seen.get(fate, 0) + 1
    assert seen["rescued"] > 3 and seen["rejected"] > 3


def test_the_reading_by_hand():
    texts = [TEXT, make_text(["right"] * 5)]
    reading = read_filling(FILLING, texts, 100, 6, 0.001)
    # up to its wrong token all three of the first pass; of the second all but the end
    assert (reading.kept_round, reading.wrong_passes) == ((3 + 4) / 2, 0.5)
    assert (reading.pairs, reading.trusted, reading.kept, reading.accuracy) == (3, 3, 6.0, 0.7)
    strict = read_filling(FILLING, texts, 10, 6, 0.1)
    assert (strict.kept_round, strict.wrong_passes, strict.trusted) == ((1 + 0 + 1 + 0 + 1) / 5, 0, 1)
    line = filling_line(reading, FILLING, 2)
    assert line.startswith(
        "After 100 prompts: 3 pairs, 3 of them seen more than 6 times. Recorded texts (2): 3.50 kept"
    )
    assert "let through in 50%. Decoded (20 problems): kept 6.00, answers right 70.0%; greedy speculation 2.00" in line


def test_the_text_shows_each_fate_and_cannot_become_markup():
    shown = fates_html(TEXT, fates(TEXT, accepts(TEXT, FILLING.memory(100), 6, 0.1)))
    titles = [part.split('"')[1] for part in shown.split("<span ")[1:] if part.startswith("title")]
    assert titles == ["accepted", "rescued", "rejected, wrong", "recovered", "accepted, after", "rejected, after",
                      "recovered"]  # fmt: skip
    assert "<how>" not in shown and "</s><" not in shown


# ---- pictures --------------------------------------------------------------------------------------------------


def test_the_picture_s_bars_are_counts_and_its_line_what_was_decoded():
    assert drawn_pairs(FILLING) == [("</s>", "."), (" x", " *"), (" 4", " 5")], "words first, digits below"
    fig = filling.draw_filling(FILLING, 10, 6, 0.001)
    left, right = fig.axes
    (bars,) = left.containers
    assert [bar.get_width() for bar in bars] == [9, 4, 1]
    assert [to_hex(bar.get_facecolor()).upper() for bar in bars] == [COLOURS["rescued"], "#BBBBBB", "#BBBBBB"]
    chosen = [line for line in right.lines if str(line.get_label()).startswith("tau")]
    assert [list(line.get_xdata()) for line in chosen] == [[2.0, 4.0, 6.0]]
    assert list(chosen[0].get_ydata()) == [100.0, 90.0, 70.0]
    here = next(line for line in right.lines if str(line.get_label()).startswith("here"))
    assert (list(here.get_xdata()), list(here.get_ydata())) == ([4.0], [90.0])
    assert "kept 4.00 of 8, 90.0% right" in fig.get_suptitle()


def test_mismatches_end_with_the_first_wrong_token():
    found = correction.mismatches([TEXT])
    assert [(m.draft, m.target, m.right) for m in found] == [(" x", " *", True), (" 4", " 5", False)]
    assert [round(m.gap, 3) for m in found] == [round(math.log(0.4), 3), round(math.log(0.01), 3)]
    rows = correction.patterns(found + found[:1])
    assert rows[0] == {"draft said": "x", "target wanted": "*", "times": 2, "right": 2}
    assert rows[1] == {"draft said": "4", "target wanted": "5", "times": 1, "right": 0}


def test_the_share_of_the_most_frequent_patterns():
    assert correction.share_of_top([1, 6, 1, 1, 1]) == 0.6
    assert correction.share_of_top([3, 1]) == pytest.approx(0.3), "two fifths of the first pattern"
    assert correction.share_of_top([5] * 10) == pytest.approx(0.2)
    counts = [5, 60, 5, 10, 5, 5, 4, 3, 2, 1]  # a quarter of ten patterns: two and a half of them
    assert correction.share_of_top(counts, 0.25) == pytest.approx(0.725)
    assert (correction.share_of_top(counts, 0), correction.share_of_top(counts, 1)) == (0, 1)
    with pytest.raises(ValueError, match="no patterns"):
        correction.share_of_top([])


def test_the_gate_s_picture_counts_what_passes():
    found = correction.mismatches([TEXT])
    (ax,) = correction.draw_gate(found, (0.1, 0.001)).axes
    assert ax.get_title().splitlines() == [
        "What passes, of 1 right and 1 wrong tokens", "tau 0.1: 1 right, 0 wrong; tau 0.001: 1 right, 1 wrong"
    ]  # fmt: skip
    assert sorted(line.get_xdata()[0] for line in ax.lines) == pytest.approx([math.log(0.001), math.log(0.1)])


@pytest.mark.parametrize(
    "lambda_, tau, wanted", [(6, 0.001, "1 right and 1 wrong"), (9, 0.001, "1 right and 0 wrong"),
                             (6, 0.1, "1 right and 0 wrong"), (40, 0.001, "0 right and 0 wrong")],
)  # fmt: skip
def test_the_two_locks_count_what_is_rescued(lambda_, tau, wanted):
    found = correction.mismatches([TEXT])
    (ax,) = correction.draw_two_locks(found, FILLING.memory(100), lambda_, tau).axes
    assert ax.get_title() == f"Rescued: {wanted} tokens (the shaded corner)"
    assert ax.get_xlim()[1] > 90, "every pair is on the picture"


# ---- the widget ------------------------------------------------------------------------------------------------


def test_the_widget_shows_what_the_functions_give():
    box = filling_widget(FILLING, [TEXT, make_text(["right"] * 5)])
    seen, lambda_, tau, number = box.children[0].children
    line, shown, picture = box.children[1:]
    assert [type(part) for part in (line, shown, picture)] == [ipywidgets.HTML, ipywidgets.HTML, ipywidgets.Image]
    assert line.value.startswith("After 0 prompts: 0 pairs") and 'title="rescued' not in shown.value
    before = picture.value
    seen.value, tau.value = 100, 0.001
    assert line.value.startswith("After 100 prompts: 3 pairs, 3 of them") and "kept 6.00" in line.value
    assert 'title="rescued, wrong"' in shown.value and picture.value != before
    number.value = 1
    assert 'title="rescued, wrong"' not in shown.value and 'title="rescued"' in shown.value
    assert plt.get_fignums() == [], "pictures do not pile up"


# ---- the experiment --------------------------------------------------------------------------------------------


def test_the_experiment_records_what_the_widget_reads(pair, monkeypatch):
    monkeypatch.setattr(csd_filling, "LENGTHS", (1, 2))
    monkeypatch.setattr(csd_filling, "TAUS", (0.1, 0.0))
    monkeypatch.setattr(csd_filling, "LAMBDAS", (2,))
    x, best, other = world_ids(pair.tokenizer, [" then", " next", " so"])

    def memory_after(lab, length):
        pairs = {(x, best): [0, 3 * length]} | ({(x, other): [0, 1]} if length == 2 else {})
        return CorrectionMemory(pairs=pairs, drafted={x: 10 * length}, texts=length).freeze()

    monkeypatch.setattr(csd_filling, "memory_after", memory_after)
    asked = []

    def measure(self, method, tasks, key=""):
        asked.append((method if method == "greedy" else (method.verifier.lambda_, method.verifier.tau), key))
        knobs = {} if method == "greedy" else method.knobs
        return {"method": "csd", "settings": knobs, "kept": 2.0 + len(asked), "accuracy": 0.5, "n": 2}

    monkeypatch.setattr(Lab, "measure", measure)
    assert find("csd-filling") is csd_filling
    result = json.loads(json.dumps(csd_filling.run(Lab(pair, 2, 3))))
    assert asked == [("greedy", ""), *((knobs, f"after {n}") for n in (1, 2) for knobs in ((2, 0.1), (2, 0.0)))]
    known = filling_of(result)
    assert known.counts == {(" then", " next"): (0, 3, 6), (" then", " so"): (0, 0, 1)}
    assert known.drafted == {" then": (0, 10, 20)} and known.taus == (0.1, 0.0)
    assert known.measured[2, 2, 0.0] == (7.0, 0.5)
    assert csd_filling.text(result).splitlines()[-1].split() == ["2", "2", "0", "7.00", "50.0"]
    monkeypatch.setattr(csd_filling, "filling_of", lambda result: FILLING)
    monkeypatch.setattr(csd_filling, "LENGTHS", (10,))
    monkeypatch.setattr(csd_filling, "draw_filling", lambda known, *at: at)
    assert csd_filling.figure(result) == (10, 6, 0.01)
