"""The checker: marks every token of any answer to a pocket problem, and whether its final number is right.

Our own (no paper). It walks the set of all right answers (world.answer_parts), so it is exact.
Left out: judging an answer in other words than the world's; such a token is wrong.
"""

from dataclasses import dataclass

from specdec_lib.pocket.world import EOS, FINAL, MARKERS, Part, Problem, answer_parts

RIGHT, WRONG, CORRECTED, AFTER = "right", "wrong", "corrected", "after"


@dataclass(frozen=True)
class Marking:
    """labels: one of RIGHT, WRONG, CORRECTED, AFTER for each token. final_right: the number after #### is right.

    WRONG is the first token of an error, also of one that is put right at once. CORRECTED are the tokens from
    there to the end of the number that puts it right; the text after it is RIGHT again. AFTER is everything
    after an error that was not put right. finished: the answer ended with EOS.
    """

    labels: tuple[str, ...]
    final_right: bool
    finished: bool

    @property
    def any_wrong(self) -> bool:
        return WRONG in self.labels

    @property
    def first_wrong(self) -> int | None:
        return self.labels.index(WRONG) if self.any_wrong else None


class Walker:
    """A place in the set of right answers: a part, and what remains of each wording that still fits."""

    def __init__(self, parts: list[Part]):
        self.parts, self.i = parts, 0
        self.left = list(parts[0].options)

    @property
    def begun(self) -> bool:
        """Is it inside a part, with some of it written?"""
        return self.i < len(self.parts) and self.left != list(self.parts[self.i].options)

    def step(self, token: str) -> bool:
        """Take a token if some right answer has it here; else stay and say False."""
        left = [rest[1:] for rest in self.left if rest[0] == token]
        if not left:
            return False
        if left == [()]:
            self.i += 1
            left = list(self.parts[self.i].options) if self.i < len(self.parts) else []
        self.left = left
        return True

    def number_here(self) -> int | None:
        """The index of the number being written or just written, if any."""
        for i in (self.i, self.i - 1):
            inside = i == self.i or (self.i < len(self.parts) and not self.begun)
            if 0 <= i < len(self.parts) and self.parts[i].kind in ("result", "number") and inside:
                return i
        return None

    def back_to(self, i: int) -> None:
        self.i, self.left = i, list(self.parts[i].options)


def mark(problem: Problem, tokens: list[str]) -> Marking:
    """Mark an answer given as the world's tokens (EOS included if it was written)."""
    walker, labels, i = Walker(answer_parts(problem)), [], 0
    while i < len(tokens):
        if walker.step(tokens[i]):
            labels.append(RIGHT)
            i += 1
            continue
        resumed = _correction(walker, tokens, i)
        if resumed is None:
            labels += [WRONG] + [AFTER] * (len(tokens) - i - 1)
            break
        labels += [WRONG] + [CORRECTED] * (resumed - i - 1)
        i = resumed
        at = walker.i
        while i < len(tokens) and walker.i == at and walker.step(tokens[i]):  # the number that puts it right
            labels.append(CORRECTED)
            i += 1
    return Marking(tuple(labels), final_number(tokens) == problem.answer, EOS in tokens)


def mark_next(problem: Problem, prefix: list[str], token: str) -> str:
    """How one more token after a prefix would be marked."""
    return mark(problem, [*prefix, token]).labels[-1]


def _correction(walker: Walker, tokens: list[str], i: int) -> int | None:
    """If the wrong token at i belongs to a number that is announced as wrong at once, go back to that number.

    Returns the position after the announcement (", wait,"), or None.
    """
    written = walker.number_here()
    if written is None or (not _digit(tokens[i]) and walker.i != written):  # a whole right number needs no correction
        return None
    end = i
    while end < len(tokens) and _digit(tokens[end]):
        end += 1
    if len(tokens) < end + 3 or tokens[end] != "," or tokens[end + 1] not in MARKERS or tokens[end + 2] != ",":
        return None
    walker.back_to(written)
    return end + 3


def _digit(token: str) -> bool:
    return token.strip().isdigit()


def final_number(tokens: list[str]) -> int | None:
    """The number after the last ####, or None."""
    if FINAL not in tokens:
        return None
    at = len(tokens) - tokens[::-1].index(FINAL)
    digits = ""
    while at < len(tokens) and _digit(tokens[at]) and (not digits or not tokens[at].startswith(" ")):
        digits += tokens[at].strip()
        at += 1
    return int(digits) if digits else None
