"""A model as its own draft: its weights in fewer bits, or its first layers, untrained. What each gives and costs.

Follows quantised self-drafts (ML-SpecQD, arXiv 2503.13565) and early exits (LayerSkip, arXiv 2404.16710) in what is
compared. Predictions are theory.py's, from acceptance by position and measured times.
Left out: measured speed-ups (bench.py).
"""

import statistics
from collections.abc import Iterable, Iterator, Sequence

from tqdm import tqdm

from specdec_lib import trace as figures
from specdec_lib.bench import draft_step_s
from specdec_lib.decode import decode
from specdec_lib.drafters import ModelDrafter
from specdec_lib.machine import pass_times
from specdec_lib.presets import preset
from specdec_lib.sampling import SamplingSettings
from specdec_lib.tasks import Task
from specdec_lib.theory import best_gamma_from_times, speedup_from_times
from specdec_lib.trace import Trace
from specdec_lib.zoo import Pair, added_bytes, load_selfdraft, parameter_bytes

GAMMA = 8  # draft length while acceptance is measured, and the longest one considered
QUANTISED = ("nf4", "int8")
SHARES = (1 / 3, 2 / 3, 5 / 6)  # of the target's layers
REPEATS = 7  # measurements of each T(k) and D(1)


def selfdraft(
    name: str, tasks: Sequence[Task], seed: int = 0, max_new_tokens: int = 64, drafts: Sequence[str] = (),
    progress: bool = True,
) -> dict:  # fmt: skip
    """Measure a preset's target with several drafts made of its own weights, on the same prompts.

    drafts: "nf4", "int8" or "layers=N"; unless given, both quantisations and three numbers of layers. Prompt number i
    is drawn with seed + i.

    rows, one a draft: draft; dtype; alpha (temperature 1); greedy_accepted_over_tested; c; draft_step_s, D(1): one
    draft step at temperature 1, draw included; pass_s, T(k) measured in turn with it; draft_bytes (read a pass),
    added_bytes (not shared with the target); best_gamma and predicted_speedup at temperature 1, greedy_best_gamma and
    greedy_predicted_speedup, by theory.speedup_from_times over draft lengths up to GAMMA (0: no draft pays). Beside
    rows: the context, in tokens, at which T(k) and D(1) hold. Errors as load_pair.
    """
    drafts = drafts or _drafts(name)
    found: dict = {"rows": []}
    plain: list[Trace] = []
    with tqdm(total=(2 * len(drafts) + 1) * len(tasks), desc="selfdraft", unit="answer", disable=not progress) as bar:
        for how in drafts:
            bar.set_postfix_str(how)
            pair = load_selfdraft(name, **_options(how))  # the target's weights are loaded once
            if not plain:
                plain = list(_answers(pair, tasks, seed, max_new_tokens, 1.0, 0, bar))
                text = max(([*t.prompt, *t.ids] for t in plain), key=len)[: pair.target.context - GAMMA - 1]
                arguments = _arguments(name, tasks, max_new_tokens, drafts)
                found |= {"context": len(text), "provenance": pair.provenance(arguments, seed)}
            sampled, greedy = (
                list(_answers(pair, tasks, seed, max_new_tokens, temperature, GAMMA, bar)) for temperature in (1.0, 0.0)
            )
            found["rows"].append(_row(how, pair, plain, sampled, greedy, *_costs(pair, text)))
    return found


def _drafts(name: str) -> list[str]:
    layers = preset(name).target.config().get_text_config().num_hidden_layers
    return [*QUANTISED, *dict.fromkeys(f"layers={max(1, round(layers * share))}" for share in SHARES)]


def _options(how: str) -> dict:
    """The keywords of load_selfdraft for "nf4", "int8" or "layers=N". ValueError for anything else."""
    key, _, n = how.partition("=")
    if how in QUANTISED:
        return {"quantise": how}
    if key != "layers" or not n.isdecimal():
        raise ValueError(f"unknown self-draft {how!r}; choose nf4, int8 or layers=N")
    return {"layers": int(n)}


