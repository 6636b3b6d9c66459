"""One round at any place of a recorded text, for lesson 06: what the index said, what was proposed, how it fared.

Follows LogitSpec (arXiv 2507.01449): what stood after the last tokens, and guesses from the last row.
Left out: pictures (forest.py), controls (widgets.py), the drafters themselves (drafters/), temperatures above 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from specdec_lib.decode import Session
from specdec_lib.drafters import LogitSpec
from specdec_lib.experiments.recording import Recorded, Replay
from specdec_lib.render import NOT_REACHED, OUTCOMES
from specdec_lib.trace import Round

ASKED = 4  # of the best guesses, the keys that are named


@dataclass(frozen=True)
class Step:
    """One round after `at` tokens of a recorded text.

    ids: prompt and text before the round, the root last. round: what was proposed and how it fared. ranks: {token:
    rank} of the last row's best tokens that are tried; empty where no row was seen. asked: (key, position that it was
    found at or None), first the keys that end the text, longest first, then those of the best guesses. ahead: the text
    from here on.
    """

    at: int
    ids: list[int]
    round: Round
    ranks: dict[int, int]
    asked: list[tuple[list[int], int | None]]
    ahead: list[int]

    @property
    def outcomes(self) -> list[str]:
        """accepted, rejected or not reached: one a node; the root stands in the text already."""
        fates = self.round.outcomes
        return ["accepted"] + [
            OUTCOMES[fates[node]] if node in fates else NOT_REACHED for node in range(1, len(self.round.tokens))
        ]

    @property
    def guesses(self) -> dict[int, int]:
        """{node: rank} of the nodes right below the root that the last row ranks."""
        tokens, below = self.round.tokens, (n for n, parent in enumerate(self.round.parents) if parent == 0)
        return {node: self.ranks[tokens[node]] for node in below if tokens[node] in self.ranks}


def read_step(recorded: Recorded, at: int, drafter: LogitSpec) -> Step:
    """The drafter's round after `at` tokens of a recorded text, through the loop itself.

    A round without a draft goes before it, so that it knows the last row; where the text begins there is none.
    ValueError unless something of the text is left after `at` tokens.
    """
    if not 0 <= at < len(recorded.text):
        raise ValueError(f"a step stands before one of the text's {len(recorded.text)} tokens; got {at}")
    model = Replay(recorded)
    session = Session(model, drafter).start([*model.prompt, *model.text[: max(at - 1, 0)]])
    if at:
        session.run(1)
    before, best = list(session.ids), list(drafter.best)
    round_ = next(session.rounds(len(model.text) - at))

    def real(ids: Sequence[int]) -> list[int]:
        return [model.known[token] for token in ids]

    tail = before[-drafter.index.longest :]
    keys = [tail[-length:] for length in range(len(tail), 0, -1)]
    for guess in [token for token in best if token != before[-1]][:ASKED]:
        found = drafter.index.find([*tail, guess])
        keys.append([*tail, guess][-found[1] if found else -1 :])
    asked = []
    for key in keys:
        found = drafter.index.find(key)
        asked.append((real(key), found[0] if found and found[1] == len(key) else None))
    round_.tokens, round_.emitted = real(round_.tokens), real(round_.emitted)
    ranks = {token: rank for rank, token in enumerate(real(best))}
    return Step(at, real(before), round_, ranks, asked, recorded.text[at:])


def retrieved(step: Step) -> tuple[int, int, int] | None:
    """(length of the key found for the end of the text, its position, tokens proposed from there), or None."""
    for key, at in step.asked:
        if at is not None and key == step.ids[-len(key) :]:
            return len(key), at, _along(step.round, step.ids[at:])
    return None


def _along(round_: Round, ids: Sequence[int]) -> int:
    """How many of these tokens, one below the other, hang on the root."""
    node, found = 0, 0
    for token in ids:
        below = (n for n, parent in enumerate(round_.parents) if parent == node and round_.tokens[n] == token)
        node = next(below, None)
        if node is None:
            break
        found += 1
    return found


def step_line(step: Step) -> str:
    """The round in one line of text."""
    hit = retrieved(step)
    found = f"the last {hit[0]} stood before" if hit else "nothing retrieved"
    right = step.ranks.get(step.ahead[0])
    rank = "no guesses tried" if not step.ranks else "not among the guesses" if right is None else f"guess #{right}"
    return (
        f"after {step.at} tokens: {found}; {step.round.proposed} proposed, {len(step.round.path)} accepted, "
        f"{len(step.round.emitted)} emitted; the right next token: {rank}"
    )
