"""Measure a pocket pair on held-out problems: accuracy, speed, c, alpha, kept, and what greedy lenience can do.

Our own; every word is defined in trace.py or below. The figures of the pair's card come from here. Answers are decoded
many at once (batch.py); what is timed is decoded again, a few problems one by one.
Left out: comparing methods with each other for speed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import tee

from tqdm import tqdm

from specdec_lib import trace as figures
from specdec_lib.batch import decode_batch
from specdec_lib.decode import Session
from specdec_lib.drafters import Drafter, ModelDrafter, NoDrafter
from specdec_lib.model import CausalLM
from specdec_lib.pocket.checker import AFTER, WRONG, Marking, mark, mark_next
from specdec_lib.pocket.tokenizer import prompt_ids, world_tokens
from specdec_lib.pocket.world import Problem, problems
from specdec_lib.provenance import provenance
from specdec_lib.sampling import SamplingSettings
from specdec_lib.stats import share_interval
from specdec_lib.trace import Trace
from specdec_lib.verifiers import Lenience, LosslessRejection, Verifier
from specdec_lib.verifiers.base import REJECTED
from specdec_lib.zoo import Pair

GAMMA = 8
MAX_NEW_TOKENS = 260  # the longest right answer has fewer
# 0.125 is just below 0.12 / 0.88, how likely the rarer wording of the uniform world is beside the likelier one.
LENIENCES = (0.3, 0.125, 0.1, 0.03, 0.01, 0.003, 0.001)
MOST_TIMED = 20  # problems for whatever is timed


@dataclass
class Answer:
    """A problem, how its answer was decoded, and how the checker marks it."""

    problem: Problem
    trace: Trace
    marking: Marking


def answers(
    pair: Pair, target: CausalLM, tasks: Iterable[Problem], drafter: Drafter, verifier: Verifier,
    temperature: float = 0.0, seed: int = 0,
) -> list[Answer]:  # fmt: skip
    """Decode an answer to every problem, many at once: their traces have no seconds. Problem i draws from seed + i."""
    tasks, asked = tee(tasks)
    prompts = (prompt_ids(pair.tokenizer, problem.question) for problem in asked)
    settings = SamplingSettings(temperature)
    traces = decode_batch(target, prompts, MAX_NEW_TOKENS, drafter, verifier, settings, pair.stops, seed)
    return [
        Answer(problem, trace, mark(problem, world_tokens(pair.tokenizer, trace.ids)))
        for problem, trace in zip(tasks, traces, strict=True)
    ]


def timed(
    pair: Pair, target: CausalLM, tasks: Iterable[Problem], drafter: Drafter, temperature: float = 0.0, seed: int = 0
) -> list[Trace]:
    """Decode the problems one after the other, by the lossless rule, on one generator."""
    session = Session(target, drafter, None, SamplingSettings(temperature), pair.stops, seed=seed)
    return [session.start(prompt_ids(pair.tokenizer, p.question)).run(MAX_NEW_TOKENS) for p in tasks]


def evaluate(pair: Pair, n: int, seed: int, progress: bool = True) -> dict:
    """Measure the pair on n test problems chosen by the seed. ValueError for n below 1.

    rows: one a model (accuracy, its 95 % interval, token_error_rate: share of tokens wrong or after an error,
    any_wrong: share of answers with a wrong token, tok_per_s: plain greedy decoding, a few problems). Beside them:
    c: median seconds of a draft step as the loop runs it over median seconds of a plain target step (temperature 1).
    alpha: at temperature 1. kept: of 8 drafted tokens, greedy. right_among_rejected: of first rejected draft tokens
    whose prefix is right, the share that the checker calls right. lenience_frontier: kept and accuracy of greedy
    lenience over its knob; its first point, 1, is lossless.
    """
    if isinstance(n, bool) or n < 1:
        raise ValueError(f"n, the number of problems, must be 1 or more; got {n!r}")
    tasks = problems("test", n, seed)
    few = tasks[:MOST_TIMED]
    steps = 4 * len(few) + len(tasks) * (3 + len(LENIENCES))
    with tqdm(total=steps, desc=f"eval {pair.name}", unit="answer", disable=not progress) as bar:

        def watched(what: str, tasks: list[Problem]) -> Iterable[Problem]:
            bar.set_postfix_str(f"{what}, {len(tasks)} problems")
            for problem in tasks:
                yield problem
                bar.update()

        def clock(model: CausalLM, drafter: Drafter, temperature: float = 0.0) -> list[Trace]:
            return timed(pair, model, watched("timed", few), drafter, temperature, seed)

        def answer(model: CausalLM, drafter: Drafter, verifier: Verifier, temperature: float = 0.0) -> list[Answer]:
            return answers(pair, model, watched(verifier.name, tasks), drafter, verifier, temperature, seed)

        plain, lossless, drafter = NoDrafter(), LosslessRejection(), ModelDrafter(pair.draft, GAMMA)
        target_speed, draft_speed = clock(pair.target, plain), clock(pair.draft, plain)
        plain_steps, drafted = (figures.rounds_of(clock(pair.target, each, 1.0)) for each in (plain, drafter))
        sampled = answer(pair.target, drafter, lossless, temperature=1.0)
        greedy = answer(pair.target, drafter, lossless)  # the same text as the target's plain greedy decoding
        draft = answer(pair.draft, plain, lossless)
        frontier = [_point(1.0, greedy)]
        for lenience in LENIENCES:
            frontier.append(_point(lenience, answer(pair.target, drafter, Lenience(lenience))))
    return {
        "provenance": provenance({"pair": pair.name, "n": n, "checksums": pair.checksums}, seed),
        "n": n,
        "rows": [
            _row("target", greedy, target_speed),
            _row("draft", draft, draft_speed),
        ],
        "c": figures.draft_over_target([r for r in drafted if r.depth == GAMMA], plain_steps),
        "alpha": figures.alpha(a.trace for a in sampled),
        "kept": figures.kept([a.trace for a in greedy]),
        "mat": figures.mat([a.trace for a in greedy]),
        "right_among_rejected": right_among_rejected(pair, greedy),
        "answer_tokens": figures.mean(len(a.trace.ids) for a in greedy),
        "lenience_frontier": frontier,
    }


def _row(model: str, found: list[Answer], speed: list[Trace]) -> dict:
    right = sum(a.marking.final_right for a in found)
    labels = [label for a in found for label in a.marking.labels]
    return {
        "model": model,
        "accuracy": right / len(found),
        "accuracy_interval": share_interval(right, len(found)),
        "token_error_rate": sum(label in (WRONG, AFTER) for label in labels) / len(labels),
        "any_wrong": sum(a.marking.any_wrong for a in found) / len(found),
        "tok_per_s": sum(len(trace.ids) for trace in speed) / sum(r.seconds for r in figures.rounds_of(speed)),
    }


def _point(lenience: float, found: list[Answer]) -> dict:
    right = sum(a.marking.final_right for a in found)
    return {
        "lenience": lenience,
        "n": len(found),
        "kept": figures.kept([a.trace for a in found]),
        "accuracy": right / len(found),
        "accuracy_interval": share_interval(right, len(found)),
    }


def right_among_rejected(pair: Pair, found: list[Answer]) -> float | None:
    """Of first rejected draft tokens whose prefix is right, the share that the checker calls right."""
    verdicts = []
    for answer in found:
        before: list[int] = []
        for r in answer.trace.rounds:
            for node, outcome in r.outcomes.items():
                if outcome == REJECTED:
                    prefix = before + [r.tokens[n] for n in r.path]
                    verdicts.append(is_right_next(pair, answer.problem, prefix, r.tokens[node]))
                    break
            before += r.emitted
    return figures.mean(right for right in verdicts if right is not None)


def is_right_next(pair: Pair, problem: Problem, before: Sequence[int], token: int) -> bool | None:
    """Does the checker call this token right behind the answer's ids before it? None if these hold an error already."""
    prefix = world_tokens(pair.tokenizer, list(before))
    if {WRONG, AFTER} & set(mark(problem, prefix).labels):
        return None
    return mark_next(problem, prefix, world_tokens(pair.tokenizer, [token])[0]) not in (WRONG, AFTER)