def _arguments(name: str, tasks: Sequence[Task], max_new_tokens: int, drafts: Sequence[str]) -> dict:
    return {"pair": name, "n": len(tasks), "max_new_tokens": max_new_tokens, "drafts": list(drafts), "gamma": GAMMA}


def _answers(
    pair: Pair, tasks: Iterable[Task], seed: int, max_new_tokens: int, temperature: float, gamma: int, bar: tqdm
) -> Iterator[Trace]:
    for i, task in enumerate(tasks):
        drafter = ModelDrafter(pair.draft, gamma)
        settings = SamplingSettings(temperature)
        ids = pair.prompt(task.prompt)
        yield decode(pair.target, ids, max_new_tokens, drafter, None, settings, pair.stops, seed + i)
        bar.update()


def _costs(pair: Pair, text: list[int]) -> tuple[dict[int, float], float | None]:
    """T(k) for k = 1 to GAMMA + 1 and D(1) after this text, medians of measurements that take turns."""
    passes, steps = [], []
    for _ in range(REPEATS):
        passes.append(pass_times(pair.target, range(1, GAMMA + 2), len(text), 1))
        steps.append(draft_step_s(pair, GAMMA, text, SamplingSettings(1.0)))
    times = {k: statistics.median(p[k] for p in passes) for k in passes[0]}
    return times, None if None in steps else statistics.median(steps)


def _row(
    how: str, pair: Pair, plain: list[Trace], sampled: list[Trace], greedy: list[Trace], times: dict[int, float],
    step: float | None,
) -> dict:  # fmt: skip
    row = {
        "draft": how,
        "dtype": pair.dtypes["draft"],
        "alpha": figures.alpha(sampled),
        "greedy_accepted_over_tested": figures.accepted_over_tested(greedy),
        "c": figures.draft_over_target(figures.rounds_of(sampled), figures.rounds_of(plain)),
        "draft_step_s": step,
        "pass_s": {str(k): seconds for k, seconds in times.items()},
        "draft_bytes": parameter_bytes(pair.draft.model),
        "added_bytes": added_bytes(pair.draft.model, pair.target.model),
    }
    for prefix, traces in (("", sampled), ("greedy_", greedy)):
        acceptance = figures.acceptance_by_position(traces)[:GAMMA]
        gamma = None if step is None else best_gamma_from_times(acceptance, times, step)
        row[prefix + "best_gamma"] = gamma
        row[prefix + "predicted_speedup"] = (
            None if gamma is None else speedup_from_times(acceptance[:gamma], times, step)
        )
    return row


def table(found: dict) -> str:
    """The result as plain text."""
    one = statistics.median(row["pass_s"]["1"] for row in found["rows"])
    width = max(len(row["draft"]) for row in found["rows"])
    lines = [
        f"{'draft':{width}} {'alpha':>6} {'greedy':>7} {'c':>6} {'D(1) ms':>8} {'reads MB':>9} {'adds MB':>8} "
        f"{'gamma':>6} {'speed-up':>9} {'greedy gamma':>13} {'speed-up':>9}"
    ]
    for row in found["rows"]:
        step = row["draft_step_s"]
        lines.append(
            f"{row['draft']:{width}} {_n(row['alpha']):>6} {_n(row['greedy_accepted_over_tested']):>7} "
            f"{_n(row['c']):>6} {_n(step and 1000 * step, 1):>8} {row['draft_bytes'] / 1e6:9.1f} "
            f"{row['added_bytes'] / 1e6:8.1f} {_n(row['best_gamma'], 0):>6} {_n(row['predicted_speedup']):>9} "
            f"{_n(row['greedy_best_gamma'], 0):>13} {_n(row['greedy_predicted_speedup']):>9}"
        )
    how = found["provenance"]
    notes = [how["note"]] * bool(how["note"]) + [f"target in {how['dtypes']['target']}"]
    return "\n".join(
        [
            *lines,
            "",
            f"T(1) {1000 * one:.1f} ms after {found['context']} tokens; {'; '.join(notes)}. greedy: accepted / tested "
            "at temperature 0.",
            f"gamma, speed-up: predicted from T(k), D(1) and acceptance by position, up to {GAMMA}; gamma 0: no draft "
            "pays.",
        ]
    )


def _n(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
