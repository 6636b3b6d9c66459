"""The pocket world: splits, wordings, shares, and the tokenizer's round trip.

Follows specdec_lib/pocket/world.py and tokenizer.py.
Left out: the checker (test_checker.py) and training (test_train.py).
"""

import random
import re
from statistics import mean

import pytest

from specdec_lib.pocket.tokenizer import SPECIAL, build_tokenizer, prompt_ids, world_tokens
from specdec_lib.pocket.world import (
    FAMILIES,
    SLOTS,
    SPLITS,
    SPREAD_SHARES,
    STYLES,
    Style,
    answer_parts,
    make_problem,
    miscopy,
    problems,
    split_of,
    tokens_of,
    write_answer,
    write_drill,
)


def test_no_question_is_in_two_splits_and_a_seed_stays_within_its_split():
    seen = {split: {p.question for seed in (0, 1) for p in problems(split, 200, seed)} for split in SPLITS}
    for split, questions in seen.items():
        assert {split_of(q) for q in questions} == {split}
    assert sum(map(len, seen.values())) == len(set().union(*seen.values()))


def test_the_same_seed_gives_the_same_problems_and_another_seed_others():
    assert problems("test", 30, 5) == problems("test", 30, 5)
    assert problems("test", 30, 5) != problems("test", 30, 6)
    assert len({p.question for p in problems("test", 300, 5)}) == 300


def test_an_unknown_split_is_refused_by_name():
    with pytest.raises(ValueError, match="'dev'"):
        make_problem(random.Random(0), "dev")


def test_there_are_five_families_of_two_to_four_steps_with_values_of_two_digits():
    found = problems("train", 1000, 0)
    assert {p.family for p in found} == set(FAMILIES) and len(FAMILIES) >= 5
    assert {len(p.steps) for p in found} == {2, 3, 4}
    assert all(1 <= v <= 99 for p in found for v in p.values)


def test_answers_are_long_enough_for_a_draft_length_of_25():
    rng = random.Random(0)
    lengths = [len(write_answer(make_problem(rng, "train"), rng, STYLES["target"])) for _ in range(1000)]
    assert mean(lengths) >= 100 and max(lengths) < 260


def test_clues_repeat_phrases_of_their_question():
    for p in problems("train", 50, 0, ("clues",)):
        answer = "".join(write_answer(p, random.Random(0), STYLES["target"]))
        for clue in p.question.split(". ")[1 : 1 + len(p.steps)]:
            assert clue in answer


def test_every_slot_has_two_wordings_told_apart_by_their_first_token_wherever_it_stands():
    seen = set()
    for family in FAMILIES:
        for p in problems("train", 200, 1, (family,)):
            parts = answer_parts(p)
            for part in parts:
                if part.kind == "slot":
                    assert len(part.options) == 2 and part.options[0][0] != part.options[1][0]
                    seen.add(part.name)
    assert seen == set(SLOTS) == set(SPREAD_SHARES) and len(seen) >= 10


def test_shares_of_the_other_wording_are_spread_over_two_orders_of_magnitude_and_styles_lean_opposite_ways():
    assert max(SPREAD_SHARES.values()) / min(SPREAD_SHARES.values()) >= 100
    assert all(share < 0.5 for share in STYLES["target"].share_of_b.values())
    assert all(share > 0.5 for share in STYLES["draft"].share_of_b.values())


def test_writers_follow_their_shares_and_slip_as_often_as_they_should():
    rng, style = random.Random(1), STYLES["target"]
    counts: dict[str, list[int]] = {}
    noticed = 0
    for _ in range(3000):
        p = make_problem(rng, "train")
        tokens = write_answer(p, rng, style)
        noticed += bool({" wait", " no"} & set(tokens))
        counts.setdefault("open", []).append(tokens[0] == " initially")
        counts.setdefault("end", []).append(" finally" in tokens)
    assert abs(mean(counts["open"]) - style.share_of_b["open"]) < 0.03
    assert abs(mean(counts["end"]) - style.share_of_b["end"]) < 0.02
    assert abs(noticed / 3000 - style.noticed - style.miscopied) < 0.025


