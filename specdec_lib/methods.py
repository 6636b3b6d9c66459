"""Methods by name: "lossless:gamma=4" to a drafter and a verifier. The one place where names are resolved.

Our own. Names and knobs are the project's fixed ones, so that results made months apart can be laid side by side.
Left out: loading models (zoo.py) and running a method (decode.py).
"""

from dataclasses import dataclass

from specdec_lib.drafters import (
    ConfidenceStop,
    Drafter,
    HeuristicLength,
    LengthController,
    ModelDrafter,
    NoDrafter,
)
from specdec_lib.verifiers import BlockVerification, GreedyMatch, Lenience, LosslessRejection, Verifier
from specdec_lib.zoo import Pair

GAMMA = 8  # draft length unless a method or a pair says otherwise

# name: (what it is in a line, its knobs with their defaults)
METHODS = {
    "autoregressive": ("plain decoding with the target alone", {}),
    "greedy": ("draft, then keep what equals the target's argmax (temperature 0)", {"gamma": GAMMA}),
    "lossless": ("draft, then rejection sampling: the target's law exactly", {"gamma": GAMMA}),
    "block": ("draft, then judge the chain as a whole: the target's law exactly", {"gamma": GAMMA}),
    "heuristic": ("lossless; 2 drafts more after a round of all accepted, else 1 fewer", {"gamma": GAMMA}),
    "confidence": ("lossless; drafts up to the first token below threshold", {"gamma": GAMMA, "threshold": 0.4}),
    "controller": ("lossless; the best draft length for alpha so far and c", {"gamma": GAMMA, "c": 0.1}),
    "lenience": ("rejection sampling made lenient: lossy, 1 is lossless", {"gamma": GAMMA, "lenience": 0.1}),
}


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


def parse_method(text: str, known: dict[str, tuple[str, dict]] = METHODS) -> tuple[str, dict[str, float]]:
    """ "lenience:lenience=0.3,gamma=4" as (name, all knobs). ValueError names what is unknown or malformed."""
    name, _, rest = text.strip().partition(":")
    if name not in known:
        raise ValueError(f"unknown method {name!r}; choose one of {', '.join(known)}")
    knobs = dict(known[name][1])
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if key not in knobs:
            names = ", ".join(knobs) or "none"
            raise ValueError(f"unknown knob {key!r} for method {name}; it has: {names}")
        try:
            knobs[key] = int(value) if isinstance(knobs[key], int) else float(value)
        except ValueError:
            kind = "a whole number" if isinstance(knobs[key], int) else "a number"
            raise ValueError(f"knob {key} of method {name} must be {kind}; got {value if equals else part!r}") from None
    return name, knobs


def build_method(text: str, pair: Pair) -> Method:
    """A method on a pair's models."""
    name, knobs = parse_method(text)
    drafter, verifier = _parts(name, knobs, pair)
    return Method(name, knobs, drafter, verifier)


def _parts(name: str, knobs: dict[str, float], pair: Pair) -> tuple[Drafter, Verifier]:
    match name:
        case "autoregressive":
            return NoDrafter(), LosslessRejection()
        case "heuristic":
            return HeuristicLength(pair.draft, **knobs), LosslessRejection()
        case "confidence":
            return ConfidenceStop(pair.draft, **knobs), LosslessRejection()
        case "controller":
            return LengthController(pair.draft, **knobs), LosslessRejection()
    drafter = ModelDrafter(pair.draft, knobs["gamma"])
    match name:
        case "greedy":
            return drafter, GreedyMatch()
        case "block":
            return drafter, BlockVerification()
        case "lenience":
            return drafter, Lenience(knobs["lenience"])
    return drafter, LosslessRejection()
