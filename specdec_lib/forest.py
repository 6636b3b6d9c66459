"""What lesson 06 draws of a round: the text with the place that it was copied from, and the tree as boxes in a row.

Our own; a step is read in guessing.py.
Left out: controls (widgets.py).
"""

import html
import itertools
from collections.abc import Callable, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from specdec_lib.colours import COLOURS
from specdec_lib.guessing import Step, retrieved

COLUMNS = 14  # boxes side by side; a deeper branch is cut in the picture
AHEAD = 10  # tokens of the text shown behind the round
STYLES = {  # of the text: its end, where that stood before, what followed there
    "key": f"outline:2px solid {COLOURS['target']}",
    "before": f"outline:2px dashed {COLOURS['target']}",
    "followed": f"background:{COLOURS['draft']}55",
    "accepted": f"background:{COLOURS['accepted']}55;font-weight:600",
    "own": f"background:{COLOURS['bonus']}66;font-weight:600",
    "ahead": "color:#999",
    "": "",
}
LEGEND = {
    "key": "the end of the text",
    "before": "where it stood before",
    "followed": "what followed there, proposed",
    "accepted": "emitted: accepted",
    "own": "emitted: the target's own",
    "ahead": "still to come",
}
PALE = "#999999"
NOTE = "the root: all branches hang on it. Green: accepted, orange: rejected, grey: not reached; #: rank of a guess"


# ---- the text and the index ------------------------------------------------------------------------------------


def step_html(step: Step, word: Callable[[int], str]) -> str:
    """The text: its end, where that stood before, what followed there; what the round emitted; what is still to come.
    Below it the keys that the index was asked for.
    """
    kinds, n = [""] * len(step.ids), len(step.ids)
    if hit := retrieved(step):
        length, at, taken = hit
        for first, last, kind in (
            (at, at + taken, "followed"), (at - length, at, "before"), (n - length, n, "key"),
        ):  # fmt: skip
            kinds[first:last] = [kind] * (last - first)
    emitted = ["accepted" if kind == "accepted" else "own" for kind in step.round.kinds]
    later = step.ahead[len(emitted) :][:AHEAD]
    kinds += emitted + ["ahead"] * len(later)
    ids = [*step.ids, *step.round.emitted, *later]
    spans = []
    for kind, run in itertools.groupby(zip(kinds, ids, strict=True), key=lambda pair: pair[0]):
        spans.append(f'<span style="{STYLES[kind]}">{html.escape("".join(word(token) for _, token in run))}</span>')
    legend = " &nbsp; ".join(f'<span style="{STYLES[kind]}">{name}</span>' for kind, name in LEGEND.items())
    return (
        f'<div style="line-height:1.9;max-width:62em"><div style="white-space:pre-wrap">{"".join(spans)}</div>'
        f'<div style="font-size:85%">{legend}</div>{_asked_html(step, word)}</div>'
    )


def _asked_html(step: Step, word: Callable[[int], str]) -> str:
    """The keys that the index was asked for: first those that end the text, then those of the best guesses."""
    rows = []
    for key, at in step.asked:
        guess = key != step.ids[-len(key) :]
        what = f"last {len(key)}" if not guess else f"guess #{step.ranks[key[-1]]}"
        after = "never" if at is None else f"place {at}:" + "".join(map(word, step.ids[at : at + 4])) + " ..."
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in (what, "".join(map(word, key)), after))
        rows.append(f"<tr>{cells}</tr>")
    head = "<tr><th></th><th>asked for</th><th>stood before, and what followed</th></tr>"
    return f'<table style="font-size:90%;margin-top:.4em">{head}{"".join(rows)}</table>'


# ---- the tree --------------------------------------------------------------------------------------------------


def layout(parents: Sequence[int], columns: int = COLUMNS) -> dict[int, tuple[int, int]]:
    """{node: (column, row)} of every node below the root: a branch runs to the right, its forks below each other.

    What hangs on the root is laid side by side, as words in a line, in the order of its nodes. A node beyond the last
    column has no place.
    """
    children: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents[1:], start=1):
        children[parent].append(node)
    places: dict[int, tuple[int, int]] = {}
    x = line = lowest = 0  # where the next branch begins; the row below all that is placed
    for head in children[0]:
        found = _branch(head, children)
        width = 1 + max(column for column, _ in found.values())
        if x and x + width > columns:
            x, line = 0, lowest
        places |= {node: (x + column, line + row) for node, (column, row) in found.items() if x + column < columns}
        x, lowest = x + width, max(lowest, line + 1 + max(row for _, row in found.values()))
    return places


def _branch(head: int, children: Sequence[Sequence[int]]) -> dict[int, tuple[int, int]]:
    """One subtree, its head at (0, 0)."""
    places, rows, waiting = {}, 0, [(head, 0, True)]
    while waiting:
        node, column, first = waiting.pop()
        rows += not first
        places[node] = (column, rows)
        below = [(child, column + 1, i == 0) for i, child in enumerate(children[node])]
        waiting += reversed(below)
    return places


def draw_step(step: Step, word: Callable[[int], str]) -> Figure:
    """The tree of a round: a box a node in the colour of its fate. Above a guess stands its rank in the last row."""
    tokens, parents, outcomes = step.round.tokens, step.round.parents, step.outcomes
    places = layout(parents)
    rows = 2 + max((row for _, row in places.values()), default=-1)
    fig, ax = plt.subplots(figsize=(11, 0.5 + 0.42 * rows), layout="constrained")
    ax.set(xlim=(0, COLUMNS), ylim=(rows, 0))
    ax.axis("off")
    _box(ax, 0, 0, word(tokens[0]), COLOURS["target"], "white")
    ax.text(1.1, 0.68, NOTE if places else "the root; nothing is proposed", va="center", fontsize=9.5, color="#555555")
    for node, (column, row) in places.items():
        accepted = outcomes[node] == "accepted"
        if parents[node]:
            x, y = places[parents[node]]
            ax.plot([x + 0.9, column + 0.1], [y + 1.68, row + 1.68], color=PALE, linewidth=1.2, zorder=1)
        elif node in step.guesses:
            ax.text(column + 0.5, row + 1.4, f"#{step.guesses[node]}", ha="center", fontsize=8, color="#777777")
        edge = COLOURS.get(outcomes[node], PALE)
        _box(ax, column, row + 1, word(tokens[node]), edge, COLOURS["accepted"] + "55" if accepted else "white")
    hidden = len(tokens) - 1 - len(places)
    more = f"; {hidden} deeper ones not drawn" if hidden else ""
    ax.set_title(f"{len(tokens)} nodes with the root, {len(step.round.path)} accepted{more}")
    return fig


def _box(ax, column: int, row: int, text: str, edge: str, face: str) -> None:
    """A token in its box; one that goes on with the word before it has dots in front."""
    text = text.strip() if text.startswith(" ") or not text[:1].isalnum() else f"\u2026{text}"
    box = {"boxstyle": "round,pad=0.25", "facecolor": face, "edgecolor": edge, "linewidth": 1.4}
    ax.text(column + 0.5, row + 0.68, text[:10], ha="center", va="center", fontsize=9, bbox=box, zorder=2)
