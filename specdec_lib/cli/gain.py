"""`specdec gain`.

Our own.
Left out: how the two rules are compared (gain.py).
"""

from typing import Annotated

import typer

from specdec_lib.cli.base import JsonOption, PairOption, SeedOption, command, load, writable


@command("""
specdec gain --n 20
specdec gain --pair pocket --n 200 --gamma 4 --json gain.json
""")
def gain(
    pair: PairOption = "pocket",
    n: Annotated[int, typer.Option("--n", help="How many prompts.", min=2)] = 50,
    seed: SeedOption = 0,
    gamma: Annotated[int, typer.Option(help="Draft length.", min=1)] = 8,
    temperature: Annotated[float, typer.Option(help="Above 0: at 0 the two rules are one.")] = 1.0,
    max_new_tokens: Annotated[int, typer.Option(help="The longest answer.", min=1)] = 260,
    json_file: JsonOption = None,
) -> None:
    """Count what block verification keeps of the drafts beside token by token, on the same proposals. No times."""
    writable(json_file)

    from specdec_lib.gain import block_gain
    from specdec_lib.provenance import provenance, write_results
    from specdec_lib.tasks import choose_tasks

    tasks = choose_tasks(pair, n, seed)
    models = load(pair)
    prompts = [models.prompt(task.prompt) for task in tasks]
    found = block_gain(models, prompts, gamma, max_new_tokens, temperature, seed)
    rows = [{"method": rule, "kept": found.pop(f"kept_{rule}")} for rule in ("lossless", "block")]
    for row in rows:
        print(f"{row['method']:9s} {row['kept']:.3f} kept of {gamma} drafts a round")
    low, high = found["gain_interval"]
    print(
        f"a block keeps {100 * found['gain']:+.1f} % (95 % interval {100 * low:+.1f} to {100 * high:+.1f} %) "
        f"over {found['rounds']} rounds of {n} answers at temperature {temperature:g}"
    )
    if json_file is not None:
        arguments = {"pair": pair, "n": n, "gamma": gamma, "temperature": temperature, "max_new_tokens": max_new_tokens}
        origin = provenance(arguments, seed, models.target.device, models.target.model.dtype)
        write_results(json_file, origin, rows, **found)
