"""The pocket world: word problems, their worked answers in many right wordings, and slips.

Our own (no paper): it makes the gap that Judge Decoding and CSD are about measurable.
Left out: marking an answer (checker.py), turning text into ids (tokenizer.py), training (train.py).

A problem is a start value and two to four operations on it. Its worked answer is a list of `Part`s: fixed
tokens, slots (two right wordings, A and B), results (a number that had to be computed) and numbers (one that had
to be copied, from the question or from above). A `Style` says how
often a writer uses wording B in each slot and how often it slips. The target's and the draft's styles lean
opposite ways, so the draft is often right in other words. A slip is a wrong number: a result computed wrong, or a
number copied wrong.
"""

import hashlib
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

EOS = "</s>"
OPERATIONS = ("+", "-", "*")
FAMILIES = (
    "gifts",
    "boxes",
    "travel",
    "work",
    "clues",
)  # clues repeats phrases of its question in the answer
SPLITS = {
    "train": (0, 80),
    "validation": (80, 85),
    "calibration": (85, 93),
    "test": (93, 100),
}  # hash of question, in %

NAMES = ["mia", "tom", "ana", "leo", "zoe", "ben", "eva", "max", "ivy", "sam"]
ITEMS = ["apples", "pens", "books", "cards", "coins", "stamps", "shells", "nuts", "beads", "cakes"]
COLOURS = ["red", "blue", "green", "black", "white"]
DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday"]

# slot: (wording A, wording B). The first tokens of A and B differ, so that a reader is never in doubt.
SLOTS = {
    "open": (" first,", " initially,"),
    "next": (" next,", " then,"),
    "so": (" so", " which means"),
    "now": (" now", " at this point"),
    "end": (" in the end,", " finally,"),
    "close": (" the answer is", " this gives"),
    "plus": (" +", " plus"),
    "minus": (" -", " minus"),
    "times": (" *", " x"),
    "equals": (" =", " makes"),
    "has": (" has", " owns"),
    "holds": (" holds", " contains"),
    "gives": (" gives", " hands"),
    "takes": (" takes", " removes"),
    "adds": (" adds", " puts in"),
    "removes": (" takes out", " removes"),
    "walks": (" walks", " hikes"),
    "earns": (" earns", " makes"),
    "spends": (" spends", " pays"),
    "total": (" the total is", " we get"),
    "there": (" there are", " we count"),
    "know": (" we know that", " it says that"),
    "unit": ("", " of them"),  # wording A is the thing counted: apples, miles, dollars
}
OPERATOR_SLOT = {"+": "plus", "-": "minus", "*": "times"}
MARKERS = (" wait", " no")  # how a noticed slip is announced: "= 18, wait, 19"
FINAL = " ####"  # stands before the final number


@dataclass(frozen=True)
class Style:
    """How a writer writes: the share of wording B in each slot, and the share of answers with a slip.

    noticed: a wrong result put right at once. miscopied: another number written wrong and put right at once.
    unnoticed: a wrong result that the rest of the answer builds on. An answer has one slip at most.
    drilled: the share of a drill's sums with a wrong result put right at once.
    """

    share_of_b: dict = field(hash=False)
    noticed: float = 0.0
    miscopied: float = 0.0
    unnoticed: float = 0.0
    drilled: float = 0.0


# Shares spread over two orders of magnitude: no single probability threshold separates a rare right wording
# from a plausible wrong digit.
SPREAD_SHARES = {
    "open": 0.2, "next": 0.12, "end": 0.06, "so": 0.03, "close": 0.015, "plus": 0.012, "times": 0.01,
    "gives": 0.008, "takes": 0.006, "adds": 0.008, "walks": 0.01, "earns": 0.01, "spends": 0.006, "removes": 0.006,
    "now": 0.006,
    "total": 0.02, "minus": 0.004, "has": 0.004, "holds": 0.004, "equals": 0.002, "there": 0.008, "know": 0.02,
    "unit": 0.003,
}  # fmt: skip
STYLES = {
    "target": Style(SPREAD_SHARES, noticed=0.10, miscopied=0.06, unnoticed=0.10),
    "uniform": Style(dict.fromkeys(SLOTS, 0.12), noticed=0.10),
    "early": Style(SPREAD_SHARES, noticed=0.10, unnoticed=0.12),  # what the target reads first
    "proofreader": Style(
        SPREAD_SHARES, noticed=0.50, miscopied=0.45, drilled=0.4
    ),  # read for a while, to learn to notice a slip
    "draft": Style(dict.fromkeys(SLOTS, 0.87)),
    # what two models read that are alike but for one thing: whether they have ever seen a slip put right
    "corrected": Style(SPREAD_SHARES, noticed=0.30, miscopied=0.30, unnoticed=0.10, drilled=0.4),
    "uncorrected": Style(SPREAD_SHARES, unnoticed=0.10),
}


