"""`specdec judge data`, `train`, `eval`, `ablate`, `stages`, `correction` and `react`.

Our own.
Left out: what they compute (judge/) and the rule that uses a head (verifiers/judge.py).
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

judge = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
app.add_typer(judge, name="judge", help="Judge Decoding's label set and head, for the pocket pair or for your own.")

LabelsOption = Annotated[
    Path, typer.Option("--labels", metavar="FILE", help="Answers with marked tokens or spans, .jsonl or .jsonl.gz.")
]
TestLabelsOption = Annotated[Path, typer.Option("--held-out", metavar="FILE", help="Labels to test on.")]
WorkOption = Annotated[
    Path, typer.Option(metavar="FOLDER", help="Where specdec_lib.pocket.train keeps what it trains.")
]
RowsOption = Annotated[Path, typer.Option("--json", metavar="FILE", help="Where the rows go, as each is made.")]
HeldOutOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Labels to test on; else a fifth of the questions is held out.")
]


@command(
    """
specdec judge data labels.jsonl.gz
specdec judge data more.jsonl.gz --questions 2000 --seed 7
""",
    judge,
)
def data(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the set goes, .jsonl or .jsonl.gz.")],
    pair: PairOption = "pocket",
    questions: Annotated[int, typer.Option(help="How many questions.", min=1)] = 500,
    seed: SeedOption = 1,
    split: Annotated[str, typer.Option(help="Which problems: calibration to train on, validation to test.")] = (
        "calibration"
    ),
) -> None:
    """Build the label set of a pocket pair: answers by many writers, marked by the checker. Goes on where it was."""
    writable(file)
    models = load(pair)
    from specdec_lib.judge.data import build, counted

    answers = build(models, file, questions, seed, split, progress=sys.stderr.isatty())
    print(counted(answers))


@command(
    """
specdec judge train --labels labels.jsonl.gz
specdec judge train --pair smollm2 --labels own.jsonl --json quality.json
""",
    judge,
)
def train(
    labels: LabelsOption,
    pair: PairOption = "pocket",
    target: TargetOption = None,
    draft: DraftOption = None,
    held_out: HeldOutOption = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where the head goes. Default: the cache, where it is found.")
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """Train a head for this pair's target: seconds, once each answer has been read. Then `judge` works by name.

    Its quality is measured on questions that are held out; the head that is written has seen all of --labels. How to
    mark answers of your own: docs/judge.md.
    """
    writable(out, json_file)
    from specdec_lib.judge.labels import about_labels, read_labels

    models = load(pair, target, draft)
    say_how(models)
    answers = read_labels(labels, models)
    test = read_labels(held_out, models) if held_out is not None else None
    from specdec_lib.judge.head import heads_folder
    from specdec_lib.judge.train import described, fit_and_measure
    from specdec_lib.provenance import write_results

    made = {"labels": labels.name, "label_set": about_labels(labels)}
    head, quality = fit_and_measure(models, answers, test, made, progress=sys.stderr.isatty())
    if out is None:
        heads_folder().mkdir(parents=True, exist_ok=True)
        out = heads_folder() / f"judge-{models.checksums['target'][:16].replace(' ', '-')}.safetensors"
    head.save(out)
    print(described(quality))
    say(f"wrote {out}")
    if json_file is not None:
        write_results(json_file, models.provenance({"pair": models.name, "labels": labels.name}), [quality])


@command(
    """
