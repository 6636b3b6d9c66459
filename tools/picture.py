"""Draw README's picture: one answer of the pocket pair, each token coloured by how it came. Writes docs/example.png.

Our own. `python tools/picture.py`; the same trace can be looked at with `specdec generate --trace` and `specdec show`.
Left out: notebooks' own colouring (specdec_lib/render.py).
"""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from specdec_lib.decode import decode
from specdec_lib.drafters import ModelDrafter
from specdec_lib.plots import COLOURS
from specdec_lib.pocket.world import problems
from specdec_lib.render import pieces
from specdec_lib.trace import mat
from specdec_lib.zoo import load_pair

GAMMA, LINE, PITCH, LEADING = 8, 105, 0.0093, 0.14  # draft length; characters a line; a character, a line in axes units
MEANING = {
    "accepted": "drafted, and kept by the target",
    "recovered": "the target's own, in place of a rejected draft",
    "bonus": "the target's own, after everything was kept",
}


def box(kind: str, pad: float) -> dict:
    """The background of a token: pale for what was drafted, strong for what the target wrote itself."""
    return {"facecolor": COLOURS[kind], "alpha": 0.15 if kind == "accepted" else 0.6, "edgecolor": "none", "pad": pad}


def main() -> None:
    pair = load_pair("pocket")
    problem = problems("test", 1, seed=4)[0]
    trace = decode(pair.target, pair.prompt(problem.question), 260, ModelDrafter(pair.draft, GAMMA), stops=pair.stops)
    fig, ax = plt.subplots(figsize=(11, 3), layout="constrained")
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.axis("off")
    ax.text(0, 0.97, problem.question, family="DejaVu Sans Mono", fontsize=9.5, color="#444444", va="top")
    x, y = 0, 0.78
    for piece in pieces(trace, pair.tokenizer):
        if x + len(piece.text) > LINE:
            x, y = 0, y - LEADING
        text = piece.text if x else piece.text.lstrip()
        ax.text(x * PITCH, y, text, family="DejaVu Sans Mono", fontsize=12, va="top", bbox=box(piece.kind, 1.2))
        x += len(text)
    for row, (kind, meaning) in enumerate(MEANING.items()):
        ax.text(0.02 + 0.33 * row, 0.03, f"{kind}: {meaning}", fontsize=8.5, bbox=box(kind, 2))
    rounds = len(trace.rounds)
    title = f"{len(trace.ids)} tokens in {rounds} target passes: {mat([trace]):.1f} a pass, the text of plain decoding"
    ax.set_title(title, loc="left", fontsize=12, fontweight="bold")
    path = Path(__file__).resolve().parent.parent / "docs" / "example.png"
    fig.savefig(path, dpi=110)
    print(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path.name)


if __name__ == "__main__":
    main()
