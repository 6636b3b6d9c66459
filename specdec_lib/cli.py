"""The command line: generate, show, eval, methods, doctor. `python -m specdec_lib` is the same.

Our own, on typer and rich. What computes is imported inside the commands, so that --help does not wait for torch.
Left out: what the commands compute and draw (decode.py, render.py, evaluate.py, machine.py).

Exit status: 0 done, 1 failed, 2 bad input, 130 stopped with Ctrl-C.
"""

import functools
import json
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    name="specdec",
    help="Speculative decoding, to look at and to measure.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

PairOption = Annotated[str, typer.Option("--pair", help="The target and its draft, by name.", show_default=True)]
SeedOption = Annotated[int, typer.Option("--seed", help="Drives every draw: same seed, same result.")]
JsonOption = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the results with their provenance as JSON.")
]


def main() -> None:
    app()


class Failure(Exception):
    """Something went wrong that is no fault of the input; the message says what to do."""


def say(text: str) -> None:
    """A line on stderr: results alone go to stdout."""
    print(text, file=sys.stderr, flush=True)


def command(examples: str) -> Callable:
    """Register a command. Errors that a user can meet become one line on stderr and an exit status, never a traceback.

    examples: shown below the help, a line each.
    """

    def register(function: Callable) -> Callable:
        @functools.wraps(function)
        def guarded(*args, **kwargs):
            try:
                return function(*args, **kwargs)
            except KeyboardInterrupt:
                say("specdec: stopped")
                raise typer.Exit(INTERRUPTED) from None
            except (ValueError, OSError, RuntimeError, Failure) as error:
                status = _status(error)
                if status is None:
                    raise
                say(f"specdec: {_one_line(error)}")
                raise typer.Exit(status) from None

        lines = "\n".join(f"- {line}" for line in examples.strip().splitlines())
        return app.command(epilog=f"**Examples**\n\n{lines}")(guarded)

    return register


def _status(error: Exception) -> int | None:
    """The exit status for an error; None for one that is a bug of ours, or a reader who closed the pipe."""
    from specdec_lib.cache import CacheError
    from specdec_lib.sampling import LogitsError

    if isinstance(error, BrokenPipeError):
        return None
    if isinstance(error, Failure | CacheError | LogitsError):
        return FAILED
    if isinstance(error, ValueError | FileNotFoundError | NotADirectoryError | IsADirectoryError | PermissionError):
        return BAD_INPUT
    return FAILED if isinstance(error, OSError) else None


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


def _writable(*files: Path | None) -> None:
    """Refuse an output file that cannot be written before anything is computed."""
    for file in files:
        if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
            raise ValueError(f"cannot write {file}: {'it is a folder' if file.is_dir() else 'its folder is not there'}")


def _load(pair: str):
    """The pair; a ValueError for an unknown name, a Failure for anything wrong with its files."""
    from specdec_lib.zoo import load_pair

    return _from_files(pair, lambda: load_pair(pair))


def _from_files(pair: str, load: Callable):
    """load(), with anything wrong with a known pair's files as a Failure."""
    from specdec_lib.zoo import PAIRS

    try:
        return load()
    except (ValueError, OSError) as error:
        if pair not in PAIRS:
            raise
        raise Failure(f"pair {pair} cannot be loaded: {_one_line(error)}") from error


# ---- generate --------------------------------------------------------------------------------------------------


