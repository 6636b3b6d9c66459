"""`specdec scored`.

Our own.
Left out: what is computed (scored.py) and what is read off it (knob.py).
"""

from typing import Annotated

import typer

from specdec_lib.cli.base import JsonOption, PairOption, SeedOption, command, load, writable


@command("""
specdec scored --n 5
specdec scored --pair pocket --n 40 --seed 3 --json data/traces/scored-pocket.json
""")
def scored(
    pair: PairOption = "pocket",
    n: Annotated[int, typer.Option("--n", help="How many test problems.", min=1)] = 40,
    seed: SeedOption = 3,
    json_file: JsonOption = None,
) -> None:
    """Score the draft's full answers to pocket problems once with the target: what lesson 05's slider reads."""
    writable(json_file)

    from specdec_lib.judge.head import head_of
    from specdec_lib.knob import KNOBS, read_knob
    from specdec_lib.pocket.world import problems
    from specdec_lib.provenance import write_results
    from specdec_lib.scored import score_drafts, to_row

    models = load(pair)
    head = head_of(models)
    texts = score_drafts(models, problems("test", n, seed), head.logits)
    print(f"{'rule':9s} {'knob':>8s} {'kept run':>9s} {'kept of 8':>10s} {'wrong passes':>13s}")
    for rule, (_, values) in KNOBS.items():
        for value in values:
            r = read_knob(texts, rule, value)
            print(f"{rule:9s} {value:8g} {r.kept_run:9.1f} {r.kept_round:10.2f} {r.wrong_accepted:13.0%}")
    if json_file is not None:
        origin = models.provenance({"pair": pair, "n": n}, seed)
        write_results(json_file, origin, [to_row(text) for text in texts])
