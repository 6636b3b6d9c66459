"""Train an autojudge head on mined labels, and say how well it ranks those of other questions.

Follows AutoJudge (arXiv 2504.20039): logistic regression on both models' states, standardised. Solver, L2 and balance
are those of the judge's head (judge/train.py).
Left out: the choice of the threshold, which needs decoded answers (specdec knobs).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tqdm import tqdm

from specdec_lib.autojudge.head import AutoJudgeHead
from specdec_lib.autojudge.labels import Mined
from specdec_lib.judge.train import Settings, auc, auc_interval, fit
from specdec_lib.model import CausalLM
from specdec_lib.zoo import Pair

HELD_OUT = 5  # every fifth question
# What a head may read of a swapped token: the row that reads it ("own"), or the one before it, which proposes it.
SHIPPED = ("draft before", "target own")
ABLATIONS = (
    SHIPPED,
    ("draft own", "target own"),  # as in the authors' code; asks the draft to read its last token too
    ("draft before", "target before"),
    ("target own",),
    ("target before",),
    ("draft before",),
    ("draft own",),
)


@dataclass
class Swaps:
    """A row a swap. states: name of a row to (swaps, width) float32. important: (swaps,) bool. question: (swaps,)."""

    states: dict[str, torch.Tensor]
    important: torch.Tensor
    question: torch.Tensor

    def of(self, names: Sequence[str]) -> torch.Tensor:
        return torch.cat([self.states[name] for name in names], dim=-1)


def swaps_of(pair: Pair, mined: Sequence[Mined], progress: bool = False) -> Swaps:
    """Both models' hidden states, before the final norm, at every swap: one pass of each a question.

    ValueError where nothing was swapped.
    """
    found: dict[str, list] = {f"{role} {row}": [] for role in ("draft", "target") for row in ("before", "own")}
    for one in tqdm(mined, desc="hidden states", unit="question", disable=not progress):
        if one.swaps:
            for role, model in (("draft", pair.draft), ("target", pair.target)):
                before, own = swap_rows(model, pair.prompt(one.question), one)
                found[f"{role} before"].append(before)
                found[f"{role} own"].append(own)
    labels = [(important, i) for i, one in enumerate(mined) for *_, important in one.swaps]
    if not labels:
        raise ValueError("the labels hold no swap: the draft never differs from the target's answers")
    important, question = zip(*labels, strict=True)
    states = {name: torch.cat(rows) for name, rows in found.items()}
    return Swaps(states, torch.tensor(important), torch.tensor(question))


def swap_rows(model: CausalLM, prompt: list[int], one: Mined) -> tuple[torch.Tensor, torch.Tensor]:
    """(row before, own row) of every swapped token, (swaps, width) each, from one pass over the text as a tree.

    The answer is a chain below the prompt's last token; a token that was not kept hangs beside it, after its prefix.
    """
    tokens, parents = [prompt[-1], *one.text], list(range(-1, len(one.text)))
    before, own = [], []
    for position, token, important in one.swaps:
        before.append(position)
        own.append(len(tokens) if important else position + 1)
        if important:
            tokens.append(token)
            parents.append(position)
    model.start()
    model.feed(prompt[:-1])
    hidden = model.score(torch.tensor(tokens, device=model.device), parents, frozenset({"hidden"})).hidden
    return hidden[before].float().cpu(), hidden[own].float().cpu()


def train(pair: Pair, swaps: Swaps, made: dict | None = None) -> AutoJudgeHead:
    """The head to ship, from all swaps. made: what to note in its file."""
    weight, bias = fit(swaps.of(SHIPPED), swaps.important, Settings())
    return AutoJudgeHead(weight.float(), bias, pair.checksums["target"], pair.checksums["draft"], made or {})


def held_out_auc(swaps: Swaps, names: Sequence[str] = SHIPPED) -> dict:
    """AUC of P(important) on every fifth question, by a head trained on the others, with its interval over questions.

    A row: states, auc, auc_interval, swaps, important (how many are), held_out (swaps that the AUC is over).
    """
    held = swaps.question % HELD_OUT == HELD_OUT - 1
    weight, bias = fit(swaps.of(names)[~held], swaps.important[~held], Settings())
    scores = swaps.of(names)[held].double() @ weight + bias
    right = swaps.important[held]
    return {
        "states": " + ".join(names),
        "auc": auc(scores, right),
        "auc_interval": auc_interval(scores, right, swaps.question[held]),
        "swaps": len(swaps.important),
        "important": int(swaps.important.sum()),
        "held_out": int(held.sum()),
    }