@command("""
specdec generate "ana earns 10 dollars a day. ana works 4 days. how many dollars does ana have?"
specdec generate --method lossless:gamma=4 --temperature 1 --seed 7 "leo has 43 nuts. ..."
specdec generate --file prompts.txt --json results.json --trace traces.jsonl
echo "leo has 43 nuts. ..." | specdec generate -
""")
def generate(
    prompt: Annotated[str | None, typer.Argument(help="The prompt; - reads it from standard input.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Prompts, one a line; chats in a .jsonl file, see above."),
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Take prompts as they are: no chat template.")] = False,
    method: Annotated[str, typer.Option(help="A method with its knobs; `specdec methods` lists them.")] = "lossless",
    pair: PairOption = "pocket",
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_k: Annotated[int | None, typer.Option(help="Sample among the k likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample among the likeliest tokens that make up p.")] = None,
    min_p: Annotated[float | None, typer.Option(help="Drop tokens below this share of the likeliest one.")] = None,
    repetition_penalty: Annotated[float | None, typer.Option(help="Above 1: repeat less.")] = None,
    max_new_tokens: Annotated[int, typer.Option(help="The longest text.", min=0)] = 256,
    stop: Annotated[list[str] | None, typer.Option(help="End the text after this string; may be repeated.")] = None,
    seed: SeedOption = 0,
    json_file: JsonOption = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write every round as JSONL, for `specdec show`.")
    ] = None,
) -> None:
    """Continue prompts, and show which tokens were accepted, rescued, recovered or a bonus.

    The text streams to standard output, round by round, coloured in a terminal (NO_COLOR is respected); what is
    said about it goes to standard error. Ctrl-C stops at the last whole round and keeps what there is.

    In a .jsonl file (or a .json list) each entry is `{"prompt": "..."}` or a chat,
    `{"messages": [{"role": "user", "content": "..."}]}`, which goes through the tokenizer's chat template, as a plain
    prompt does unless --raw is given.

    Prompt number i of a file (from 0) is drawn with seed + i, so it does not depend on its neighbours.
    """
    if (prompt is None) == (file is None):
        raise ValueError("give either a PROMPT or --file FILE (see specdec generate --help)")
    _writable(json_file, trace)
    asked = _read_prompts(file) if file is not None else [sys.stdin.read().strip() if prompt == "-" else prompt]

    from specdec_lib.decode import Session, Stops, check_prompt
    from specdec_lib.methods import build_method, parse_method
    from specdec_lib.provenance import provenance, write_results
    from specdec_lib.sampling import SamplingSettings

    parse_method(method)
    settings = SamplingSettings(temperature, top_k, top_p, min_p, repetition_penalty)
    settings.processors()  # refuses bad values now, before models are loaded
    if temperature == 0 and (top_k, top_p, min_p) != (None, None, None):
        say("note: at temperature 0 the likeliest token is taken; --top-k, --top-p and --min-p change nothing")
    models = _load(pair)
    chosen = build_method(method, models)
    prompts = []
    for i, text in enumerate(asked):
        try:
            prompts.append(check_prompt(_prompt_ids(models, text, raw), models.target))
        except ValueError as error:
            raise ValueError(f"prompt {i}: {error}") from error
    _warn_of_unknown_words(models, asked)

    arguments = {
        "pair": pair, "method": chosen.label, **asdict(settings), "max_new_tokens": max_new_tokens,
        "stop": stop or [], "raw": raw, "file": None if file is None else str(file),
    }  # fmt: skip
    origin = provenance(arguments, seed, models.target.device, models.target.model.dtype)
    stops = Stops(models.stops.eos_token_ids, tuple(stop or ()), models.tokenizer)
    stream, rows = _Stream(models.tokenizer), []
    try:
        for i, ids in enumerate(prompts):
            if len(prompts) > 1:
                say(f"prompt {i} of {len(prompts)}: {_short(asked[i])}")
            session = Session(models.target, chosen.drafter, chosen.verifier, settings, stops, seed=seed + i).start(ids)
            made = session.trace
            made.method, made.provenance = chosen.label, origin | {"seed": seed + i}
            try:
                stream.run(session, max_new_tokens)
            finally:  # an interrupted text is kept, too
                made.reason = made.reason or "interrupted"
                rows.append(_row(made, asked[i], models, seed + i, temperature))
                if trace is not None:
                    made.save(trace, append=i > 0)
    finally:
        if json_file is not None and rows:
            write_results(json_file, origin, rows)


