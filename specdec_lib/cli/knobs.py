"""`specdec knobs`.

Our own.
Left out: what is measured and how a knob is picked (knobs.py), and the file of settings (tuned.py).
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from specdec_lib.cli.base import JsonOption, SeedOption, command, load, say, say_how, writable


@command("""
specdec knobs --pair pocket --n 300 --seed 1 --json data/experiments/knobs-pocket.json
specdec knobs --n 20 --methods topk,lenience --settings trial.toml
""")
def knobs(
    pair: Annotated[str, typer.Option("--pair", help="A pocket pair: answers must be checkable.")] = "pocket",
    n: Annotated[int, typer.Option("--n", help="How many validation problems.", min=2)] = 300,
    seed: SeedOption = 0,
    methods: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Which methods, beside the judge. Default: all lossy ones.")
    ] = None,
    json_file: JsonOption = None,
    settings_file: Annotated[
        Path | None,
        typer.Option("--settings", metavar="FILE", help="Where to write the picks. Default: data/pocket/knobs.toml."),
    ] = None,
) -> None:
    """Pick the knobs of the lossy methods on validation problems, and write them as the pair's own settings.

    The judge's and CSD's: the one that keeps most while accuracy falls by at most three quarters of a point. Every
    other method's: the one whose kept comes nearest to the judge's. With --json every row is written as soon as it is
    whole, and the same command goes on where it was stopped.
    """
    writable(json_file, settings_file)
    if not pair.startswith("pocket"):
        raise ValueError(f"knobs are picked by checking answers, which takes a pocket pair; got {pair}")
    from specdec_lib import knobs as picking
    from specdec_lib.experiments.base import Lab, Rows
    from specdec_lib.presets import data_folder
    from specdec_lib.tuned import FILE, read_settings, write_settings

    settings_file = settings_file or data_folder() / FILE
    everything = read_settings(settings_file)
    models = load(pair)
    say_how(models)
    asked = None if methods is None else [name.strip() for name in methods.split(",") if name.strip()]
    origin = models.provenance({"pair": pair, "n": n, "split": "validation"}, seed)
    lab = Lab(models, n, seed, Rows(json_file, origin), progress=sys.stderr.isatty())
    try:
        rows, left_out = picking.measure(lab, asked)
    except KeyboardInterrupt:
        if json_file is not None and json_file.exists():
            say(f"{len(lab.rows.rows)} rows are kept in {json_file}; the same command goes on from there")
        raise
    chosen = picking.pick(rows)
    print(picking.text(rows, left_out, chosen))
    everything[pair] = everything.get(pair, {}) | picking.settings(chosen, n, seed)
    write_settings(settings_file, everything)
    say(f"wrote {settings_file}")
    if json_file is not None:
        lab.rows.write([row for found in rows.values() for row in found], complete=True, left_out=left_out)
