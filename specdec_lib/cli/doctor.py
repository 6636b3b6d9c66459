"""`specdec doctor`.

Our own.
Left out: what is looked at (doctor.py, machine.py).
"""

import typer

from specdec_lib.cli.base import FAILED, JsonOption, PairOption, command, writable


@command("""
specdec doctor
specdec doctor --json machine.json
""")
def doctor(pair: PairOption = "pocket", json_file: JsonOption = None) -> None:
    """Say whether everything that the course needs is here, and what a pass of the target costs on this machine."""
    writable(json_file)
    from specdec_lib.doctor import examine
    from specdec_lib.provenance import provenance, write_results

    found = examine(pair)
    print(found.report())
    if json_file is not None:
        write_results(json_file, provenance({"pair": pair}), found.rows, **found.measured)
    if not found.ready:
        raise typer.Exit(FAILED)
