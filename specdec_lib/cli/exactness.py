"""`specdec exactness`.

Our own.
Left out: what is measured (exactness.py).
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from specdec_lib.cli.base import JsonOption, PairOption, SeedOption, command, load, say_how, writable


@command("""
specdec exactness --methods csd,csd-gate,lenience --n 50
specdec exactness --methods csd:tau=0.1 --temperature 1 --json exactness.json
""")
def exactness(
    methods: Annotated[str, typer.Option(help="Methods with their knobs, separated by commas or spaces.")] = "csd",
    pair: PairOption = "pocket",
    n: Annotated[int, typer.Option("--n", help="How many prompts.", min=1)] = 50,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    tasks: Annotated[Path | None, typer.Option(metavar="FILE", help="Prompts in a .jsonl file.")] = None,
    max_new_tokens: Annotated[int, typer.Option(help="The longest text.", min=1)] = 260,
    seed: SeedOption = 0,
    json_file: JsonOption = None,
) -> None:
    """Measure what a lossy method gives away: how far its text is from the target's own law.

    At temperature 0: the share of tokens that differ from the target's argmax, and the probability given up there.
    Above: the total variation added at a position, and its sum over a text. Beside it: kept and tokens a second.
    """
    writable(json_file)
    from specdec_lib.bench import split_methods
    from specdec_lib.exactness import measure, table
    from specdec_lib.provenance import write_results
    from specdec_lib.tasks import choose_tasks

    models = load(pair)
    say_how(models)
    prompts = [models.prompt(task.prompt) for task in choose_tasks(pair, n, seed, tasks)]
    rows = measure(
        models, split_methods(methods), prompts, max_new_tokens, temperature, seed, progress=sys.stderr.isatty()
    )
    print(table(rows))
    if json_file is not None:
        arguments = {"pair": pair, "n": n, "temperature": temperature, "max_new_tokens": max_new_tokens}
        write_results(json_file, models.provenance(arguments, seed), rows)
