"""`specdec eval` and `specdec methods`.

Our own.
Left out: what is measured (evaluate.py) and what the methods are (methods.py).
"""

import sys
from typing import Annotated

import typer

from specdec_lib.cli.base import JsonOption, PairOption, SeedOption, command, load, writable


@command("""
specdec eval --n 100 --seed 1
specdec eval --pair pocket --n 500 --json results.json
""")
def eval(
    pair: PairOption = "pocket",
    n: Annotated[int, typer.Option("--n", help="How many held-out problems.", min=1)] = 100,
    seed: SeedOption = 0,
    json_file: JsonOption = None,
) -> None:
    """Measure a pair on held-out problems: accuracy, speed, c, alpha, kept, and what greedy lenience can do."""
    writable(json_file)
    models = load(pair)

    from specdec_lib.evaluate import evaluate, table
    from specdec_lib.provenance import write_results

    result = evaluate(models, n, seed, progress=sys.stderr.isatty())
    print(table(result))
    if json_file is not None:
        write_results(json_file, result.pop("provenance"), result.pop("rows"), **result)


@command("""
specdec methods
specdec generate --method lenience:lenience=0.3,gamma=4 "..."
""")
def methods() -> None:
    """List the methods, with their knobs and the values these have unless given."""
    from specdec_lib.methods import METHODS

    width = max(map(len, METHODS))
    for name, (what, knobs, _) in METHODS.items():
        print(f"{name:{width}}  {what}")
        if knobs:
            print(f"{'':{width}}  {name}:" + ",".join(f"{knob}={value:g}" for knob, value in knobs.items()))