def test_drills_are_right_sums_in_the_writers_wordings():
    rng = random.Random(4)
    for style, operators in (("target", {" +", " -", " *"}), ("draft", {" plus", " minus", " x"})):
        text = "".join("".join(write_drill(rng, STYLES[style])).removesuffix("</s>") for _ in range(20))
        sums = re.findall(r" (\d+)( \S+) (\d+) (?:=|makes) (\d+)\.", text)
        assert len(sums) == 20 * 18
        for a, operator, b, result in sums:
            a, b = int(a), int(b)
            value = {"+": a + b, "plus": a + b, "-": a - b, "minus": a - b}.get(operator.strip(), a * b)
            assert value == int(result) and 1 <= value <= 99
        assert sum(operator in operators for _, operator, _, _ in sums) > len(sums) / 2


def test_a_drill_can_hold_slips_put_right_at_once():
    rng, style = random.Random(4), Style(dict.fromkeys(SLOTS, 0.0), drilled=0.5)
    text = "".join("".join(write_drill(rng, style)).removesuffix("</s>") for _ in range(40))
    said = re.findall(r"= (\d+)(?:, (?:wait|no), (\d+))?\.", text)
    slips = [(int(wrong), int(right)) for wrong, right in said if right]
    assert len(said) == 40 * 18 and abs(len(slips) / len(said) - 0.5) < 0.08
    assert all(wrong != right for wrong, right in slips)


def test_a_miscopied_number_is_another_number():
    rng = random.Random(3)
    for value in range(1, 100):
        wrong = {miscopy(rng, value) for _ in range(40)}
        assert value not in wrong and all(1 <= w <= 99 for w in wrong)
        assert (value // 10 in wrong) or value < 10


def test_only_the_final_number_cannot_be_miscopied():
    problem = make_problem(random.Random(1), "train")
    parts = answer_parts(problem)
    numbers = ["".join(part.options[0]).strip() for part in parts if part.kind == "number"]
    assert len(numbers) > 2 * len(problem.steps) and str(problem.start) in numbers
    assert all(len(part.options) == 1 for part in parts if part.kind == "number")
    final = next(i for i, part in enumerate(parts) if part.options[0] == (" ####",))
    assert {part.kind for part in parts[final:]} == {"fixed"}


def test_the_tokenizer_gives_the_worlds_tokens_and_back():
    tokenizer, rng = build_tokenizer(), random.Random(2)
    for _ in range(300):
        p = make_problem(rng, "train")
        text = "".join(write_answer(p, rng, STYLES["draft"])).removesuffix("</s>")
        ids = tokenizer(text.strip(), add_special_tokens=False)["input_ids"]
        assert world_tokens(tokenizer, ids) == tokens_of(text)
        assert tokenizer.decode(ids) == text.strip()
        assert tokenizer.unk_token_id not in ids
        prompt = prompt_ids(tokenizer, p.question)
        chat = tokenizer.apply_chat_template(
            [{"role": "user", "content": p.question}], add_generation_prompt=True, return_dict=False
        )
        assert prompt == chat and tokenizer.decode(prompt[1:-1]) == p.question


def test_digits_are_single_tokens_and_unknown_words_are_unk():
    tokenizer = build_tokenizer()
    assert tokenizer.convert_ids_to_tokens(tokenizer("907", add_special_tokens=False)["input_ids"]) == [
        "\u25819",
        "0",
        "7",
    ]
    assert tokenizer("zebra", add_special_tokens=False)["input_ids"] == [tokenizer.unk_token_id]
    assert [tokenizer.convert_tokens_to_ids(t) for t in SPECIAL] == list(range(len(SPECIAL)))
