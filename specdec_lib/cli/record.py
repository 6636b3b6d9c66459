"""`specdec record`.

Our own.
Left out: recording and replaying (experiments/recording.py).
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from specdec_lib.cli.base import SeedOption, command, load, say, writable


@command("""
specdec record smollm2 --tasks data/prompts/spec-small.jsonl --n 60 --out rows.safetensors
""")
def record(
    pair: Annotated[str, typer.Argument(help="The pair whose target writes the texts.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the recording goes (.safetensors).")],
    n: Annotated[int, typer.Option("--n", help="How many prompts.", min=2)] = 24,
    seed: SeedOption = 0,
    tasks: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Prompts; data/prompts/chat.jsonl unless given.")
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="The longest text.", min=1)] = 96,
) -> None:
    """Record greedy texts in float32 with the 64 best tokens of every row, for experiments that replay them.

    Ctrl-C leaves no file.
    """
    writable(out)
    from specdec_lib.experiments import recording
    from specdec_lib.tasks import choose_tasks

    chosen = [task for task in choose_tasks(pair, n, seed, tasks) if not task.before]  # first turns alone
    models = load(pair)
    texts = recording.record(models, chosen, max_new_tokens, progress=sys.stderr.isatty())
    arguments = {"pair": pair, "n": n, "tasks": tasks and str(tasks), "max_new_tokens": max_new_tokens}
    recording.save(out, texts, models.provenance(arguments, seed) | {"dtype": "float32"})
    say(f"{out}: {len(texts)} texts, {sum(len(text.text) for text in texts)} tokens")
