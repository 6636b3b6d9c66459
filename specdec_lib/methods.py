"""Methods by name: "lossless:gamma=4" to a drafter and a verifier. The one place where names are resolved.

Our own. Names and knobs are the project's fixed ones, so that results made months apart can be laid side by side.
Left out: loading models (zoo.py) and running a method (decode.py).
"""

from collections.abc import Callable
from dataclasses import dataclass

from specdec_lib.csd.memory import CorrectionMemory
from specdec_lib.datastore import store_of
from specdec_lib.drafters import (
    ConfidenceStop,
    Drafter,
    HeuristicLength,
    LengthController,
    LogitSpec,
    LogitSpecCost,
    Lookahead,
    ModelDrafter,
    NoDrafter,
    PromptLookup,
    Rest,
    SuffixDrafter,
    TokenRecycling,
)
from specdec_lib.pricing import prices_of
from specdec_lib.tuned import settings_of
from specdec_lib.verifiers import (
    KL,
    BlockVerification,
    Cascade,
    Ensemble,
    FLy,
    FLyCode,
    GreedyMatch,
    Lenience,
    LosslessRejection,
    Lossy,
    TopK,
    Typical,
    Verifier,
)
from specdec_lib.verifiers.csd import CSD
from specdec_lib.verifiers.csd_rate import CSDRate
from specdec_lib.verifiers.reflective import Reflective, reflect_prompt
from specdec_lib.zoo import Pair

GAMMA = 8  # draft length unless a method or a pair says otherwise


def drafted(rule: Callable[..., Verifier]) -> Callable[..., tuple[Drafter, Verifier]]:
    """A chain of gamma tokens from the draft model, judged by rule(**the other knobs)."""
    return lambda pair, gamma, **knobs: (ModelDrafter(pair.draft, gamma), rule(**knobs))


def lossless(drafter: Callable[..., Drafter]) -> Callable[..., tuple[Drafter, Verifier]]:
    """drafter(draft model, **knobs), judged by the lossless rule."""
    return lambda pair, **knobs: (drafter(pair.draft, **knobs), LosslessRejection())


def retrieved(drafter: Callable[..., Drafter]) -> Callable[..., tuple[Drafter, Verifier]]:
    """drafter(**knobs), which has no model, judged by the lossless rule."""
    return lambda pair, **knobs: (drafter(eos_token_ids=pair.stops.eos_token_ids, **knobs), LosslessRejection())


def looked_up(gamma: int, ngram: int, hf: int, **knobs) -> PromptLookup:
    return PromptLookup(gamma, ngram, "hf" if hf else "original", **knobs)


def from_store(pair: Pair, nodes: int) -> tuple[Drafter, Verifier]:
    """What a pair's datastore holds, judged by the lossless rule. ValueError where there is none."""
    return Rest(store_of(pair), nodes, pair.stops.eos_token_ids), LosslessRejection()


def bought(pair: Pair, keep: int) -> tuple[Drafter, Verifier]:
    """LogitSpec with its nodes bought at the prices of this machine, judged by the lossless rule."""
    return LogitSpecCost(prices_of(pair.target), bool(keep)), LosslessRejection()


def judged(pair: Pair, gamma: int, delta: float) -> tuple[Drafter, Verifier]:
    """A chain from the draft model, judged by the head trained for this target. ValueError where there is none."""
    from specdec_lib.judge.head import head_of
    from specdec_lib.verifiers.judge import Judge

    return ModelDrafter(pair.draft, gamma), Judge(head_of(pair), delta)


def automatic(pair: Pair, gamma: int, threshold: float) -> tuple[Drafter, Verifier]:
    """A chain from the draft model, judged by the head mined for this pair. ValueError where there is none."""
    from specdec_lib.autojudge.head import head_of
    from specdec_lib.verifiers.autojudge import AutoJudge

    return ModelDrafter(pair.draft, gamma), AutoJudge(head_of(pair), threshold)


def corrected(name: str) -> Callable[..., tuple[Drafter, Verifier]]:
    """A chain from the draft model, its mismatches looked up in the pair's correction memory: read only, or with the
    knob online a copy that goes on learning. EOS and special tokens are never rescued. ValueError without a memory.
    """

    def parts(pair: Pair, gamma: int, online: int, tau: float = 0.0, rate: float | None = None, **knobs):
        from specdec_lib.csd.file import memory_of

        memory = memory_of(pair, or_empty=bool(online)).snapshot()
        rule = rule_on_memory(pair, memory if online else memory.freeze(), name, tau, rate, **knobs)
        return ModelDrafter(pair.draft, gamma), rule

    return parts


