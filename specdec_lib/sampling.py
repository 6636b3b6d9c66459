"""Laws and chance: logits to laws through transformers' own processors, and everything that may draw from them.

Follows Leviathan et al. 2023 (arXiv 2211.17192), section 2.2: settings are applied to p and to q first.
Left out: the rules that compare p with q (verifiers/), and any use of a global random state.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import torch
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

T = TypeVar("T")
COLDEST = 1e-4  # below this, logits / temperature leaves float32's useful range; the law is a one-hot anyway
_NEEDS_NO_PREFIX = (TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper, MinPLogitsWarper)


@dataclass(frozen=True)
class SamplingSettings:
    """How laws are adjusted, with the names and the order of transformers' generate. temperature 0 is greedy."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_new_tokens: int = 0
    bad_words_ids: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        t = self.temperature
        if isinstance(t, bool) or not isinstance(t, int | float) or not 0 <= t < float("inf"):
            raise ValueError(f"temperature must be a finite number, 0 (greedy) or more; got {t!r}")
        if self.min_new_tokens < 0:
            raise ValueError(f"min_new_tokens must be 0 or more; got {self.min_new_tokens}")

    def processors(
        self, prompt_length: int = 0, eos_token_ids: Sequence[int] = (), device: torch.device | str = "cpu"
    ) -> LogitsProcessorList:
        """transformers' processors for these settings. Raises ValueError where transformers refuses a value."""
        found = LogitsProcessorList()
        if self.repetition_penalty is not None:
            found.append(RepetitionPenaltyLogitsProcessor(self.repetition_penalty))
        if self.bad_words_ids:
            found.append(NoBadWordsLogitsProcessor([list(w) for w in self.bad_words_ids], list(eos_token_ids) or None))
        if self.min_new_tokens and eos_token_ids:
            found.append(
                MinNewTokensLengthLogitsProcessor(prompt_length, self.min_new_tokens, list(eos_token_ids), device)
            )
        if self.temperature >= COLDEST:
            if self.temperature != 1.0:
                found.append(TemperatureLogitsWarper(float(self.temperature)))
            if self.top_k is not None:
                found.append(TopKLogitsWarper(self.top_k))
            if self.top_p is not None:
                found.append(TopPLogitsWarper(self.top_p))
            if self.min_p is not None:
                found.append(MinPLogitsWarper(self.min_p))
        return found

    def adjuster(
        self, prompt_length: int = 0, eos_token_ids: Sequence[int] = (), device: torch.device | str = "cpu"
    ) -> "Adjuster":
        return Adjuster(self.processors(prompt_length, eos_token_ids, device), greedy=self.temperature < COLDEST)


@dataclass
class Adjuster:
    """Logits to adjusted logits and laws. greedy: the law is the argmax as a one-hot (lowest id on a tie).

    processors: a transformers LogitsProcessorList; each row is processed with its own prefix.
    """

    processors: LogitsProcessorList = field(default_factory=LogitsProcessorList)
    greedy: bool = True

    @property
    def needs_prefix(self) -> bool:
        return any(not isinstance(p, _NEEDS_NO_PREFIX) for p in self.processors)

    def logits(self, logits: torch.Tensor, prefixes: Callable[[int], Sequence[int]]) -> torch.Tensor:
        """Adjusted logits, (rows, vocabulary), float32 or wider. prefixes(row): the ids that row follows."""
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if not len(self.processors):
            return logits
        if not self.needs_prefix:
            none = torch.empty(logits.shape[0], 0, dtype=torch.long, device=logits.device)
            return self.processors(none, logits)
        rows = []
        for row in range(logits.shape[0]):  # prefixes differ in length, so one row at a time
            ids = torch.tensor([list(prefixes(row))], dtype=torch.long, device=logits.device)
            rows.append(self.processors(ids, logits[row : row + 1].clone()))
        return torch.cat(rows)

    def laws(self, adjusted: torch.Tensor) -> torch.Tensor:
        """Laws of adjusted logits, (rows, vocabulary): softmax, or the argmax as a one-hot when greedy."""
        if self.greedy:
            return one_hot(adjusted.argmax(dim=-1), adjusted.shape[-1], adjusted.dtype)
        return torch.softmax(adjusted, dim=-1)


