"""`specdec datastore build` and `specdec datastore show`: the texts that `rest` drafts from.

Our own.
Left out: the file (datastore.py) and where texts come from (corpus.py).
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from specdec_lib.cli.base import PairOption, SeedOption, app, command, from_files, writable

datastore = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
app.add_typer(datastore, name="datastore", help="Datastores for rest: build one from texts, look at one.")


@command(
    """
specdec datastore build --pair smollm2 book.txt answers.jsonl
specdec datastore build --pair pocket --problems 1000 --out my.store
""",
    datastore,
)
def build(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILES", help="Texts: a .jsonl has one a line, any other file is one text."),
    ] = None,
    pair: PairOption = "pocket",
    field: Annotated[str, typer.Option(help="Where a line of a .jsonl has its text.")] = "text",
    problems: Annotated[
        int | None, typer.Option(metavar="N", help="Instead of files: N pocket problems, with answers.", min=1)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Default: the pair's own, which rest reads.")
    ] = None,
    seed: SeedOption = 0,
) -> None:
    """Turn texts into token ids, sort their suffixes, and write both to one file.

    Takes about 16 bytes of memory a token beside the texts. Stopped before its end, it leaves no file, or the old one.
    """
    writable(out)
    if bool(files) == (problems is not None):
        raise ValueError("give texts: either FILES or --problems N")
    from tqdm import tqdm

    from specdec_lib.corpus import file_ids, pocket_ids
    from specdec_lib.datastore import ROUNDS, Datastore, fingerprint, store_file, write
    from specdec_lib.zoo import load_tokenizer, pair_sources

    for file in files or []:
        file.stat()  # one that is not there is named before anything is read
    if problems is not None and not pair.startswith("pocket"):
        raise ValueError(f"--problems has words of the pocket world, which {pair} does not know; give FILES")
    tokenizer = from_files(pair, lambda: load_tokenizer(pair_sources(pair)[0]))
    out = out or store_file(pair)
    out.parent.mkdir(parents=True, exist_ok=True)
    quiet = not sys.stderr.isatty()
    total = problems or sum(file.stat().st_size for file in files)
    source = pocket_ids(problems, tokenizer, seed) if problems else file_ids(files, tokenizer, field)
    texts = []
    with tqdm(total=total, desc="texts", unit="" if problems else "B", unit_scale=True, disable=quiet) as bar:
        for ids, read in source:
            texts.append(ids)
            bar.update(read)
    about = {"pair": pair, "files": [file.name for file in files or []], "problems": problems, "seed": seed}
    with tqdm(total=ROUNDS, desc="sorting", disable=quiet) as bar:
        write(out, texts, fingerprint(tokenizer), bar.update, **about)
    print(described(Datastore(out)))


@command(
    """
specdec datastore show
specdec datastore show my.store
""",
    datastore,
)
def show(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="Default: the pair's own.")] = None,
    pair: PairOption = "pocket",
) -> None:
    """Check a datastore, and say what is in it."""
    from specdec_lib.datastore import Datastore, store_file

    print(described(Datastore(file or store_file(pair))))


def described(store) -> str:
    header = store.header
    sources = ", ".join(header["about"].get("files") or []) or f"{header['about'].get('problems')} problems"
    return (
        f"{store.file}: {header['tokens']} tokens of {header['texts']} texts ({sources}), "
        f"{store.file.stat().st_size / 1e6:.1f} MB, sha256 {header['sha256'][:12]}"
    )