def rule_on_memory(
    pair: Pair, memory: CorrectionMemory, name: str, tau: float = 0.0, rate: float | None = None, **knobs
) -> CSD:
    """The rule csd, csd-memory or csd-rate (with a rate) on this memory; knobs: lambda."""
    rest = memory, knobs["lambda"], tau
    never = never_rescued(pair)
    return CSD(*rest, never, name) if rate is None else CSDRate(*rest, rate, never, name)


def never_rescued(pair: Pair) -> set[int]:
    """EOS and special tokens."""
    return pair.stops.eos_token_ids | set(getattr(pair.tokenizer, "all_special_ids", ()))


def reflecting(pair: Pair, gamma: int, weight: float) -> tuple[Drafter, Verifier]:
    """A chain from the draft model, read twice, with words that the pair's models know between the copies."""
    return ModelDrafter(pair.draft, gamma), Reflective(reflect_prompt(pair.tokenizer), weight)


# name: (what it is in a line, its knobs with their defaults, what makes drafter and verifier of a pair and the knobs).
# A knob whose default is a whole number takes whole numbers.
METHODS = {
    "autoregressive": ("plain decoding with the target alone", {}, lambda pair: (NoDrafter(), LosslessRejection())),
    "greedy": (
        "draft, then keep what equals the target's argmax (temperature 0)", {"gamma": GAMMA}, drafted(GreedyMatch),
    ),
    "lossless": (
        "draft, then rejection sampling: the target's law exactly", {"gamma": GAMMA}, drafted(LosslessRejection),
    ),
    "block": (
        "draft, then judge the chain as a whole: the target's law exactly", {"gamma": GAMMA},
        drafted(BlockVerification),
    ),
    "heuristic": (
        "lossless; 2 drafts more after a round of all accepted, else 1 fewer", {"gamma": GAMMA},
        lossless(HeuristicLength),
    ),
    "confidence": (
        "lossless; drafts up to the first token below threshold", {"gamma": GAMMA, "threshold": 0.4},
        lossless(ConfidenceStop),
    ),
    "controller": (
        "lossless; the best draft length for alpha so far and c", {"gamma": GAMMA, "c": 0.1},
        lossless(LengthController),
    ),
    "lenience": (
        "rejection sampling made lenient: lossy, 1 is lossless", {"gamma": GAMMA, "lenience": 0.1}, drafted(Lenience),
    ),
    "lossy": (
        "lenience a, and b in the residual: lossy, a = b = 1 is lossless", {"gamma": GAMMA, "a": 0.1, "b": 1.0},
        drafted(Lossy),
    ),
    "cascade": (
        "keep unless p(x) < (1 - alpha) max p: lossy, 0 is lossless when greedy", {"gamma": GAMMA, "alpha": 0.9},
        drafted(Cascade),
    ),
    "ensemble": (
        "verify against weight p + (1 - weight) q: lossy, 1 is lossless", {"gamma": GAMMA, "weight": 0.5},
        drafted(Ensemble),
    ),
    "topk": ("keep what is in the target's top k: lossy, 0 is lossless", {"gamma": GAMMA, "k": 2}, drafted(TopK)),
    "typical": (
        "keep what is likely enough for p's entropy: lossy", {"gamma": GAMMA, "epsilon": 0.09, "delta": 0.3},
        drafted(Typical),
    ),
    "fly": (
        "keep a mismatch where p is unsure and the next drafts match: lossy (temperature 0)",
        {"gamma": GAMMA, "threshold": 0.3, "window": 6}, drafted(FLy),
    ),
    "fly-code": (
        "fly with the entropy of the top 3 alone, as in its code: lossy (temperature 0)",
        {"gamma": GAMMA, "threshold": 0.3, "window": 6}, drafted(FLyCode),
    ),
    "kl": (
        "keep where p is unsure and KL(q || p) < tau: lossy, 0 is lossless",
        {"gamma": GAMMA, "tau": 0.5, "confidence": 0.9}, drafted(KL),
    ),
    "judge": (
        "keep what a head on the hidden state calls right: lossy, 1 is lossless", {"gamma": GAMMA, "delta": 0.5},
        judged,
    ),
    "autojudge": (
        "keep what a mined head calls unimportant for the answer: lossy, 0 is lossless",
        {"gamma": GAMMA, "threshold": 0.1}, automatic,
    ),
    "reflective": (
        "verify on two readings of the draft, mixed: lossy, 0 is lossless", {"gamma": GAMMA, "weight": 0.3},
        reflecting,
    ),
    "pld": (
        "prompt lookup: what followed the last ngram tokens before; hf=1, ngram=2: as in transformers",
        {"gamma": 10, "ngram": 3, "hf": 0}, retrieved(looked_up),
    ),
    "rest": ("what followed the end of the text in a datastore (specdec datastore build)", {"nodes": 64}, from_store),
    "lookahead": (
        "a window of guesses bettered in every pass, its n-grams proposed",
        {"width": 7, "ngram": 5, "guesses": 7}, retrieved(Lookahead),
    ),
    "recycling": (
        "the target's own runners-up as a tree of 80 nodes; keep=1 goes on with earlier texts'", {"keep": 0},
        retrieved(TokenRecycling),
    ),
    "suffix": (
        "what followed the longest end that stood before; keep=1 goes on with earlier texts", {"keep": 0},
        retrieved(SuffixDrafter),
    ),
    "logitspec": (
        "what followed the last tokens before, and guesses from the last row with what followed them",
        {"capacity": 64, "guesses": 64}, lambda pair, **knobs: (LogitSpec(**knobs), LosslessRejection()),
    ),
    "logitspec-cost": (
        "logitspec with as many nodes as pay here, by a T(k) measured first; keep=1 goes on with earlier texts",
        {"keep": 0}, bought,
    ),
    "csd": (
        "keep a mismatch seen more than lambda times and near enough in logits: lossy, lambda inf is lossless",
        {"gamma": GAMMA, "lambda": 6.0, "tau": 0.01, "online": 0}, corrected("csd"),
    ),
    "csd-rate": (
        "csd where that mismatch is also the usual fate of the draft's token: lossy, lambda inf is lossless",
        {"gamma": GAMMA, "lambda": 6.0, "tau": 0.01, "rate": 0.3, "online": 0}, corrected("csd-rate"),
    ),
    "csd-memory": (
        "csd without its gate: lossy, lambda inf is lossless", {"gamma": GAMMA, "lambda": 6.0, "online": 0},
        corrected("csd-memory"),
    ),
    "csd-gate": (
        "csd without its memory, so lenience when greedy: lossy", {"gamma": GAMMA, "tau": 0.01},
        drafted(lambda tau: CSD(None, 0, tau, name="csd-gate")),
    ),
}  # fmt: skip


