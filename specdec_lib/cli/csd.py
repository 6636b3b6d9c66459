"""`specdec csd calibrate`, `inspect`, `merge`, `freeze`: correction memories.

Our own.
Left out: what is computed (csd/).
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from specdec_lib.cli.base import (
    DraftOption,
    JsonOption,
    PairOption,
    SeedOption,
    TargetOption,
    app,
    command,
    load,
    say,
    say_how,
    writable,
)

group = typer.Typer(help="Correction memories for csd: make, look at, merge, freeze.", no_args_is_help=True)
app.add_typer(group, name="csd")

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A correction memory.")]


@command(
    """
specdec csd calibrate --n 100
specdec csd calibrate --n 1000 --out memory.json
specdec csd calibrate --pair smollm2 --prompts prompts.txt --n 200 --contexts 3
""",
    group,
)
def calibrate(
    pair: PairOption = "pocket",
    target: TargetOption = None,
    draft: DraftOption = None,
    n: Annotated[int, typer.Option("--n", help="How many prompts.", min=1)] = 100,
    prompts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Prompts, one a line, or .jsonl; a pocket pair has its own.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The memory. Default: the pair's own, in the cache.")
    ] = None,
    gamma: Annotated[int, typer.Option(help="Draft length.", min=1)] = 8,
    max_new_tokens: Annotated[int, typer.Option(help="The longest text.", min=1)] = 260,
    contexts: Annotated[int, typer.Option(help="Keep so many contexts of each pair: they are people's text.")] = 0,
    seed: SeedOption = 0,
) -> None:
    """Fill a correction memory by plain greedy speculation over prompts. No labels are needed.

    The memory is saved every 50 texts. The same command goes on where it was stopped; with a larger --n, it goes on
    from the shorter run.
    """
    writable(out)
    from specdec_lib.csd.calibrate import calibrate as fill
    from specdec_lib.csd.calibrate import stream
    from specdec_lib.csd.file import brief, memories_folder, owner_of

    models = load(pair, target, draft)
    say_how(models)
    if out is None:
        memories_folder().mkdir(parents=True, exist_ok=True)
        owner = owner_of(models)
        own = "-".join(brief(part).replace(" ", "-").replace(":", "-") for part in (owner.target, owner.draft))
        out = memories_folder() / f"{own if target else pair.replace('/', '-')}.json"
    source = stream(models, n, seed, prompts)
    try:
        memory = fill(models, source, out, max_new_tokens, gamma, contexts, progress=sys.stderr.isatty())
    except KeyboardInterrupt:
        if out.exists():
            say(f"what was learnt is kept in {out}; the same command goes on from there")
        raise
    print(f"{out}: {memory.texts} texts, {len(memory.pairs)} pairs")


@command(
    """
specdec csd inspect data/pocket/csd-memory-100.json --top 20
specdec csd inspect memory.json --pair smollm2 --json pairs.json
""",
    group,
)
def inspect(
    file: FileArgument,
    pair: Annotated[str, typer.Option("--pair", help="Whose memory it is: its tokenizer reads the pairs.")] = "pocket",
    target: TargetOption = None,
    draft: DraftOption = None,
    top: Annotated[int, typer.Option(help="How many pairs, the most frequent first.", min=1)] = 20,
    json_file: JsonOption = None,
) -> None:
    """Show the most frequent pairs as text: what the draft said, and what the target wanted."""
    writable(json_file)
    from specdec_lib.csd.file import check_fits
    from specdec_lib.csd.file import load as read
    from specdec_lib.provenance import write_results

    memory, models = read(file), load(pair, target, draft)
    check_fits(memory, models, str(file))
    decode = models.tokenizer.decode
    rows = [
        {
            "draft": decode([x]), "target": decode([best]), "ids": [x, best], "rescued": rescued, "rejected": rejected,
            "rate": rate, "contexts": [decode(ids) for ids in memory.contexts.get((x, best), [])],
        }
        for x, best, rescued, rejected, rate in memory.most_frequent(top)
    ]  # fmt: skip
    state = "frozen" if memory.frozen else "learning"
    print(f"{memory.texts} texts, {len(memory.pairs)} pairs, {state}")
    print(f"{'draft said':>16s}  {'target wanted':16s} {'count':>7s} {'rescued':>8s} {'rate':>6s}")
    for row in rows:
        count = row["rescued"] + row["rejected"]
        print(f"{row['draft']!r:>16s}  {row['target']!r:16s} {count:7d} {row['rescued']:8d} {row['rate']:6.3f}")
        for context in row["contexts"]:
            print(f"{'':18s}... {context}")
    if json_file is not None:
        write_results(json_file, models.provenance({"file": str(file), "top": top}), rows, texts=memory.texts)


@command(
    """
specdec csd merge all.json monday.json tuesday.json
""",
    group,
)
def merge(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="What to add to; it is made if it is not there.")],
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Memories of one pair.")],
) -> None:
    """Add memories to a file. Several processes may add to the same one."""
    writable(out)
    from specdec_lib.csd.file import load as read
    from specdec_lib.csd.file import merge_into

    memories = [read(file) for file in files]
    if any(memory.owner != memories[0].owner for memory in memories):
        raise ValueError("these memories are of different models or tokenizers: merge those of one pair")
    for memory in memories:
        total = merge_into(out, memory)
    print(f"{out}: {total.texts} texts, {len(total.pairs)} pairs")


@command(
    """
specdec csd freeze memory.json
""",
    group,
)
def freeze(file: FileArgument) -> None:
    """Mark a memory as read only: nothing is added to it any more."""
    from specdec_lib.csd.file import load as read
    from specdec_lib.csd.file import lock_of, save

    with lock_of(file):
        memory = read(file).freeze()
        save(memory, file)
    print(f"{file}: frozen, {len(memory.pairs)} pairs")