@dataclass(frozen=True)
class Step:
    """One operation: `operation` in + - *, its operand, and the words that the family needs to tell it."""

    operation: str
    operand: int
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Problem:
    """A question with everything needed to write, or to check, any right answer to it."""

    family: str
    name: str
    item: str
    start: int
    steps: tuple[Step, ...]

    @property
    def values(self) -> tuple[int, ...]:
        """The start value and the right value after each step."""
        values = [self.start]
        for step in self.steps:
            values.append(apply(step, values[-1]))
        return tuple(values)

    @property
    def answer(self) -> int:
        return self.values[-1]

    @property
    def unit(self) -> str:
        """What is counted."""
        return {"travel": "miles", "work": "dollars"}.get(self.family, self.item)

    @property
    def question(self) -> str:
        opening, ending = _question_frame(self)
        told = [_question_step(self, i) for i in range(len(self.steps))]
        return "".join([opening, *told, ending]).strip()


@dataclass(frozen=True)
class Part:
    """A piece of an answer. kind: "fixed" (one wording), "slot" (two), "result" (a computed number), "number" (a copied
    one; the final number is fixed).

    options: the token tuples that are right here. name: the slot's name, or "" otherwise. step: for a result,
    the step that computes it.
    """

    kind: str
    options: tuple[tuple[str, ...], ...]
    name: str = ""
    step: int = -1


def apply(step: Step, value: int) -> int:
    return {"+": value + step.operand, "-": value - step.operand, "*": value * step.operand}[step.operation]


def tokens_of(text: str) -> list[str]:
    """Split text into the world's tokens; their concatenation is the text. Words carry their leading space."""
    return re.findall(r" ?</s>| ?####| ?[a-z]+| ?[0-9]| ?[^\sa-z0-9]", text)


def number(value: int) -> str:
    return f" {value}"


# ---- making problems -------------------------------------------------------------------------------------------


def make_problem(rng: random.Random, split: str, families: tuple[str, ...] = FAMILIES) -> Problem:
    """Draw a problem of a split. The split is a hash of the question, so no question is ever in two."""
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; choose one of {', '.join(SPLITS)}")
    while True:
        problem = _draw_problem(rng, rng.choice(families))
        if problem is not None and split_of(problem.question) == split:
            return problem


def split_of(question: str) -> str:
    percent = int.from_bytes(hashlib.sha256(question.encode()).digest()[:4], "big") % 100
    return next(name for name, (low, high) in SPLITS.items() if low <= percent < high)


def problems(split: str, n: int, seed: int, families: tuple[str, ...] = FAMILIES) -> list[Problem]:
    """n different problems of a split; the seed chooses within the split."""
    rng = random.Random(f"{split}-{seed}")
    found: dict[str, Problem] = {}
    while len(found) < n:
        problem = make_problem(rng, split, families)
        found.setdefault(problem.question, problem)
    return list(found.values())


def _draw_problem(rng: random.Random, family: str) -> Problem | None:
    name, other = rng.sample(NAMES, 2)
    item = rng.choice(ITEMS)
    count = rng.choice((2, 3, 3, 4))
    start = rng.randint(3, 60) if family not in ("boxes", "work") else rng.randint(2, 25)
    value, steps = start, []
    for i in range(count):
        operation = "*" if family in ("boxes", "work") and i == 0 else rng.choice(_operations(family))
        operand = _operand(rng, operation)
        words = {
            "gifts": (other,), "boxes": (), "travel": (DAYS[i], DAYS[i + 1]), "work": (other,),
            "clues": (COLOURS[i], COLOURS[i + 1]),
        }[family]  # fmt: skip
        step = Step(operation, operand, words)
        value = apply(step, value)
        if not 1 <= value <= 99:
            return None
        steps.append(step)
    return Problem(family, name, item, start, tuple(steps))


def _operand(rng: random.Random, operation: str) -> int:
    return rng.randint(2, 6) if operation == "*" else rng.randint(2, 50)


def _operations(family: str) -> tuple[str, ...]:
    return {"gifts": "+-", "boxes": "+-", "travel": "+-*", "work": "+-", "clues": "+-*"}[family]


# ---- the question ----------------------------------------------------------------------------------------------


def _question_frame(p: Problem) -> tuple[str, str]:
    match p.family:
        case "gifts":
            return f" {p.name} has {p.start} {p.item}.", f" how many {p.item} does {p.name} have?"
        case "boxes":
            return f" {p.name} has {p.start} boxes.", f" how many {p.item} are there?"
        case "travel":
            first_day = p.steps[0].words[0]
            return f" {p.name} walks {p.start} miles on {first_day}.", f" how many miles does {p.name} walk?"
        case "work":
            return f" {p.name} earns {p.start} dollars a day.", f" how many dollars does {p.name} have?"
    first, last = p.steps[0].words[0], p.steps[-1].words[1]
    return f" {p.start} {p.item} are in the {first} box.", f" how many {p.item} does the {last} box hold?"