class _Stream:
    """Prints a session's text as it is decoded, and what there is to say about it."""

    def __init__(self, tokenizer):
        self.tokenizer, self.out, self.err = tokenizer, Console(highlight=False), Console(stderr=True, highlight=False)
        self.colours = self.out.is_terminal and not self.out.no_color
        self.explained = False

    def run(self, session, max_new_tokens: int) -> None:
        from specdec_lib.render import PieceStream, legend, lossless_line, summary

        if self.colours and not self.explained:
            self.err.print(legend())
            self.explained = True
        pieces = PieceStream(self.tokenizer)
        try:
            for r in session.rounds(max_new_tokens):
                self._print(pieces.add([r], last=bool(session.trace.reason)))
        finally:  # a round may be whole, but not printed yet
            self._print(pieces.add(session.trace.rounds[pieces.rounds :], last=True))
            print(flush=True)
            session.trace.reason = session.trace.reason or "interrupted"
            say(f"{lossless_line(session.trace)}\n{summary(session.trace)}")

    def _print(self, pieces) -> None:
        from specdec_lib.render import coloured

        if self.colours:
            self.out.print(coloured(pieces), end="", soft_wrap=True)
        else:
            print("".join(piece.text for piece in pieces), end="", flush=True)


def _read_prompts(file: Path) -> list[str | list[dict]]:
    """The prompts of a file: texts, or chats as lists of messages. ValueError names the entry that is wrong."""
    text = _read_text(file)
    if file.suffix not in (".jsonl", ".json"):
        prompts = [line.strip() for line in text.splitlines() if line.strip()]
    else:
        try:
            if file.suffix == ".jsonl":
                entries = [json.loads(line) for line in text.splitlines() if line.strip()]
            else:
                whole = json.loads(text)
                entries = whole if isinstance(whole, list) else [whole]
        except json.JSONDecodeError as error:
            raise ValueError(f"{file} is not {file.suffix[1:].upper()}: {error}") from error
        prompts = [_prompt_of(entry, f"{file}, entry {i}") for i, entry in enumerate(entries)]
    if not prompts:
        raise ValueError(f"{file} holds no prompt")
    return prompts


def _prompt_of(entry: object, where: str) -> str | list[dict]:
    if isinstance(entry, dict) and isinstance(entry.get("prompt"), str):
        return entry["prompt"]
    messages = entry.get("messages") if isinstance(entry, dict) else None
    if not isinstance(messages, list) or not messages:
        raise ValueError(f'{where}: give {{"prompt": "..."}} or {{"messages": [{{"role": ..., "content": ...}}]}}')
    for message in messages:
        if not isinstance(message, dict) or not all(isinstance(message.get(k), str) for k in ("role", "content")):
            raise ValueError(f"{where}: every message needs a role and a content, both texts; got {_short(message)}")
    return messages


def _prompt_ids(models, asked: str | list[dict], raw: bool) -> list[int]:
    if isinstance(asked, str):
        return models.prompt(asked, chat=not raw)
    if raw:
        raise ValueError("--raw takes texts; a chat's messages need the chat template")
    return models.chat(asked)


def _warn_of_unknown_words(models, asked: list[str | list[dict]]) -> None:
    """Name the words that the tokenizer does not know: the model reads <unk> in their place."""
    texts = [p if isinstance(p, str) else " ".join(m["content"] for m in p) for p in asked]
    words = [word for text in texts for word in unknown_words(models.tokenizer, text)]
    if words:
        named = ", ".join(repr(word) for word in dict.fromkeys(words))
        say(
            f"warning: not in the vocabulary of {models.name}, so read as {models.tokenizer.unk_token}: {named}"
            + (
                " (it knows lower-case word problems only; see specdec generate --help)"
                * models.name.startswith("pocket")
            )
        )


