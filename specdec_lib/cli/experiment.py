"""`specdec experiment`.

Our own.
Left out: the experiments (specdec_lib/experiments/, one file each).
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from specdec_lib.cli.base import JsonOption, SeedOption, command, load, say, say_how, writable

PICTURES = (".png", ".svg", ".pdf")


@command("""
specdec experiment
specdec experiment tradeoff --n 200 --json tradeoff.json --figure tradeoff.png
specdec experiment paired --n 2000 --seed 1 --json paired.json
""")
def experiment(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Which one; without it they are listed.")] = None,
    pair: Annotated[str, typer.Option("--pair", help="A pocket pair, where answers must be checkable.")] = "pocket",
    n: Annotated[int | None, typer.Option("--n", help="How many test problems. Default: the experiment's own.")] = None,
    seed: SeedOption = 0,
    json_file: JsonOption = None,
    picture: Annotated[
        Path | None,
        typer.Option("--figure", metavar="FILE", help="Draw the result (.png, .svg, .pdf; errors: .html, too)."),
    ] = None,
) -> None:
    """Run one of the course's experiments on test problems, and print its table.

    With --json every row is written as soon as it is whole, and the same command goes on where it was stopped.
    """
    writable(json_file, picture)
    from specdec_lib.experiments import experiments, find

    if name is None:
        width = max(map(len, experiments()))
        for known, module in experiments().items():
            print(f"{known:{width}}  {module.WHAT} (n {module.PROBLEMS})")
        return
    chosen = find(name)
    if not pair.startswith("pocket") and not getattr(chosen, "ANY_PAIR", False):
        raise ValueError(f"experiments check answers, so they need a pocket pair; got {pair}")
    if picture is not None and picture.suffix not in PICTURES + (".html",) * hasattr(chosen, "page"):
        raise ValueError(f"cannot draw {name} as {picture}; its name must end in one of {', '.join(PICTURES)}")
    n = chosen.PROBLEMS if n is None else n
    from specdec_lib.experiments.base import Lab, Rows

    models = load(pair)
    say_how(models)
    origin = models.provenance({"experiment": name, "pair": pair, "n": n}, seed)
    lab = Lab(models, n, seed, Rows(json_file, origin), progress=sys.stderr.isatty())
    try:
        result = chosen.run(lab)
    except KeyboardInterrupt:
        if json_file is not None and json_file.exists():
            say(f"{len(lab.rows.rows)} rows are kept in {json_file}; the same command goes on from there")
        raise
    print(chosen.text(result))
    if json_file is not None:
        beside = {key: value for key, value in result.items() if key != "rows"}
        lab.rows.write(result["rows"], complete=True, **beside)
    if picture is not None:
        _draw(chosen, result, picture)


def _draw(chosen, result: dict, file: Path) -> None:
    """A picture, or for an .html file the experiment's page."""
    from specdec_lib.plots import use_style

    if file.suffix == ".html":
        file.write_text(chosen.page(result), encoding="utf-8")
    else:
        use_style()
        chosen.figure(result).savefig(file)