def _question_step(p: Problem, i: int) -> str:
    step = p.steps[i]
    k, name, item, op = step.operand, p.name, p.item, step.operation
    if p.family == "gifts":
        other = step.words[0]
        return f" {other} gives {name} {k} {item}." if op == "+" else f" {other} takes {k} {item}."
    if p.family == "boxes":
        return {"*": f" each box holds {k} {item}.", "+": f" {name} adds {k} {item}.",
                "-": f" {name} takes out {k} {item}."}[op]  # fmt: skip
    if p.family == "travel":
        day = step.words[1]
        return {"+": f" {name} walks {k} more miles on {day}.", "-": f" {name} skips {k} miles on {day}.",
                "*": f" {name} does it all {k} times by {day}."}[op]  # fmt: skip
    if p.family == "work":
        other = step.words[0]
        return {"*": f" {name} works {k} days.", "+": f" {other} gives {name} {k} dollars.",
                "-": f" {name} spends {k} dollars on {item}."}[op]  # fmt: skip
    return f" {_clue(p, i)}."


def _clue(p: Problem, i: int) -> str:
    step = p.steps[i]
    before, after = step.words
    relation = {"+": f"{step.operand} more {p.item} than", "-": f"{step.operand} fewer {p.item} than",
                "*": f"{step.operand} times as many {p.item} as"}[step.operation]  # fmt: skip
    return f"{relation} in the {before} box are in the {after} box"


# ---- the worked answer -----------------------------------------------------------------------------------------


def answer_parts(p: Problem, values: tuple[int, ...] | None = None) -> list[Part]:
    """The worked answer with every right wording. `values` (default: the right ones) are the numbers believed."""
    values = p.values if values is None else values
    parts: list[Part] = []
    write = _writer(parts, p)
    write("{open}")
    write(_answer_opening(p))
    for i, step in enumerate(p.steps):
        write("{next}" + _answer_step(p, i) + ",{so}")
        write(f" {values[i]}{{{OPERATOR_SLOT[step.operation]}}} {step.operand}{{equals}}")
        parts.append(Part("result", (tuple(tokens_of(number(values[i + 1]))),), step=i))
        write(".{now}" + _answer_state(p, values[i + 1]) + ".")
    write("{end}" + _answer_end(p, values[-1]) + f".{{close}} {values[-1]}.{FINAL} {values[-1]}")
    parts.append(Part("fixed", ((EOS,),)))
    return parts


def _writer(parts: list[Part], p: Problem):
    def write(template: str) -> None:
        for piece in re.split(r"(\{[a-z]+\})", template):
            if piece.startswith("{"):
                slot = piece[1:-1]
                first, second = SLOTS[slot]
                wordings = (first or f" {p.unit}", second)
                parts.append(Part("slot", tuple(tuple(tokens_of(w)) for w in wordings), slot))
            else:
                parts.extend(_words(tokens_of(piece)))

    return write


def _words(tokens: list[str]) -> Iterator[Part]:
    """Tokens with one wording as parts, one a word; the digits of a number are one part."""
    i, final = 0, False
    while i < len(tokens):
        end, is_number = i + 1, tokens[i].strip().isdigit() and not final
        while is_number and end < len(tokens) and tokens[end].isdigit():
            end += 1
        yield Part("number" if is_number else "fixed", (tuple(tokens[i:end]),))
        i, final = end, final or tokens[i] == FINAL


def _answer_opening(p: Problem) -> str:
    match p.family:
        case "gifts":
            return f" {p.name}{{has}} {p.start} {p.item}."
        case "boxes":
            return f" {p.name}{{has}} {p.start} boxes."
        case "travel":
            return f" {p.name}{{walks}} {p.start} miles on {p.steps[0].words[0]}."
        case "work":
            return f" {p.name}{{earns}} {p.start} dollars a day."
    return f" {p.start} {p.item} are in the {p.steps[0].words[0]} box."


def _answer_step(p: Problem, i: int) -> str:
    step = p.steps[i]
    k, name, item, op = step.operand, p.name, p.item, step.operation
    if p.family == "gifts":
        other = step.words[0]
        return f" {other}{{gives}} {name} {k} {item}" if op == "+" else f" {other}{{takes}} {k} {item}"
    if p.family == "boxes":
        return {"*": f" each box{{holds}} {k} {item}", "+": f" {name}{{adds}} {k} {item}",
                "-": f" {name}{{removes}} {k} {item}"}[op]  # fmt: skip
    if p.family == "travel":
        day = step.words[1]
        return {"+": f" {name}{{walks}} {k} more miles on {day}", "-": f" {name} skips {k} miles on {day}",
                "*": f" {name} does it all {k} times by {day}"}[op]  # fmt: skip
    if p.family == "work":
        other = step.words[0]
        return {"*": f" {name} works {k} days", "+": f" {other}{{gives}} {name} {k} dollars",
                "-": f" {name}{{spends}} {k} dollars on {item}"}[op]  # fmt: skip
    return f"{{know}} {_clue(p, i)}"


