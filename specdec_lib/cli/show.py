"""`specdec show`: a trace, round by round, as text or as one HTML page.

Our own.
Left out: how it is drawn (render.py).
"""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from specdec_lib.cli.base import command, from_files, say, writable
from specdec_lib.text_file import read_text


@command("""
specdec show traces.jsonl
specdec show traces.jsonl --index 2 --html trace.html
""")
def show(
    trace: Annotated[Path, typer.Argument(help="A file that `specdec generate --trace` wrote.")],
    index: Annotated[int, typer.Option(help="Which trace of the file; 0 is the first.", min=0)] = 0,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it as one HTML page instead.")] = None,
    pair: Annotated[str | None, typer.Option(help="Whose tokenizer to use, if the trace does not say.")] = None,
) -> None:
    """Show one trace round by round: what was proposed, p and q, how each token fared, what was emitted."""
    writable(html)
    read_text(trace)

    from specdec_lib import render
    from specdec_lib.trace import Trace
    from specdec_lib.zoo import load_tokenizer, pair_sources, parse_model

    traces = Trace.load_all(trace)
    if index >= len(traces):
        raise ValueError(f"{trace} has no trace {index}: it holds {len(traces)}, counted from 0")
    chosen = traces[index]
    arguments = chosen.provenance.get("arguments", {})
    name = pair or arguments.get("pair") or "pocket"
    if pair is None and arguments.get("target"):
        tokenizer = load_tokenizer(parse_model(arguments["target"]).source())
    else:
        tokenizer = from_files(name, lambda: load_tokenizer(pair_sources(name)[0]))
    largest = max([*chosen.prompt, *chosen.ids, *(token for r in chosen.rounds for token in r.tokens)])
    if largest >= len(tokenizer):
        raise ValueError(f"{trace} holds token {largest}, which pair {name} does not have; name its pair with --pair")
    if html is not None:
        html.write_text(render.page(chosen, tokenizer), encoding="utf-8")
        say(f"wrote {html}")
        return
    out = Console(highlight=False, no_color=None)
    out.print(render.lossless_line(chosen), markup=False, soft_wrap=True)
    out.print(f"prompt: {tokenizer.decode(chosen.prompt)}", markup=False, soft_wrap=True)
    out.print(render.coloured(render.pieces(chosen, tokenizer)), soft_wrap=True)
    out.print(render.legend())
    out.print(render.summary(chosen), markup=False, soft_wrap=True)
    for i in range(len(chosen.rounds)):
        out.print()
        out.print(render.round_text(render.round_view(chosen, i, tokenizer)), end="", soft_wrap=True)
