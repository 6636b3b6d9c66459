"""`specdec bench`.

Our own.
Left out: the run (bench.py) and its figures (speed.py).
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from specdec_lib.cli.base import JsonOption, PairOption, SeedOption, command, load, say, say_how, writable

POCKET_TOKENS, OTHER_TOKENS = 260, 128  # the longest right answer of the pocket world is shorter


@command("""
specdec bench --n 20 --json bench.json
specdec bench --methods greedy,lenience:lenience=0.1,gamma=4,hf-assisted --gamma 8
specdec bench --pair pocket --temperature 1 --n 8 --repeats 2
specdec bench --pair smollm2 --methods pld,logitspec-cost,hf-lookup --tasks data/prompts/spec-small.jsonl
""")
def bench(
    pair: PairOption = "pocket",
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Methods with their knobs (`specdec methods`), and hf-generate, hf-assisted, hf-lookup. Default: "
            "plain decoding, Hugging Face's three, and the lossless ones for this temperature.",
        ),
    ] = None,
    n: Annotated[int, typer.Option("--n", help="How many prompts.", min=1)] = 24,
    seed: SeedOption = 0,
    tasks: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='Prompts, {"prompt": ..., "group": ...} a line, or questions in Spec-Bench\'s format. Default: '
            "held-out problems for a pocket pair, data/prompts/chat.jsonl else.",
        ),
    ] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    gamma: Annotated[
        int | None, typer.Option(help="Draft length of every method that has one and was not given its own.", min=1)
    ] = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(
            help=f"The longest answer. Default: {POCKET_TOKENS} for a pocket pair, {OTHER_TOKENS} else.", min=1
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(help="How often every method answers every prompt.", min=1)] = 3,
    compile_draft: Annotated[
        bool,
        typer.Option("--compile", help="Compile the draft's steps, in this library's methods (needs a C++ compiler)."),
    ] = False,
    answers: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write every method's answers there, in Spec-Bench's format."),
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """Time methods side by side on the same prompts, with what the formulas predict and what explains the difference.

    Everything else on the machine should be quiet. Ctrl-C keeps the repeats that are whole. With --json FILE the calls
    are kept in FILE.calls as they come, and the same command goes on from there.
    """
    writable(json_file)
    if answers is not None and not answers.is_dir():
        raise ValueError(f"cannot write answers to {answers}: there is no such folder")
    from specdec_lib.bench import bench as run
    from specdec_lib.bench import plan
    from specdec_lib.kept_calls import KeptCalls
    from specdec_lib.methods import method_label
    from specdec_lib.provenance import write_results
    from specdec_lib.ratios import table as compared_arms
    from specdec_lib.sampling import SamplingSettings
    from specdec_lib.specbench import write_rows
    from specdec_lib.specbench_figures import table as compared
    from specdec_lib.speed import name_of, table
    from specdec_lib.tasks import choose_tasks

    SamplingSettings(temperature)  # bad values are refused now, before models are loaded
    planned = plan(methods, gamma, temperature, pair)
    chosen = choose_tasks(pair, n, seed, tasks)
    if answers is not None and not all(task.question for task in chosen):
        raise ValueError("--answers needs --tasks with questions in Spec-Bench's format")
    models = load(pair)
    say_how(models)
    if compile_draft:
        say("compiling the draft's steps, which takes a while")
        models.compile_draft()
    if max_new_tokens is None:
        max_new_tokens = POCKET_TOKENS if chosen[0].problem else OTHER_TOKENS
    arguments = {
        "pair": pair, "methods": [method_label(*arm) for arm in planned], "n": n, "tasks": tasks and str(tasks),
        "temperature": temperature, "gamma": gamma, "max_new_tokens": max_new_tokens, "repeats": repeats,
        "compile": compile_draft,
    }  # fmt: skip
    origin = models.provenance(arguments, seed)
    kept = None if json_file is None else json_file.with_name(json_file.name + ".calls")
    keep = KeptCalls(kept, origin)
    try:
        found = run(
            models, chosen, methods, seed, temperature, gamma, max_new_tokens, repeats, sys.stderr.isatty(), keep
        )
    except KeyboardInterrupt:
        if kept is not None and kept.exists():
            say(f"{len(keep.entries)} prompts are kept in {kept}; the same command goes on from there")
        raise
    print(table(found))
    if other := compared_arms(found["ratios"], method_label(*planned[0])):
        print("\n" + other)
    given = found.pop("answers", {})
    if "specbench" in found:
        print("\n" + compared(found["specbench"]))
    for method, rows in given.items() if answers is not None else ():
        write_rows(answers / f"{method.replace(':', '-')}.jsonl", rows)
    if json_file is not None:
        rows = found.pop("rows")
        origin["arguments"]["methods"] = [name_of(row) for row in rows]
        write_results(json_file, origin, rows, **found)
    if found["interrupted"]:
        raise KeyboardInterrupt
    keep.done()
