"""`specdec generate`: continue prompts, streamed, with which tokens were accepted.

Our own.
Left out: decoding (decode.py) and drawing (render.py).
"""

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from specdec_lib.cli.base import (
    DraftOption,
    JsonOption,
    PairOption,
    SeedOption,
    TargetOption,
    command,
    load,
    say,
    say_how,
    short,
    writable,
)
from specdec_lib.text_file import read_text


@command("""
specdec generate "ana earns 10 dollars a day. ana works 4 days. how many dollars does ana have?"
specdec generate --method lossless:gamma=4 --temperature 1 --seed 7 "leo has 43 nuts. ..."
specdec generate --file prompts.txt --json results.json --trace traces.jsonl
specdec generate --pair smollm2 "Why is the sky blue?"
specdec generate --target FOLDER_OR_HUB_NAME --draft OTHER:nf4 "Why is the sky blue?"
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
    target: TargetOption = None,
    draft: DraftOption = None,
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
    writable(json_file, trace)
    asked = _read_prompts(file) if file is not None else [sys.stdin.read().strip() if prompt == "-" else prompt]

    from specdec_lib.decode import Session, Stops, check_prompt
    from specdec_lib.methods import build_method, parse_method
    from specdec_lib.provenance import write_results
    from specdec_lib.sampling import SamplingSettings

    parse_method(method)
    settings = SamplingSettings(temperature, top_k, top_p, min_p, repetition_penalty)
    settings.processors()  # refuses bad values now, before models are loaded
    if temperature == 0 and (top_k, top_p, min_p) != (None, None, None):
        say("note: at temperature 0 the likeliest token is taken; --top-k, --top-p and --min-p change nothing")
    models = load(pair, target, draft)
    chosen = build_method(method, models)
    prompts = []
    for i, text in enumerate(asked):
        try:
            prompts.append(check_prompt(_prompt_ids(models, text, raw), models.target))
        except ValueError as error:
            raise ValueError(f"prompt {i}: {error}") from error
    _warn_of_unknown_words(models, asked)

    arguments = {
        "pair": models.name, "method": chosen.label, **asdict(settings), "max_new_tokens": max_new_tokens,
        "stop": stop or [], "raw": raw, "file": None if file is None else str(file),
    }  # fmt: skip
    if target is not None:
        arguments |= {"target": target, "draft": draft}
    origin = models.provenance(arguments, seed)
    say_how(models)
    stops = Stops(models.stops.eos_token_ids, tuple(stop or ()), models.tokenizer)
    stream, rows = _Stream(models.tokenizer), []
    try:
        for i, ids in enumerate(prompts):
            if len(prompts) > 1:
                say(f"prompt {i} of {len(prompts)}: {short(asked[i])}")
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
    text = read_text(file)
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
            raise ValueError(f"{where}: every message needs a role and a content, both texts; got {short(message)}")
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
