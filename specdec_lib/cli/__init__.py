"""The command line: generate, show, eval, bench, gain, experiment, scored, datastore, methods, doctor, fetch, presets.

Our own; `python -m specdec_lib` is the same. A command is a function in a file here; importing the file registers it.
Left out: what the commands compute.
"""

from specdec_lib.cli import (  # noqa: F401
    autojudge,
    bench,
    csd,
    datastore,
    doctor,
    eval,
    exactness,
    experiment,
    gain,
    generate,
    judge,
    knobs,
    models,
    record,
    scored,
    selfdraft,
    show,
)
from specdec_lib.cli.base import app


def main() -> None:
    app()