@dataclass
class Method:
    """A method ready to run: name, knobs, drafter and verifier."""

    name: str
    knobs: dict[str, float]
    drafter: Drafter
    verifier: Verifier

    @property
    def label(self) -> str:
        return method_label(self.name, self.knobs)


def method_label(name: str, knobs: dict[str, float]) -> str:
    """ "lenience:gamma=4,lenience=0.3": what parse_method reads."""
    return name + (":" + ",".join(f"{k}={v:g}" for k, v in knobs.items()) if knobs else "")


def parse_method(
    text: str, known: dict[str, tuple] = METHODS, tuned: dict[str, dict[str, float]] | None = None
) -> tuple[str, dict[str, float]]:
    """ "lenience:lenience=0.3,gamma=4" as (name, all knobs). ValueError names what is unknown or malformed.

    tuned: a pair's own settings, {method: {knob: value}}; they stand in for defaults where the text gives no value.
    """
    name, _, rest = text.strip().partition(":")
    if name not in known:
        raise ValueError(f"unknown method {name!r}; choose one of {', '.join(known)}")
    knobs = known[name][1] | (tuned or {}).get(name, {})
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if key not in knobs:
            names = ", ".join(knobs) or "none"
            raise ValueError(f"unknown knob {key!r} for method {name}; it has: {names}")
        try:
            knobs[key] = int(value) if isinstance(known[name][1][key], int) else float(value)
        except ValueError:
            kind = "a whole number" if isinstance(known[name][1][key], int) else "a number"
            raise ValueError(f"knob {key} of method {name} must be {kind}; got {value if equals else part!r}") from None
    return name, knobs


def tuned_knobs(pair: str) -> dict[str, dict[str, float]]:
    """What a pair's file of settings says: {method: {knob: value}}. ValueError names what is wrong in it."""
    return settings_of(pair, {name: knobs for name, (_, knobs, _) in METHODS.items()})


def build_method(text: str, pair: Pair) -> Method:
    """A method on a pair's models. A knob that is not given is the pair's own (tuned_knobs), else the default."""
    name, knobs = parse_method(text, tuned=tuned_knobs(pair.name))
    drafter, verifier = METHODS[name][2](pair, **knobs)
    return Method(name, knobs, drafter, verifier)
