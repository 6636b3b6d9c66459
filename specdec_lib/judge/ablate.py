"""What the judge's training depends on: one thing changed at a time, each with its AUC on held-out labels.

Our own. The paper (arXiv 2501.19309) reports a linear head on the last layer; a re-implementation reads the normed
state.
Left out: what a change does in the loop (tune.py), and changes of the target (stages.py).
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from specdec_lib.experiments.base import Rows
from specdec_lib.judge.features import Features, features, last_layer
from specdec_lib.judge.labels import AFTER, CORRECTED, RIGHT, WRONG, LabelledAnswer
from specdec_lib.judge.train import Settings, fit, layer_of, quality, used
from specdec_lib.zoo import Pair

L2S = (0.0, 1e-4, 1e-2, 1e-1)
SIZES = (50, 100, 200, 400)  # questions
SIXTHS = (0, 2, 4, 5)  # of the layers, beside all of them
HIDDEN_UNITS, MLP_STEPS = 32, 200


@dataclass
class Bench:
    """Hidden states to train on and to test on. prompts, writers: one an answer of the training set."""

    pair: Pair
    train: Features
    test: Features
    prompts: list[str]
    writers: list[str]

    @property
    def last(self) -> int:
        return last_layer(self.pair)

    def part(self, keeps: Callable[[int], bool]) -> Features:
        """The training tokens of the answers that are kept."""
        kept = torch.tensor([keeps(i) for i in range(len(self.prompts))])
        return self.train.rows(kept[self.train.answer])

    def linear(self, found: Features | None = None, right: str = RIGHT, wrong: str = WRONG, **changed) -> dict:
        """The figures of a linear head trained with these changes."""
        found, settings = found or self.train, replace(Settings(), **changed)
        layer = layer_of(self.pair, settings)
        chosen, labels = used(found.marks, right, wrong)
        weight, bias = fit(found.hidden[layer][chosen], labels, settings)
        test = self.test.hidden[layer].double()
        if settings.normed:
            test = test / test.square().mean(dim=-1, keepdim=True).sqrt()
        return {
            "trained_on": int(chosen.sum()),
            "wrong_trained_on": int((~labels).sum()),
            **self.figures(test @ weight + bias),
        }

    def figures(self, logits: torch.Tensor) -> dict:
        row = quality(torch.sigmoid(logits), self.test, self.pair)
        row.pop("reliability")
        return row | {"right_kept_at_5": right_kept(logits, self.test.marks)}


def right_kept(logits: torch.Tensor, marks: str, wrong_kept: float = 0.05) -> float:
    """Of right tokens, the share above the score that this share of the wrong ones exceeds."""
    chosen, right = used(marks)
    scores = logits[chosen]
    return float((scores[right] > scores[~right].quantile(1 - wrong_kept)).double().mean())


def layers_of(pair: Pair) -> list[int]:
    last = last_layer(pair)
    return sorted({round(last * i / 6) for i in SIXTHS} | {last - 1, last})


def bench(pair: Pair, train: Sequence[LabelledAnswer], test: Sequence[LabelledAnswer], progress: bool = False) -> Bench:
    """Read both sets once, at every layer that is compared."""
    sets = [features(pair, answers, layers_of(pair), progress) for answers in (train, test)]
    return Bench(pair, *sets, [a.prompt for a in train], [a.writer for a in train])


def ablations(b: Bench) -> Iterator[tuple[str, str, Callable[[], dict]]]:
    """(what is changed, to what, its row's figures): the head as trained first."""
    yield "as trained", "", b.linear
    for l2 in L2S:
        yield "L2", f"{l2:g}", lambda l2=l2: b.linear(l2=l2)
    for balance, name in ((None, "none"), (0.2, "0.2"), (5.0, "5")):
        yield "weight of the wrong class", name, lambda balance=balance: b.linear(balance=balance)
    for layer in sorted(set(b.train.hidden) - {b.last}):
        yield "layer", f"{layer} of {b.last}", lambda layer=layer: b.linear(layer=layer)
    yield "norm", "after the final norm", lambda: b.linear(normed=True)
    yield "head", f"MLP, {HIDDEN_UNITS} units", lambda: _mlp(b)
    yield "tokens after an error", "wrong", lambda: b.linear(wrong=WRONG + AFTER + CORRECTED)
    yield "tokens after an error", "right", lambda: b.linear(right=RIGHT + AFTER + CORRECTED)
    for size in SIZES:
        chosen = _questions(b.prompts, size)
        yield "questions", str(size), lambda chosen=chosen: b.linear(b.part(lambda i: b.prompts[i] in chosen))
    for writer in sorted(set(b.writers)):
        yield "writer left out", writer, lambda writer=writer: b.linear(b.part(lambda i: b.writers[i] != writer))


def run(b: Bench, rows: Rows) -> list[dict]:
    """A row an ablation: auc, auc_digits (with intervals), right_kept_at_5. Rows that are there are not made again."""
    found = []
    for what, value, measure in ablations(b):
        found.append(rows.get(f"{what}: {value}", lambda w=what, v=value, m=measure: {"changed": w, "to": v, **m()}))
    return found


def _questions(prompts: list[str], size: int) -> set[str]:
    return set(random.Random(0).sample(sorted(set(prompts)), min(size, len(set(prompts)))))


def _mlp(b: Bench) -> dict:
    """One hidden layer, on the standardised state, trained like the linear head; its start is drawn from seed 0."""
    chosen, right = used(b.train.marks)
    rows = b.train.hidden[b.last][chosen]
    mean, scale = rows.mean(dim=0), rows.std(dim=0).clamp_min(1e-6)
    generator = torch.Generator().manual_seed(0)
    shapes = [(rows.shape[1], HIDDEN_UNITS), (HIDDEN_UNITS,), (HIDDEN_UNITS,), (1,)]
    tensors = [(torch.randn(s, generator=generator) / s[0] ** 0.5).requires_grad_() for s in shapes]
    weights = torch.where(right, 0.5 / right.sum(), 0.5 / (~right).sum())

    def logits(states: torch.Tensor) -> torch.Tensor:
        first, shift, second, bias = tensors
        return torch.relu((states - mean) / scale @ first + shift) @ second + bias

    solver = torch.optim.LBFGS(tensors, max_iter=MLP_STEPS, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        solver.zero_grad()
        losses = torch.nn.functional.binary_cross_entropy_with_logits(logits(rows), right.float(), reduction="none")
        value = (weights * losses).sum() + Settings().l2 / 2 * sum(t.square().sum() for t in (tensors[0], tensors[2]))
        value.backward()
        return value

    solver.step(loss)
    with torch.inference_mode():
        return {
            "trained_on": len(right),
            "wrong_trained_on": int((~right).sum()),
            **b.figures(logits(b.test.hidden[b.last])),
        }


def table(rows: Sequence[dict]) -> str:
    """The rows as text."""
    heads = f"{'AUC':>6s} {'digits':>7s} {'right kept at 5 % wrong':>24s} {'trained on':>11s} {'wrong':>6s}"
    lines = [f"{'changed':45s} {heads}"]
    for row in rows:
        digits = "n/a" if row["auc_digits"] is None else f"{row['auc_digits']:.3f}"
        lines.append(
            f"{row['changed'] + ': ' + row['to']:45s} {row['auc']:6.3f} {digits:>7s} {row['right_kept_at_5']:24.3f} "
            f"{row['trained_on']:11d} {row['wrong_trained_on']:6d}"
        )
    return "\n".join(lines)