def one_hot(ids: torch.Tensor, vocab_size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Point-mass laws, (rows, vocabulary), for ids (rows,)."""
    laws = torch.zeros(ids.shape[0], vocab_size, dtype=dtype, device=ids.device)
    return laws.scatter_(1, ids.unsqueeze(1), 1.0)


def normalised(mass: torch.Tensor, fallback: torch.Tensor) -> torch.Tensor:
    """Rows of non-negative mass (rows, vocabulary) scaled to sum 1; a row without mass becomes its fallback.

    A residual max(p - q, 0) has no mass when p = q up to rounding; drawing from p is then right (cases A15, F9).
    """
    total = mass.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, mass / total.clamp_min(torch.finfo(mass.dtype).tiny), fallback)


class LogitsError(ValueError):
    """A model gave logits that no law can be made of (NaN, infinite, or everything masked)."""


def refuse_bad_rows(row_max: Sequence[float], whose: str) -> None:
    """row_max: each row's largest logit. It is NaN if any entry is, -inf if all are, +inf if one is."""
    for row, value in enumerate(row_max):
        if not -float("inf") < value < float("inf"):
            raise LogitsError(
                f"the {whose}'s logits cannot be used: row {row} has maximum {value} "
                "(NaN or infinite values, or every token masked). Check the weights, the dtype (float16 overflows: "
                "try bfloat16 or float32) and the sampling settings."
            )


def to_host(*tensors: torch.Tensor) -> list[list[float]]:
    """Several short tensors as flat lists, in one device-to-host copy. Exact for ids and for float32."""
    flat = torch.cat([t.reshape(-1).double() for t in tensors]).tolist()
    lists, start = [], 0
    for t in tensors:
        lists.append(flat[start : start + t.numel()])
        start += t.numel()
    return lists


# ---- chance ----------------------------------------------------------------------------------------------------


class Roll(Protocol):
    """The chance of one verdict: a uniform and a draw for every node, of which a walk uses few.

    `tensor` goes to the host with everything else, flat; `host` gets it back as a list.
    """

    tensor: torch.Tensor

    def host(self, numbers: list[float]) -> None: ...
    def accept(self, node: int, probability: float) -> bool: ...
    def token(self, node: int) -> int: ...


class Chance(Protocol):
    """All that a drafter or a verifier may ask of randomness."""

    def draw(self, laws: torch.Tensor) -> torch.Tensor:
        """One independent token a row: laws (rows, vocabulary) -> ids (rows,)."""

    def roll(self, laws: torch.Tensor) -> Roll:
        """A roll whose token(node) is drawn from laws[node]."""


class RandomChance:
    """Chance from an explicit torch.Generator on the laws' device."""

    def __init__(self, generator: torch.Generator):
        self.generator = generator

    def draw(self, laws: torch.Tensor) -> torch.Tensor:
        # By the inverse of the cumulative law, with a uniform in (0, 1]: a token without mass is never the first to
        # reach it. torch.multinomial takes ten times as long on a large vocabulary, and stops at a NaN with an error
        # of its own (on a GPU one that ends the process); here bad rows are named after the round's one copy.
        cumulative = laws.double().cumsum(dim=-1)
        uniform = 1 - torch.rand(laws.shape[0], 1, generator=self.generator, device=laws.device, dtype=torch.float64)
        drawn = torch.searchsorted(cumulative, uniform * cumulative[:, -1:])
        return drawn.squeeze(1).clamp_max(laws.shape[-1] - 1)

    def roll(self, laws: torch.Tensor) -> "RandomRoll":
        return RandomRoll(self, laws)


class RandomRoll:
    """On a GPU a token is drawn for every node, so that one copy brings all; on a CPU only where it is asked for."""

    def __init__(self, chance: RandomChance, laws: torch.Tensor):
        self.chance, self.laws = chance, laws
        nodes, device = laws.shape[0], laws.device
        self.tensor = torch.rand(nodes, generator=chance.generator, device=device, dtype=torch.float64)
        if device.type != "cpu":
            self.tensor = torch.cat([self.tensor, chance.draw(laws).double()])

    def host(self, numbers: list[float]) -> None:
        nodes = self.laws.shape[0]
        self.uniforms, self.tokens = numbers[:nodes], numbers[nodes:]

    def accept(self, node: int, probability: float) -> bool:
        return self.uniforms[node] < probability  # strict: u = 0 never accepts a token of probability 0 (A29)

    def token(self, node: int) -> int:
        return int(self.tokens[node] if self.tokens else self.chance.draw(self.laws[node : node + 1]))


class ScriptedChance:
    """Chance that follows a script of choices, and beyond it takes the first possible outcome, noting the others.

    Used by `outcomes` to walk every branch of the real code with its weight.
    """

    def __init__(self, script: Sequence[int] = ()):
        self.script, self.taken, self.weight = list(script), [], 1.0
        self.open: list[list[int]] = []  # scripts of the branches passed by

    def choose(self, weights: Sequence[float]) -> int:
        possible = [i for i, w in enumerate(weights) if w > 0]
        at = len(self.taken)
        choice = self.script[at] if at < len(self.script) else possible[0]
        if at >= len(self.script):
            self.open += [[*self.taken, other] for other in possible[1:]]
        self.taken.append(choice)
        self.weight *= weights[choice]
        return choice

    def draw(self, laws: torch.Tensor) -> torch.Tensor:
        return torch.tensor([self.choose(law) for law in laws.tolist()], dtype=torch.long)

    def roll(self, laws: torch.Tensor) -> "ScriptedRoll":
        return ScriptedRoll(self, laws)


class ScriptedRoll:
    def __init__(self, chance: ScriptedChance, laws: torch.Tensor):
        self.chance, self.laws, self.tensor = chance, laws, torch.empty(0, dtype=torch.float64)

    def host(self, numbers: list[float]) -> None:
        pass

    def accept(self, node: int, probability: float) -> bool:
        return self.chance.choose([1 - probability, probability]) == 1

    def token(self, node: int) -> int:
        return self.chance.choose(self.laws[node].tolist())


def outcomes(run: Callable[[Chance], T]) -> list[tuple[float, T]]:
    """Every outcome of run(chance) with its probability; the weights sum to 1."""
    found, scripts = [], [[]]
    while scripts:
        chance = ScriptedChance(scripts.pop())
        result = run(chance)
        scripts += chance.open
        found.append((chance.weight, result))
    return found
