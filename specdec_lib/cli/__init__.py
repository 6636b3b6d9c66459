"""The command line: generate, show, eval, methods, doctor, fetch, presets. `python -m specdec_lib` is the same.

Our own. A command is a function in a file here; importing the file registers it.
Left out: what the commands compute.
"""

from specdec_lib.cli import doctor, eval, generate, models, show  # noqa: F401
from specdec_lib.cli.base import app


def main() -> None:
    app()
