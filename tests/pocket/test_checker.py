"""The checker on hand-made answers in every wording, with every kind of slip.

Follows specdec_lib/pocket/checker.py.
Left out: answers of the shipped models (test_shipped.py).
"""

import random

import pytest

from specdec_lib.pocket.checker import AFTER, CORRECTED, RIGHT, WRONG, final_number, mark, mark_next
from specdec_lib.pocket.world import (
    EOS,
    FAMILIES,
    MARKERS,
    SLOTS,
    STYLES,
    Problem,
    Step,
    Style,
    answer_parts,
    make_problem,
    slip,
    tokens_of,
    write_answer,
)

GIFTS = Problem("gifts", "mia", "apples", 12, (Step("+", 7, ("tom",)), Step("-", 5, ("tom",))))
ANSWER = (
    " first, mia has 12 apples. next, tom gives mia 7 apples, so 12 + 7 = 19. now mia has 19 apples."
    " next, tom takes 5 apples, so 19 - 5 = 14. now mia has 14 apples."
    " in the end, mia has 14 apples. the answer is 14. #### 14</s>"
)


def labels(text: str) -> list[tuple[str, str]]:
    tokens = tokens_of(text)
    return list(zip(tokens, mark(GIFTS, tokens).labels, strict=True))


def test_the_plain_answer_is_right_token_by_token():
    marking = mark(GIFTS, tokens_of(ANSWER))
    assert set(marking.labels) == {RIGHT}
    assert marking.final_right and marking.finished and not marking.any_wrong and marking.first_wrong is None


def test_the_other_wording_is_right_everywhere_and_in_every_mix():
    other = (
        " initially, mia owns 12 apples. then, tom hands mia 7 apples, which means 12 plus 7 makes 19."
        " at this point mia owns 19 of them. then, tom removes 5 apples, which means 19 minus 5 makes 14."
        " at this point mia owns 14 of them. finally, mia owns 14 of them. this gives 14. #### 14</s>"
    )
    assert set(mark(GIFTS, tokens_of(other)).labels) == {RIGHT}
    mixed = ANSWER.replace(" +", " plus").replace(" now mia has 19 apples", " at this point mia has 19 of them")
    assert set(mark(GIFTS, tokens_of(mixed)).labels) == {RIGHT}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_wording_of_every_slot_is_right_in_every_family(family):
    rng, seen = random.Random(family), set()
    for _ in range(200):
        problem = make_problem(rng, "train", (family,))
        for share in (0.0, 0.5, 1.0):
            tokens = write_answer(problem, rng, Style(dict.fromkeys(SLOTS, share)))
            marking = mark(problem, tokens)
            assert set(marking.labels) == {RIGHT} and marking.final_right and marking.finished
        seen |= {part.name for part in answer_parts(problem) if part.kind == "slot"}
    assert len(seen) >= 10


def test_a_wrong_digit_is_the_first_error_and_the_rest_is_after_it():
    marked = labels(ANSWER.replace("12 + 7 = 19. now mia has 19", "12 + 7 = 18. now mia has 18"))
    first = [label for _, label in marked].index(WRONG)
    assert marked[first] == ("8", WRONG)
    assert {label for _, label in marked[:first]} == {RIGHT}
    assert {label for _, label in marked[first + 1 :]} == {AFTER}


def test_a_slip_noticed_at_once_is_wrong_then_corrected_then_right_again():
    for marker in ("wait", "no"):
        marked = labels(ANSWER.replace("12 + 7 = 19.", f"12 + 7 = 18, {marker}, 19."))
        at = [label for _, label in marked].index(WRONG)
        assert marked[at : at + 6] == [
            ("8", WRONG),
            (",", CORRECTED),
            (f" {marker}", CORRECTED),
            (",", CORRECTED),
            (" 1", CORRECTED),
            ("9", CORRECTED),
        ]
        assert {label for _, label in marked[at + 6 :]} == {RIGHT}
        assert mark(GIFTS, [token for token, _ in marked]).final_right


def test_a_slip_in_the_first_digit_and_one_digit_too_many_can_be_corrected():
    for wrong, first in (("29", " 2"), ("9", " 9"), ("199", "9"), ("1", ",")):
        marked = labels(ANSWER.replace("12 + 7 = 19.", f"12 + 7 = {wrong}, wait, 19."))
        at = [label for _, label in marked].index(WRONG)
        assert marked[at][0] == first
        assert AFTER not in {label for _, label in marked}


