"""What every command shares: the app, its options, and errors as one line on stderr with an exit status.

Our own, on typer and rich. What computes is imported inside the commands, so that --help does not wait for torch.
Left out: the commands themselves, one file each.

Exit status: 0 done, 1 failed, 2 bad input, 130 stopped with Ctrl-C.
"""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

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
TargetOption = Annotated[
    str | None, typer.Option(metavar="MODEL", help="Instead of --pair: a folder or hub name, may end in :nf4 or :int8.")
]
DraftOption = Annotated[
    str | None, typer.Option(metavar="MODEL", help="The draft that goes with --target; may also end in :layers=N.")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Drives every draw: same seed, same result.")]
JsonOption = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write the results with their provenance as JSON.")
]


class Failure(Exception):
    """Something went wrong that is no fault of the input; the message says what to do."""


def say(text: str) -> None:
    """A line on stderr: results alone go to stdout."""
    print(text, file=sys.stderr, flush=True)


def command(examples: str, group: typer.Typer = app) -> Callable:
    """Register a command. Errors that a user can meet become one line on stderr and an exit status, never a traceback.

    examples: shown below the help, a line each. group: a typer.Typer of several commands that share a first word, which
    the file that makes it adds to the app (app.add_typer).
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
        return group.command(epilog=f"**Examples**\n\n{lines}")(guarded)

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


def writable(*files: Path | None) -> None:
    """Refuse an output file that cannot be written before anything is computed."""
    for file in files:
        if file is not None and (file.is_dir() or not file.absolute().parent.is_dir()):
            raise ValueError(f"cannot write {file}: {'it is a folder' if file.is_dir() else 'its folder is not there'}")


def load(pair: str, target: str | None = None, draft: str | None = None):
    """The pair by name, or these two models; a ValueError for bad names, a Failure for what is wrong with a preset."""
    from specdec_lib.zoo import load_custom, load_pair

    if target is None and draft is None:
        return from_files(pair, lambda: load_pair(pair))
    if target is None or draft is None:
        raise ValueError("--target and --draft go together: give both, or neither to use --pair")
    return load_custom(target, draft)


def say_how(models) -> None:
    """Name what figures of these models are made with, where that is not plain float32."""
    if models.note or set(models.dtypes.values()) - {"float32"}:
        how = [f"{role} in {dtype}" for role, dtype in models.dtypes.items()]
        say(f"{models.name}: {'; '.join([*how, *filter(None, [models.note])])}")


def from_files(pair: str, load: Callable):
    """load(), with anything wrong with a known pair's files as a Failure."""
    from specdec_lib.presets import UnknownPair

    try:
        return load()
    except UnknownPair:
        raise
    except (ValueError, OSError) as error:
        raise Failure(f"pair {pair} cannot be loaded: {_one_line(error)}") from error


def short(value: object, width: int = 70) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= width else text[: width - 3] + "..."