def unknown_words(tokenizer, text: str) -> list[str]:
    """The words of a text (between spaces) that hold an unknown token, in order."""
    if tokenizer.unk_token_id is None:
        return []
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    pairs = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    unknown = [span for token, span in pairs if token == tokenizer.unk_token_id]
    words = [(m.start(), m.end(), m.group()) for m in re.finditer(r"\S+", text)]
    return [word for start, end, word in words if any(start < b and a < end for a, b in unknown)]


def _row(trace, asked: str | list[dict], models, seed: int, temperature: float) -> dict:
    from specdec_lib.trace import accepted_over_drafted, accepted_over_tested, alpha, kept, mat

    seconds = sum(r.seconds for r in trace.rounds)
    return {
        "prompt": asked,
        "text": models.text(trace.ids),
        "ids": trace.ids,
        "reason": trace.reason,
        "method": trace.method,
        "lossless": trace.lossless,
        "seed": seed,
        "temperature": temperature,
        "rounds": len(trace.rounds),
        "mat": mat([trace]),
        "kept": kept([trace]),
        "alpha": alpha([trace]),
        "accepted_over_tested": accepted_over_tested([trace]),
        "accepted_over_drafted": accepted_over_drafted([trace]),
        "prefill_s": trace.prefill_s,
        "rounds_s": seconds,
        "tok_per_s": len(trace.ids) / seconds if seconds else None,
    }


def _short(value: object, width: int = 70) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= width else text[: width - 3] + "..."


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not a text file (UTF-8)") from error


# ---- show ------------------------------------------------------------------------------------------------------


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
    _writable(html)
    _read_text(trace)

    from specdec_lib import render
    from specdec_lib.trace import Trace
    from specdec_lib.zoo import load_tokenizer, pair_folders

    traces = Trace.load_all(trace)
    if index >= len(traces):
        raise ValueError(f"{trace} has no trace {index}: it holds {len(traces)}, counted from 0")
    chosen = traces[index]
    name = pair or chosen.provenance.get("arguments", {}).get("pair") or "pocket"
    tokenizer = _from_files(name, lambda: load_tokenizer(pair_folders(name)[0]))
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


# ---- eval and methods ------------------------------------------------------------------------------------------


@command("""
specdec eval --n 100 --seed 1
specdec eval --pair pocket --n 500 --json results.json
""")
def eval(
    pair: PairOption = "pocket",
    n: Annotated[int, typer.Option("--n", help="How many held-out problems.", min=1)] = 100,
    seed: SeedOption = 0,
    json_file: JsonOption = None,
) -> None:
    """Measure a pair on held-out problems: accuracy, speed, c, alpha, kept, and what greedy lenience can do."""
    _writable(json_file)
    models = _load(pair)

    from specdec_lib.evaluate import evaluate, table
    from specdec_lib.provenance import write_results

    result = evaluate(models, n, seed, progress=sys.stderr.isatty())
    print(table(result))
    if json_file is not None:
        write_results(json_file, result.pop("provenance"), result.pop("rows"), **result)


@command("""
specdec methods
specdec generate --method lenience:lenience=0.3,gamma=4 "..."
""")
def methods() -> None:
    """List the methods, with their knobs and the values these have unless given."""
    from specdec_lib.methods import METHODS

    width = max(map(len, METHODS))
    for name, (what, knobs) in METHODS.items():
        print(f"{name:{width}}  {what}")
        if knobs:
            print(f"{'':{width}}  {name}:" + ",".join(f"{knob}={value:g}" for knob, value in knobs.items()))


# ---- doctor ----------------------------------------------------------------------------------------------------


@command("""
specdec doctor
specdec doctor --json machine.json
""")
def doctor(pair: PairOption = "pocket", json_file: JsonOption = None) -> None:
    """Say whether everything that the course needs is here, and what a pass of the target costs on this machine."""
    _writable(json_file)
    from specdec_lib.doctor import examine
    from specdec_lib.provenance import provenance, write_results

    found = examine(pair)
    print(found.report())
    if json_file is not None:
        write_results(json_file, provenance({"pair": pair}), found.rows, **found.measured)
    if not found.ready:
        raise typer.Exit(FAILED)