def table(result: dict) -> str:
    """The result as plain text."""
    lines = [
        f"{'model':8s} {'accuracy':>9s} {'95 % interval':>17s} {'token errors':>13s} {'any wrong':>10s} {'tok/s':>8s}"
    ]
    for row in result["rows"]:
        low, high = row["accuracy_interval"]
        lines.append(
            f"{row['model']:8s} {row['accuracy']:9.3f} {f'{low:.3f} to {high:.3f}':>17s} "
            f"{row['token_error_rate']:13.4f} {row['any_wrong']:10.3f} {row['tok_per_s']:8.0f}"
        )
    lines.append("")
    names = {
        "c": "c, draft step / target step", "alpha": "alpha at temperature 1", "kept": "kept of 8 drafted, greedy",
        "mat": "MAT, greedy (prefill not counted)", "right_among_rejected": "right among rejected",
        "answer_tokens": "tokens an answer",
    }  # fmt: skip
    for key, name in names.items():
        lines.append(f"{name:36s} " + ("n/a" if result[key] is None else f"{result[key]:.3f}"))
    lines += ["", f"{'greedy lenience':>15s} {'kept':>6s} {'accuracy':>9s} {'95 % interval':>17s} {'problems':>9s}"]
    for p in result["lenience_frontier"]:
        low, high = p["accuracy_interval"]
        lines.append(
            f"{p['lenience']:15g} {p['kept']:6.2f} {p['accuracy']:9.3f} {f'{low:.3f} to {high:.3f}':>17s} {p['n']:9d}"
        )
    return "\n".join(lines)