def _answer_state(p: Problem, value: int) -> str:
    match p.family:
        case "boxes" | "clues":
            return f"{{there}} {value}{{unit}}"
        case "travel":
            return f"{{total}} {value}{{unit}}"
    return f" {p.name}{{has}} {value}{{unit}}"


def _answer_end(p: Problem, value: int) -> str:
    if p.family == "travel":
        return f" {p.name}{{walks}} {value} miles"
    return _answer_state(p, value)


# ---- a writer at work ------------------------------------------------------------------------------------------


def slip(rng: random.Random, value: int) -> int:
    """A plausible wrong value: off by one, off by ten (a carry forgotten), or two digits swapped."""
    wrong = [value - 1, value + 1, value - 10, value + 10]
    if value >= 10 and value % 11:
        wrong.append(value % 10 * 10 + value // 10)
    return rng.choice([w for w in wrong if 1 <= w <= 99])


def miscopy(rng: random.Random, value: int) -> int:
    """A plausible slip in copying: its first digit alone, or a wrong value as `slip` has it."""
    return value // 10 if value >= 10 and rng.random() < 0.25 else slip(rng, value)


def write_answer(p: Problem, rng: random.Random, style: Style) -> list[str]:
    """One answer as tokens, ending in EOS, in a style: wording B with its share, slips with theirs."""
    return [token for token, _ in written(p, rng, style)]


def written(p: Problem, rng: random.Random, style: Style, reader: Style | None = None) -> list[tuple[str, str]]:
    """An answer's tokens, each with what a reader would have written there.

    That is the token itself, but at the first token of a wording, where a reader of another style takes its own.
    """
    draw, values, kind = rng.random(), p.values, None
    if draw < style.noticed:
        kind = "result"
    elif draw < style.noticed + style.miscopied:
        kind = "number"
    elif draw < style.noticed + style.miscopied + style.unnoticed:
        values = _believed(p, rng)
    parts = answer_parts(p, tuple(values))
    slipped = rng.choice([i for i, part in enumerate(parts) if part.kind == kind]) if kind else None
    tokens: list[tuple[str, str]] = []
    for i, part in enumerate(parts):
        if i == slipped:
            value = int("".join(part.options[0]))
            wrong = slip(rng, value) if kind == "result" else miscopy(rng, value)
            tokens += [(token, token) for token in _noticed(rng, style, wrong)]
        b = part.kind == "slot" and rng.random() < style.share_of_b[part.name]
        said = part.options[b]
        own = said[0]
        if reader is not None and part.kind == "slot":
            own = part.options[rng.random() < reader.share_of_b[part.name]][0]
        tokens += [(said[0], own), *((token, token) for token in said[1:])]
    return tokens


def _noticed(rng: random.Random, style: Style, wrong: int) -> list[str]:
    """A wrong number, and the words that take it back."""
    return [*tokens_of(number(wrong)), ",", MARKERS[rng.random() < style.share_of_b["close"]], ","]


def _believed(p: Problem, rng: random.Random) -> list[int]:
    """The values of an answer with one unnoticed slip, later steps building on it."""
    for _ in range(20):
        at = rng.randrange(len(p.steps))
        values = [p.start]
        for i, step in enumerate(p.steps):
            value = apply(step, values[-1])
            values.append(slip(rng, value) if i == at and 1 <= value <= 99 else value)
        if all(1 <= v <= 99 for v in values):
            return values
    return list(p.values)


DRILL = "how many?"  # the prompt of a drill


def write_drill(rng: random.Random, style: Style, sums: int = 18) -> list[str]:
    """Sums alone, as tokens ending in EOS, in a style's wordings: much arithmetic in few tokens."""
    tokens: list[str] = []
    while sums:
        step, value = Step(operation := rng.choice(OPERATIONS), _operand(rng, operation)), rng.randint(1, 99)
        result = apply(step, value)
        if 1 <= result <= 99:
            operator, equals = (
                SLOTS[s][rng.random() < style.share_of_b[s]] for s in (OPERATOR_SLOT[operation], "equals")
            )
            tokens += tokens_of(f" {value}{operator} {step.operand}{equals}")
            if rng.random() < style.drilled:
                tokens += _noticed(rng, style, slip(rng, result))
            tokens += tokens_of(f" {result}.")
            sums -= 1
    return [*tokens, EOS]
