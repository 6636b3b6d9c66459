"""Train a judge head: logistic regression on hidden states, the target frozen; and say how good it is.

Follows Judge Decoding (arXiv 2501.19309), in kind; standardising, L2, the balance of classes and L-BFGS are
ours, since the paper's own are not known.
Left out: the choice of delta, which needs decoded answers (tune.py).
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from specdec_lib.judge.features import Features, features, last_layer
from specdec_lib.judge.head import JudgeHead, root_mean_square_one
from specdec_lib.judge.labels import RIGHT, WRONG, LabelledAnswer
from specdec_lib.zoo import Pair

L2 = 1e-3  # on the standardised weights, beside a mean loss
BALANCE = 1.0  # total weight of the wrong tokens over that of the right ones; None: every token counts as one
STEPS = 300


@dataclass
class Settings:
    """How a head is trained. l2, balance: as L2 and BALANCE above. layer: None is the last."""

    l2: float = L2
    balance: float | None = BALANCE
    layer: int | None = None
    normed: bool = False


def used(marks: str, right: str = RIGHT, wrong: str = WRONG) -> tuple[torch.Tensor, torch.Tensor]:
    """(which tokens carry a label, (tokens,) bool; their labels, True for right)."""
    chosen = torch.tensor([mark in right + wrong for mark in marks])
    return chosen, torch.tensor([mark in right for mark in marks])[chosen]


def fit(hidden: torch.Tensor, right: torch.Tensor, settings: Settings) -> tuple[torch.Tensor, float]:
    """(weight (width,), bias) of the logistic regression on hidden (tokens, width), right (tokens,) bool.

    Float64, L-BFGS from zero: the same numbers give the same head. ValueError unless both classes are there.
    """
    if not right.any() or right.all():
        raise ValueError("a judge learns from right and from wrong tokens; the labels hold one kind only")
    rows = (root_mean_square_one(hidden) if settings.normed else hidden).double()
    mean, scale = rows.mean(dim=0), rows.std(dim=0).clamp_min(1e-6)
    rows, labels = (rows - mean) / scale, right.double()
    weights = torch.ones_like(labels)
    if settings.balance is not None:
        weights[~right] = settings.balance * right.sum().double() / (~right).sum()
    weights /= weights.sum()
    parameters = torch.zeros(rows.shape[1] + 1, dtype=torch.float64, requires_grad=True)
    solver = torch.optim.LBFGS([parameters], max_iter=STEPS, history_size=20, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        solver.zero_grad()
        logits = rows @ parameters[:-1] + parameters[-1]
        losses = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
        value = (weights * losses).sum() + settings.l2 / 2 * parameters[:-1].square().sum()
        value.backward()
        return value

    solver.step(loss)
    found = parameters.detach()
    weight = found[:-1] / scale
    return weight, float(found[-1] - weight @ mean)


def fit_and_measure(
    pair: Pair,
    answers: Sequence[LabelledAnswer],
    test: Sequence[LabelledAnswer] | None = None,
    made: dict | None = None,
    settings: Settings | None = None,
    progress: bool = False,
) -> tuple[JudgeHead, dict]:
    """A head from all answers, and the figures of `quality` on test.

    Without test a fifth of the questions is held out, the figures are those of a head that has not seen it, and the
    head that is returned has seen all.
    """
    settings = settings or Settings()
    found = features(pair, answers, [layer_of(pair, settings)], progress)
    if test is not None:
        head = head_from(pair, found, settings)
        figures = measured(pair, head, test, progress)
    else:
        held = torch.tensor([is_held_out(a.prompt) for a in answers])[found.answer]
        figures = _figures(pair, head_from(pair, found.rows(~held), settings), found.rows(held))
        head = head_from(pair, found, settings)
    chosen, right = used(found.marks)
    figures |= {"trained_on": int(chosen.sum()), "wrong_trained_on": int((~right).sum())}
    head.made = {**(made or {}), "settings": vars(settings), "quality": figures}
    return head, figures


def is_held_out(prompt: str) -> bool:
    """A fifth of all prompts, by a hash of the prompt."""
    return hashlib.sha256(prompt.encode()).digest()[0] % 5 == 0


def measured(pair: Pair, head: JudgeHead, answers: Sequence[LabelledAnswer], progress: bool = False) -> dict:
    """The figures of `quality` for a head on labelled answers."""
    return _figures(pair, head, features(pair, answers, [head.layer], progress))


def _figures(pair: Pair, head: JudgeHead, found: Features) -> dict:
    return quality(head.scores(found.hidden[head.layer]), found, pair)


def layer_of(pair: Pair, settings: Settings) -> int:
    return last_layer(pair) if settings.layer is None else settings.layer


def head_from(pair: Pair, found: Features, settings: Settings, made: dict | None = None) -> JudgeHead:
    """A head from hidden states that are there already."""
    layer = layer_of(pair, settings)
    chosen, right = used(found.marks)
    weight, bias = fit(found.hidden[layer][chosen], right, settings)
    return JudgeHead(weight.float(), bias, layer, pair.checksums["target"], settings.normed, made or {})


# ---- how good it is --------------------------------------------------------------------------------------------


def auc(scores, right, weights=None) -> float | None:
    """The chance that a right token scores above a wrong one, ties counting half; None without one of the kinds.

    scores, right: (tokens,). weights: (tokens,), how often each token counts.
    """
    scores, right = np.asarray(scores, dtype=float), np.asarray(right, dtype=bool)
    weights = np.ones_like(scores) if weights is None else np.asarray(weights, dtype=float)
    _, place = np.unique(scores, return_inverse=True)
    above, below = (np.bincount(place, weights * kind, minlength=place.max(initial=-1) + 1) for kind in (right, ~right))
    if not above.sum() or not below.sum():
        return None
    beaten = np.cumsum(below) - below / 2
    return float((above * beaten).sum() / (above.sum() * below.sum()))


def auc_interval(scores, right, answer, seed: int = 0, resamples: int = 200) -> list[float] | None:
    """95 % percentile bootstrap of the AUC over answers, whose tokens are drawn together. answer: (tokens,)."""
    return _middle(auc(scores, right, weights) for weights in _draws(answer, seed, resamples))


def auc_gain_interval(mine, theirs, right, answer, seed: int = 0, resamples: int = 200) -> list[float] | None:
    """The same of the AUC of mine less that of theirs, two scores (tokens,) of the same tokens, drawn alike."""
    pairs = (tuple(auc(s, right, weights) for s in (mine, theirs)) for weights in _draws(answer, seed, resamples))
    return _middle(None if None in pair else pair[0] - pair[1] for pair in pairs)


def _draws(answer, seed: int, resamples: int) -> Iterator[np.ndarray]:
    """How often each token counts, (tokens,), in each draw of as many answers as there are."""
    _, answer = np.unique(np.asarray(answer), return_inverse=True)
    rng, n = np.random.default_rng(seed), answer.max(initial=-1) + 1
    for _ in range(resamples if n else 0):
        yield rng.multinomial(n, [1 / n] * n)[answer]


def _middle(draws: Iterable[float | None]) -> list[float] | None:
    found = [value for value in draws if value is not None]
    return [float(x) for x in np.quantile(found, (0.025, 0.975))] if found else None


def reliability(scores, right, bins: int = 10) -> list[dict]:
    """Bins of equal width: how many tokens, their mean score, and the share that is right."""
    scores, right = np.asarray(scores, dtype=float), np.asarray(right, dtype=float)
    place = np.minimum((scores * bins).astype(int), bins - 1)
    rows = []
    for i in range(bins):
        inside = place == i
        if inside.any():
            rows.append(
                {"n": int(inside.sum()), "score": float(scores[inside].mean()), "right": float(right[inside].mean())}
            )
    return rows


def calibration_error(rows: list[dict]) -> float:
    """ECE: the mean distance of score and share over the bins, weighted by their tokens."""
    return sum(row["n"] * abs(row["score"] - row["right"]) for row in rows) / sum(row["n"] for row in rows)


def quality(scores: torch.Tensor, found: Features, pair: Pair) -> dict:
    """AUC of scores (tokens,) over the tokens of `counted`, with intervals, and calibration."""
    chosen, right = used(found.marks)
    scores, answer = scores.numpy(), found.answer.numpy()
    right_of = np.asarray([mark == RIGHT for mark in found.marks])
    bins = reliability(scores[chosen], right)
    row = {"tokens": int(chosen.sum()), "wrong": int((~right).sum())}
    for name, part in counted(found, pair).items():
        row[name] = auc(scores[part], right_of[part])
        row[f"{name}_interval"] = auc_interval(scores[part], right_of[part], answer[part])
    return row | {"calibration_error": calibration_error(bins), "reliability": bins}


def counted(found: Features, pair: Pair) -> dict[str, np.ndarray]:
    """Which tokens an AUC is taken over, (tokens,) bool: auc, all with a label; auc_digits, the digits of them."""
    chosen, _ = used(found.marks)
    return {"auc": chosen.numpy(), "auc_digits": (chosen & digit_tokens(found.ids, pair)).numpy()}


def digit_tokens(ids: torch.Tensor, pair: Pair) -> torch.Tensor:
    """(tokens,) bool: tokens that read as a number."""
    kinds = {int(i): is_digit(pair.tokenizer.decode([int(i)])) for i in ids.unique()}
    return torch.tensor([kinds[i] for i in ids.tolist()])


def is_digit(token: str) -> bool:
    return token.strip().isdigit()


def described(figures: dict) -> str:
    """The figures of `quality` as text."""
    lines = []
    if "trained_on" in figures:
        lines.append(f"trained on {figures['trained_on']} tokens, {figures['wrong_trained_on']} of them wrong")
    lines.append(f"measured on {figures['tokens']} tokens, {figures['wrong']} of them wrong")
    for key, name in (("auc", "AUC, all tokens"), ("auc_digits", "AUC, digits")):
        interval = figures[f"{key}_interval"]
        between = f"  (95 % interval {interval[0]:.3f} to {interval[1]:.3f})" if interval else ""
        lines.append(f"{name:18s} " + ("n/a" if figures[key] is None else f"{figures[key]:.3f}{between}"))
    lines.append(f"{'calibration error':18s} {figures['calibration_error']:.3f}")
    return "\n".join(lines)
