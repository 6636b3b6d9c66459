"""LLM-as-judge: a language model is asked in words how much of the proposal is right. Lossy.

Our own protocol, for the rival that Judge Decoding (arXiv 2501.19309) and others name; their prompts are not known.
Left out: any claim of quality. It takes a model that can judge; one of 135 million parameters cannot.
"""

import re
from collections.abc import Callable

import torch

from specdec_lib.sampling import Chance
from specdec_lib.tree import DraftTree
from specdec_lib.verifiers.base import Scores, Verdict
from specdec_lib.verifiers.greedy import matches
from specdec_lib.verifiers.lossless import standard_or

PROMPT = """Below is a text and a proposal for how it goes on, in numbered pieces. A piece is wrong if it states
something false or makes the text go wrong. Other words for the same thing are right.

Text:
{text}

Pieces:
{pieces}

Which piece is the first wrong one? Answer with its number alone, or with 0 if none is wrong."""


class LLMJudge:
    """Accept iff the standard rule accepts, or the token stands before the first one that the judge calls wrong.

    ask: a function from a prompt to the judge's answer, both texts (asker wraps a transformers model). It is asked
    once a round, and not at all where every token matches at temperature 0. tokenizer: turns ids into the
    text that the judge reads. Where the text is cut, the standard rule's own token follows: the argmax, or a draw
    from its residual. An answer that is not one number of a piece, or 0, rescues nothing.
    asked, malformed: how many questions were put, and how many answers were of no use; they decide nothing.
    Raises ValueError for a tree that branches. Errors of ask are its own, and end the round.
    """

    name, lossless, needs = "llm-judge", False, frozenset()

    def __init__(self, ask: Callable[[str], str], tokenizer):
        self.ask, self.tokenizer = ask, tokenizer
        self.asked = self.malformed = 0

    def verify(self, tree: DraftTree, scores: Scores, chance: Chance) -> Verdict:
        if not tree.is_chain or tree.scouts:
            raise ValueError("an LLM judges a single chain; use the method lossless for a tree")
        rescued = torch.zeros(len(tree), dtype=torch.bool, device=tree.tokens.device)
        if len(tree) > 1 and not (scores.greedy and bool(matches(tree, scores)[1:].all())):
            rescued[1 : 1 + self._right(tree, scores)] = True
        return standard_or(tree, scores, chance, rescued)

    def _right(self, tree: DraftTree, scores: Scores) -> int:
        """How many leading tokens the judge calls right; 0 after an answer of no use."""
        tokens = tree.tokens[1:].tolist()
        prompt = judge_prompt(self.tokenizer, scores.prefix(0), tokens)
        self.asked += 1
        first_wrong = parse_answer(self.ask(prompt), len(tokens))
        self.malformed += first_wrong is None
        return 0 if first_wrong is None else (first_wrong or len(tokens) + 1) - 1


def judge_prompt(tokenizer, text: list[int], proposal: list[int]) -> str:
    """The question about a proposal (ids) after a text (ids), a numbered line for each proposed token."""
    pieces = "\n".join(f"{i}. {tokenizer.decode([token])}" for i, token in enumerate(proposal, start=1))
    return PROMPT.format(text=tokenizer.decode(text), pieces=pieces)


def parse_answer(answer: str, pieces: int) -> int | None:
    """The number of the first wrong piece, 0 for none; None for anything but one whole number from 0 to pieces.

    A full stop, quotes and blanks around the number are let pass; words are not, since they may deny it.
    """
    found = re.fullmatch(r"[\s\"'*]*([0-9]{1,9})[\s\"'*.]*", answer)
    number = int(found[1]) if found else -1
    return number if 0 <= number <= pieces else None


def asker(model, tokenizer, max_new_tokens: int = 8) -> Callable[[str], str]:
    """ask(prompt) for a transformers model: its greedy answer, through the chat template if the tokenizer has one."""

    @torch.inference_mode()
    def ask(prompt: str) -> str:
        if tokenizer.chat_template:
            message = [{"role": "user", "content": prompt}]
            ids = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False)
        else:
            ids = tokenizer(prompt)["input_ids"]
        ids = torch.tensor([ids], device=model.device)
        answer = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            pad_token_id=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id,
        )
        return tokenizer.decode(answer[0, ids.shape[1] :], skip_special_tokens=True)

    return ask
