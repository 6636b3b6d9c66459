"""`specdec selfdraft`.

Our own.
Left out: what is measured (selfdraft.py).
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from specdec_lib.cli.base import JsonOption, PairOption, SeedOption, command, writable


@command("""
specdec selfdraft --pair smollm2 --n 12 --json selfdraft.json
""")
def selfdraft(
    pair: PairOption = "smollm2",
    n: Annotated[int, typer.Option("--n", help="How many prompts.", min=1)] = 12,
    seed: SeedOption = 0,
    max_new_tokens: Annotated[int, typer.Option(help="The longest answer.", min=1)] = 64,
    tasks: Annotated[
        Path | None, typer.Option(metavar="FILE", help='Prompts, {"prompt": ...} a line; data/prompts/chat.jsonl else.')
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """Measure a model as its own draft: in nf4, in int8, and its first layers. Nothing else should run meanwhile."""
    writable(json_file)
    from specdec_lib.provenance import write_results
    from specdec_lib.selfdraft import selfdraft as measure
    from specdec_lib.selfdraft import table
    from specdec_lib.tasks import choose_tasks

    chosen = choose_tasks(pair, n, seed, tasks)
    found = measure(pair, chosen, seed, max_new_tokens, progress=sys.stderr.isatty())
    print(table(found))
    if json_file is not None:
        write_results(json_file, found.pop("provenance"), found.pop("rows"), **found)
