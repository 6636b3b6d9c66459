"""`specdec autojudge mine` and `specdec autojudge train`.

Our own.
Left out: how labels are found (autojudge/mine.py) and what is learnt from them (autojudge/train.py).
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from specdec_lib.cli.base import JsonOption, PairOption, SeedOption, app, command, load, say, say_how, writable

autojudge = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
app.add_typer(autojudge, name="autojudge", help="AutoJudge's labels, mined without a right answer, and its head.")


@command(
    """
specdec autojudge mine labels.jsonl --n 64
specdec autojudge mine own.jsonl --pair smollm2 --tasks questions.jsonl --n 100
""",
    autojudge,
)
def mine(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the labels go, a line a question.")],
    pair: PairOption = "pocket",
    n: Annotated[int, typer.Option("--n", help="How many questions.", min=1)] = 256,
    seed: SeedOption = 0,
    tasks: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Questions whose answers end with a number; a pocket pair has its own."),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="The longest answer.", min=1)] = 260,
) -> None:
    """Put mismatched draft tokens into the target's answers one at a time, and note which change the final number.

    The same command goes on where it was stopped.
    """
    writable(file)
    models = load(pair)
    say_how(models)
    from specdec_lib.autojudge.mine import mine_to

    mined = mine_to(file, models, n, seed, max_new_tokens, tasks, progress=sys.stderr.isatty())
    labels = [important for one in mined for *_, important in one.swaps]
    print(f"{len(labels)} swaps in {len(mined)} answers, {sum(labels)} of them change the final number")


@command(
    """
specdec autojudge train labels.jsonl
specdec autojudge train labels.jsonl --out head.safetensors --json auc.json
""",
    autojudge,
)
def train(
    labels: Annotated[Path, typer.Argument(metavar="FILE", help="What specdec autojudge mine wrote.")],
    pair: PairOption = "pocket",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the head goes. Default: the cache, where it is found.")
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """Train the head, and print the AUC on held-out questions for what it reads and for other choices."""
    writable(out, json_file)
    from specdec_lib.autojudge.labels import read_labels

    header, mined = read_labels(labels)
    models = load(pair)
    say_how(models)
    if header.get("checksums") != models.checksums:
        raise ValueError(f"{labels} was mined with other models than those of {pair}; mine with this pair")
    from specdec_lib.autojudge.train import ABLATIONS, held_out_auc, swaps_of
    from specdec_lib.autojudge.train import train as fit_head
    from specdec_lib.judge.head import heads_folder
    from specdec_lib.provenance import write_results

    swaps = swaps_of(models, mined, progress=sys.stderr.isatty())
    rows = [held_out_auc(swaps, names) for names in ABLATIONS]
    made = {"labels": labels.name, "questions": len(mined), **rows[0]}
    if out is None:
        heads_folder().mkdir(parents=True, exist_ok=True)
        out = (
            heads_folder() / f"autojudge-{models.checksums['target'][:12]}-{models.checksums['draft'][:12]}.safetensors"
        )
    fit_head(models, swaps, made).save(out)
    print(f"{made['swaps']} swaps, {made['important']} important; AUC on {made['held_out']} of held-out questions:")
    for row in rows:
        if row["auc"] is None:
            print(f"  {row['states']:30s} n/a, too few questions")
        else:
            low, high = row["auc_interval"]
            print(f"  {row['states']:30s} {row['auc']:.3f}  ({low:.3f} to {high:.3f})")
    say(f"wrote {out}")
    if json_file is not None:
        write_results(json_file, models.provenance({"pair": pair, "labels": labels.name}), rows)