def test_a_correction_that_is_wrong_again_may_be_corrected_again():
    marked = labels(ANSWER.replace("12 + 7 = 19.", "12 + 7 = 18, wait, 17, no, 19."))
    wrong = [token for token, label in marked if label == WRONG]
    assert wrong == ["8", "7"] and AFTER not in {label for _, label in marked}


def test_a_correction_that_is_left_wrong_is_an_error_for_good():
    marking = mark(GIFTS, tokens_of(ANSWER.replace("12 + 7 = 19.", "12 + 7 = 18, wait, 17.")))
    assert marking.labels.count(WRONG) == 2 and marking.labels[-1] == AFTER
    assert marking.labels.index(AFTER) > marking.labels.index(CORRECTED)


def test_a_wrong_recipient_is_seen_though_the_final_number_is_right():
    marking = mark(GIFTS, tokens_of(ANSWER.replace("tom gives mia 7", "tom gives leo 7")))
    assert marking.final_right and marking.any_wrong
    assert tokens_of(ANSWER)[marking.first_wrong] == " mia"


@pytest.mark.parametrize(
    "text, wrong",
    [
        (ANSWER.replace("so 12 + 7", "so 12 - 7"), " -"),  # wrong operator
        (ANSWER.replace(" tom takes 5", " tom takes 6"), " 6"),  # wrong operand
        (ANSWER.replace("#### 14", "#### 41"), " 4"),  # wrong copy of the answer
        (ANSWER.replace("the answer is 14", "the answer is 15"), "5"),
        (ANSWER.replace(" next, tom takes", " wait, tom takes"), " wait"),  # a correction of nothing
        (ANSWER.replace("= 19.", "= 19, wait, 19."), ","),  # a correction of a right number
    ],
)
def test_other_kinds_of_error_are_found_at_their_token(text, wrong):
    marking = mark(GIFTS, tokens_of(text))
    assert tokens_of(text)[marking.first_wrong] == wrong


def test_an_unfinished_answer_is_right_as_far_as_it_goes():
    marking = mark(GIFTS, tokens_of(ANSWER)[:20])
    assert set(marking.labels) == {RIGHT} and not marking.finished and not marking.final_right
    assert mark(GIFTS, []).labels == ()


def test_text_after_the_end_is_wrong():
    assert mark(GIFTS, [*tokens_of(ANSWER), " mia"]).labels[-1] == WRONG


def test_mark_next_says_how_one_more_token_would_fare():
    prefix = tokens_of(ANSWER)[:3]
    assert mark_next(GIFTS, prefix, " owns") == RIGHT
    assert mark_next(GIFTS, prefix, " tom") == WRONG


def test_the_final_number_is_read_from_the_text_whatever_came_before():
    assert final_number(tokens_of(" nonsense #### 41")) == 41
    assert final_number(tokens_of(" no number ####")) is None
    assert final_number(tokens_of(" 41")) is None
    assert final_number(tokens_of(" #### 4 1")) == 4


def test_written_slips_are_marked_as_the_writer_meant_them():
    rng = random.Random(3)
    kinds = set()
    for _ in range(400):
        problem = make_problem(rng, "train")
        for slips in ({"noticed": 1.0}, {"miscopied": 1.0}):
            noticed = write_answer(problem, rng, Style(dict.fromkeys(SLOTS, 0.3), **slips))
            marking = mark(problem, noticed)
            assert marking.labels.count(WRONG) == 1 and CORRECTED in marking.labels and AFTER not in marking.labels
            assert marking.final_right and set(noticed) & set(MARKERS)
        unnoticed = mark(problem, write_answer(problem, rng, Style(dict.fromkeys(SLOTS, 0.3), unnoticed=1.0)))
        assert unnoticed.labels.count(WRONG) == 1 and CORRECTED not in unnoticed.labels and unnoticed.labels[0] != WRONG
        kinds.add(unnoticed.final_right)
    assert False in kinds


def test_slips_are_of_every_kind_and_in_range():
    rng = random.Random(0)
    assert {slip(rng, 52) for _ in range(200)} == {51, 53, 42, 62, 25}
    assert {slip(rng, 1) for _ in range(200)} == {2, 11}
    assert {slip(rng, 99) for _ in range(200)} == {98, 89}
    assert {slip(rng, 20) for _ in range(200)} == {19, 21, 10, 30, 2}


def test_eos_is_part_of_a_right_answer():
    assert tokens_of(ANSWER)[-1] == EOS and STYLES["target"].noticed > 0