specdec judge eval --labels validation.jsonl.gz
specdec judge eval --n 200 --json loop.json
""",
    judge,
)
def eval(
    pair: PairOption = "pocket",
    target: TargetOption = None,
    draft: DraftOption = None,
    head: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The head; default: the one made for this target.")
    ] = None,
    labels: Annotated[Path | None, typer.Option(metavar="FILE", help="Measure AUC and calibration on these.")] = None,
    n: Annotated[int, typer.Option("--n", help="Pocket pairs: decode so many validation problems.", min=0)] = 0,
    seed: SeedOption = 0,
    json_file: JsonOption = None,
) -> None:
    """Measure a head: AUC and calibration on labels, and kept and accuracy over delta on validation problems."""
    writable(json_file)
    if labels is None and not n:
        raise ValueError("there is nothing to measure: give --labels FILE, --n PROBLEMS, or both")
    models = load(pair, target, draft)
    say_how(models)
    from specdec_lib.judge.head import JudgeHead, check_fits, head_of
    from specdec_lib.judge.labels import read_labels
    from specdec_lib.judge.train import described, measured
    from specdec_lib.judge.tune import chosen_delta, in_the_loop, table
    from specdec_lib.provenance import write_results

    used = head_of(models) if head is None else JudgeHead.load(head)
    check_fits(used, models)
    rows, beside = [], {}
    if labels is not None:
        beside["quality"] = measured(models, used, read_labels(labels, models), progress=sys.stderr.isatty())
        print(described(beside["quality"]))
    if n:
        rows = in_the_loop(models, used, n, seed, progress=sys.stderr.isatty())
        beside["delta"] = chosen_delta(rows)
        print(table(rows))
        print(f"delta {beside['delta']:g} keeps most of those that lose at most three quarters of a point")
    if json_file is not None:
        arguments = {"pair": models.name, "labels": labels and labels.name, "n": n}
        write_results(json_file, models.provenance(arguments, seed), rows, **beside)


@command(
    """
specdec judge ablate --labels labels.jsonl.gz --held-out validation.jsonl.gz --json ablations.json
""",
    judge,
)
def ablate(
    labels: LabelsOption,
    held_out: TestLabelsOption,
    json_file: RowsOption,
    pair: PairOption = "pocket",
) -> None:
    """Change one thing of the training at a time and measure the AUC. The same command goes on where it stopped."""
    writable(json_file)
    models = load(pair)
    from specdec_lib.experiments.base import Rows
    from specdec_lib.judge.ablate import bench, run, table
    from specdec_lib.judge.labels import read_labels

    rows = Rows(json_file, models.provenance({"pair": pair, "labels": labels.name, "held_out": held_out.name}))
    sets = [read_labels(file, models) for file in (labels, held_out)]
    found = run(bench(models, *sets, progress=sys.stderr.isatty()), rows)
    rows.write(found, complete=True)
    print(table(found))


@command(
    """
specdec judge stages --labels labels.jsonl.gz --held-out validation.jsonl.gz --json stages.json
""",
    judge,
)
def stages(
    labels: LabelsOption,
    held_out: TestLabelsOption,
    json_file: RowsOption,
    work: WorkOption = Path("build/pocket"),
) -> None:
    """The AUC before and after the target has read text in which every slip is put right. Goes on where it stopped."""
    writable(json_file)
    from specdec_lib.judge import stages as staged

    _trained_targets(staged.stages, staged.table, work, labels, held_out, json_file)


@command(
    """
specdec judge correction --labels labels.jsonl.gz --held-out validation.jsonl.gz --json correction.json
""",
    judge,
)
def correction(
    labels: LabelsOption,
    held_out: TestLabelsOption,
    json_file: RowsOption,
    work: WorkOption = Path("build/pocket"),
) -> None:
    """The AUC with and without self-correction in a small target's text. Goes on where it stopped."""
    writable(json_file)
    from specdec_lib.judge import correction as corrected

    _trained_targets(corrected.correction, corrected.table, work, labels, held_out, json_file)


def _trained_targets(measure, table, work: Path, labels: Path, held_out: Path, json_file: Path) -> None:
    from specdec_lib.experiments.base import Rows
    from specdec_lib.provenance import provenance

    origin = provenance({"labels": labels.name, "held_out": held_out.name}) | {"checksums": None}
    rows = Rows(json_file, origin)
    found = measure(work, labels, held_out, rows, progress=sys.stderr.isatty())
    rows.write(found, complete=True)
    print(table(found))


@command(
    """
specdec judge react --pair smollm2 --json react.json
""",
    judge,
)
def react(pair: PairOption = "smollm2", json_file: JsonOption = None) -> None:
    """Does the hidden state react to a wrong word in a short answer that the model knows? AUC of a probe, by layer."""
    writable(json_file)
    models = load(pair)
    say_how(models)
    from specdec_lib.judge.react import QUESTIONS, read_questions, table
    from specdec_lib.judge.react import react as probe
    from specdec_lib.provenance import write_results

    result = probe(models, read_questions(), progress=sys.stderr.isatty())
    print(table(result))
    if json_file is not None:
        origin = models.provenance({"pair": pair, "questions": QUESTIONS.name})
        write_results(json_file, origin, result.pop("rows"), **result)
