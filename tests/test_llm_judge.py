"""An LLM as judge, with a stand-in: what it is asked, which answers count, what is kept, and when it is not asked.
Follows specdec_lib/verifiers/llm_judge.py; numbers by hand.
Left out: whether a real model judges well; the one that runs here cannot.
"""

import pytest
import torch
from laws import SAMPLED, TOLERANCE, first_token_law
from test_verifiers import chance, one_hots, scores
from tiny import VOCAB, llama

from specdec_lib.decode import decode
from specdec_lib.drafters import ModelDrafter
from specdec_lib.model import TableModel
from specdec_lib.sampling import SamplingSettings
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers import Scores
from specdec_lib.verifiers.llm_judge import LLMJudge, asker, judge_prompt, parse_answer

WORDS = ["the", "cat", "sat", "on", "a", "mat", "dog", "{}", "9"]


class Words:
    """A tokenizer of nine words."""

    chat_template = None

    def decode(self, ids):
        return " ".join(WORDS[i] for i in ids)


class StandIn:
    """ask() with the same answer to everything; remembers the prompts."""

    def __init__(self, answer):
        self.answer, self.prompts = answer, []

    def __call__(self, prompt):
        self.prompts.append(prompt)
        return self.answer


def judged(answer, drafts=(1, 2, 3), best=(1, 4, 3, 5)):
    """The verdict on drafts where the target would write `best`: by default only the second one differs."""
    rule = LLMJudge(StandIn(answer), Words())
    rows = scores(one_hots(*best))
    rows.prefix = lambda row: [0]
    return rule.verify(DraftTree.chain([0, *drafts]), rows, chance()), rule


@pytest.mark.parametrize(
    "answer, path, token, outcomes",
    [
        ("0", [1, 2, 3], 5, {1: "exact", 2: "rescued", 3: "exact"}),  # none is wrong
        ("3", [1, 2, 3], 5, {1: "exact", 2: "rescued", 3: "exact"}),  # the third is, but the target writes it too
        ("2", [1], 4, {1: "exact", 2: "rejected"}),
        ("1", [1], 4, {1: "exact", 2: "rejected"}),  # the standard rule's acceptance stands
    ],
)
def test_tokens_before_the_first_wrong_one_are_kept(answer, path, token, outcomes):
    verdict, rule = judged(answer)
    assert (verdict.path, verdict.token, verdict.outcomes) == (path, token, outcomes)
    assert (rule.asked, rule.malformed) == (1, 0)
    assert rule.lossless is False and rule.name == "llm-judge"


@pytest.mark.parametrize(
    "answer", ["", "four", "4", "-1", "2.5", "1 2", "No piece 3 is wrong", "2, I think", "²", "9" * 30]
)
def test_an_answer_of_no_use_falls_back_to_the_standard_rule_and_is_counted(answer):
    verdict, rule = judged(answer)
    assert (verdict.path, verdict.token, verdict.outcomes) == ([1], 4, {1: "exact", 2: "rejected"})
    assert (rule.asked, rule.malformed) == (1, 1)


@pytest.mark.parametrize("answer, number", [("0", 0), (" 3\n", 3), ("2.", 2), ('"1"', 1), ("**3**", 3), ("03", 3)])
def test_a_number_may_have_marks_around_it(answer, number):
    assert parse_answer(answer, 3) == number


def test_the_judge_reads_the_text_and_a_numbered_line_for_each_token():
    _, rule = judged("0")
    (prompt,) = rule.ask.prompts
    assert "Text:\nthe\n" in prompt
    assert "Pieces:\n1. cat\n2. sat\n3. on\n" in prompt
    assert "{}" in judge_prompt(Words(), [7], [7]), "braces in a text are left alone"


def test_the_judge_is_not_asked_where_all_match_or_nothing_is_proposed():
    verdict, rule = judged("1", drafts=(1, 4, 3))
    assert verdict.path == [1, 2, 3] and rule.asked == 0
    verdict, rule = judged("1", drafts=(), best=(4,))
    assert (verdict.path, verdict.token, rule.asked) == ([], 4, 0)


def test_above_temperature_0_the_residual_rule_stays():
    """p = (.2, .3, .5), q = (.6, .3, .1). All wrong: p exactly. All right: q exactly."""
    p, q = [0.2, 0.3, 0.5], [0.6, 0.3, 0.1]
    target, drafter = TableModel.constant(p), ModelDrafter(TableModel.constant(q), 1)
    for answer, law in (("1", p), ("0", q)):
        found = first_token_law(target, drafter, LLMJudge(StandIn(answer), Words()), SAMPLED)
        assert found == pytest.approx(law, abs=TOLERANCE)


def test_the_text_before_the_proposal_is_all_that_is_committed():
    rule = LLMJudge(StandIn("0"), Words())
    trace = decode(TableModel.constant([0.1, 0.9]), [0, 0], 4, ModelDrafter(TableModel.constant([0.9, 0.1]), 1), rule)
    texts = [prompt.split("Text:\n")[1].split("\n")[0] for prompt in rule.ask.prompts]
    assert trace.ids == [0, 1, 0, 1]
    assert texts == ["the the", "the the the cat"]


def test_a_forbidden_token_is_not_kept_whatever_the_judge_says():
    rows = torch.tensor([[0.0, 9.0, 1.0], [0.0, 0.0, 1.0]])
    banned = Scores(rows, SamplingSettings(bad_words_ids=((0,),)).adjuster(), lambda row: [2])
    verdict = LLMJudge(StandIn("0"), Words()).verify(DraftTree.chain([2, 0]), banned, chance())
    assert (verdict.path, verdict.token) == ([], 1)


def test_a_tree_that_branches_is_refused():
    with pytest.raises(ValueError, match="single chain"):
        LLMJudge(StandIn("0"), Words()).verify(DraftTree.from_paths(0, [[1], [2]]), scores(one_hots(1, 2, 3)), chance())


# ---- a transformers model as judge -----------------------------------------------------------------------------


class Numbers(Words):
    """Ids are written as numbers; a template, where there is one, puts 5 before and 6 behind."""

    pad_token_id = eos_token_id = 0

    def __init__(self, chat):
        self.chat_template = "there" if chat else None

    def __call__(self, text):
        return {"input_ids": [int(word) for word in text.split()]}

    def apply_chat_template(self, messages, add_generation_prompt, return_dict):
        assert add_generation_prompt and messages[0]["role"] == "user"
        return [5, *self(messages[0]["content"])["input_ids"], 6]

    def decode(self, ids, skip_special_tokens=False):
        return " ".join(str(int(i)) for i in ids)


@pytest.mark.parametrize("chat", [False, True])
def test_a_model_answers_greedily_with_its_new_tokens_alone(chat):
    model = llama(seed=3)
    ids = [5, 1, 2, 3, 6] if chat else [1, 2, 3]
    answer = asker(model, Numbers(chat), max_new_tokens=4)("1 2 3")
    expected = model.generate(torch.tensor([ids]), max_new_tokens=4, do_sample=False, pad_token_id=0)[0, len(ids) :]
    assert answer == " ".join(map(str, expected.tolist())) and len(answer.split()) == 4
    assert all(int(word) < VOCAB for word in answer.split())
