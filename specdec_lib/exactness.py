"""The exactness meter: how far a lossy rule's text is from the target's law, measured where the rule decides.

Our own. A rule that keeps rejected tokens of a set R emits, at one position of a chain, a law at total variation
sum over R of max(q - p, 0) from p; the sum over a text's positions bounds the distance of whole texts (on average).
Left out: rules that change the test or the residual instead of rescuing, and rules whose R would take further passes.
"""

import math
from collections.abc import Iterator, Sequence

import torch
from tqdm import tqdm

from specdec_lib.batch import decode_batch
from specdec_lib.decode import Session
from specdec_lib.methods import build_method
from specdec_lib.sampling import Chance, SamplingSettings
from specdec_lib.trace import Round, Trace, kept, mean, rounds_of
from specdec_lib.tree import DraftTree, depths
from specdec_lib.verifiers.base import Scores, Verdict, Verifier
from specdec_lib.verifiers.lossless import laws_drawn_from

MOST_TIMED = 10  # prompts decoded once more, without the meter, for a speed


class Metered:
    """A rule, unchanged, with its verdicts' `added` filled in. It costs time: never time a metered run.

    Above temperature 0: the total variation added at each node's position, in [0, 1]; exact, on chains, for rules that
    have `rescue_set(scores, rows)` (verifiers/csd.py); a lossless rule adds 0. At temperature 0, for any rule: the
    probability given up at a kept node, and at index 0 by the token emitted behind them, p(t*) - p(x) at temperature 1
    of the raw logits; the verdict's `best` is then the target's own argmax t*, also where the rule reads other laws.
    ValueError for a branching tree above temperature 0, and there for a lossy rule without a rescue set.
    """

    def __init__(self, rule: Verifier):
        self.rule = rule

    def __getattr__(self, name: str):
        if name == "rule":  # not there yet while a copy is made
            raise AttributeError(name)
        return getattr(self.rule, name)

    def verify(self, tree: DraftTree, scores: Scores, chance: Chance) -> Verdict:
        verdict = self.rule.verify(tree, scores, chance)
        if len(tree) > 1 and scores.greedy:
            verdict.best = scores.best.tolist()
            verdict.added = given_up(tree, scores, verdict)
        elif len(tree) > 1:
            verdict.added = self._added_variation(tree, scores, verdict)
        return verdict

    def _added_variation(self, tree: DraftTree, scores: Scores, verdict: Verdict) -> list[float]:
        if self.rule.lossless:
            return [0.0] * len(tree)
        if not hasattr(self.rule, "rescue_set"):
            raise ValueError(f"what {self.rule.name} adds to a law is not known: it does not name what it would rescue")
        if not tree.is_chain:
            raise ValueError("the exactness meter measures chains above temperature 0; draft without siblings")
        rows = torch.tensor(tree.parents[1:], device=tree.tokens.device)
        target_probs, rescued = scores.laws[rows], self.rule.rescue_set(scores, rows)
        return [0.0, *added_variation(rescued, target_probs, laws_drawn_from(tree, target_probs)).tolist()]


def added_variation(rescued: torch.Tensor, target_probs: torch.Tensor, draft_probs: torch.Tensor) -> torch.Tensor:
    """Total variation from p of what is emitted where the rejected tokens of R are kept: sum over R of max(q - p, 0).

    rescued: R, bool; target_probs, draft_probs: p and q; all (rows, vocabulary). Returns (rows,).
    """
    return ((draft_probs - target_probs).clamp_min(0) * rescued).sum(dim=-1)


def given_up(tree: DraftTree, scores: Scores, verdict: Verdict) -> list[float]:
    """p(t*) - p(x) for each kept node, at index 0 for the token emitted behind them, 0 for the others."""
    nodes, found = verdict.path, [0.0] * len(tree)
    rows = torch.tensor([*(tree.parents[node] for node in nodes), nodes[-1] if nodes else 0], device=tree.tokens.device)
    laws = torch.softmax(scores.logits[rows].float(), dim=-1)
    emitted = torch.cat([tree.tokens[nodes], tree.tokens.new_tensor([verdict.token])])
    lost = laws.gather(1, torch.stack([scores.best[rows], emitted], dim=1))
    for node, (best, own) in zip([*nodes, 0], lost.tolist(), strict=True):
        found[node] = best - own
    return found


def exactness(traces: Sequence[Trace]) -> dict:
    """What a metered run gave away; only positions that were emitted count. None where it does not apply.

    changed: share of the emitted tokens that differ from the target's argmax; above temperature 0, and in a run that is
    not metered, that the rule kept although they were rejected. given_up: mean of p(t*) - p(x) over those, at
    temperature 0, if metered. variation: mean total variation added at an emitted position, above temperature 0, if
    metered; variation_a_text: its sum over a text, mean over texts, which bounds the total variation between whole
    texts' laws.
    """
    greedy, sampled = ([t for t in traces if (t.settings["temperature"] > 0) is warm] for warm in (False, True))
    changed = [change for r in rounds_of(greedy) for change in changes(r)]
    changed += [(kind == "rescued", None) for r in rounds_of(sampled) for kind in r.kinds]
    lost = [given for differs, given in changed if differs and given is not None]
    sums, positions = [], 0
    for trace in sampled:
        if any(r.proposed and not r.added for r in trace.rounds):
            continue  # not metered
        sums.append(sum(sum(r.added[n] for n in emitted_nodes(r)) for r in trace.rounds))
        positions += len(trace.ids)
    return {
        "changed": mean(differs for differs, _ in changed),
        "given_up": mean(lost),
        "variation": sum(sums) / positions if positions else None,
        "variation_a_text": mean(sums),
    }


def changes(r: Round) -> list[tuple[bool, float | None]]:
    """For each token that a round at temperature 0 emitted: does it differ from the target's argmax, and what was given
    up. Without the meter it is told from what was rescued, and nothing is known of what was given up.
    """
    if not r.added:
        return [(kind == "rescued", None) for kind in r.kinds]
    nodes = [*r.path, 0][: len(r.emitted)]  # index 0: the token behind the path, unless the round was cut before
    rows = [r.parents[node] if node else (r.path[-1] if r.path else 0) for node in nodes]
    return [(x != r.best[row], r.added[node]) for x, row, node in zip(r.emitted, rows, nodes, strict=True)]


def emitted_nodes(r) -> list[int]:
    """The nodes of a round that were reached at a position that was emitted."""
    depth = depths(r.parents)
    return [node for node in r.outcomes if depth[node] <= len(r.emitted)] if r.added else []


def measure(
    pair, methods: Sequence[str], prompts: Sequence[Sequence[int]], max_new_tokens: int, temperature: float = 0.0,
    seed: int = 0, progress: bool = False,
) -> list[dict]:  # fmt: skip
    """A row a method: `exactness`, with method, settings, lossless, learning, kept and tok_per_s.

    tok_per_s: emitted tokens over the rounds' seconds, without the meter, on the first few prompts. Prompt i draws from
    seed + i. ValueError for what cannot be decoded in a batch or metered.
    """
    settings, rows = SamplingSettings(temperature), []
    few = prompts[:MOST_TIMED]
    built = [build_method(name, pair) for name in methods]
    with tqdm(total=len(built) * (len(prompts) + len(few)), unit="text", disable=not progress) as bar:

        def watched(some: Sequence) -> Iterator:
            for prompt in some:
                yield prompt
                bar.update()

        for name, method in zip(methods, built, strict=True):
            bar.set_postfix_str(method.name)
            drafter, rule = method.drafter, method.verifier
            meter = Metered(rule)
            traces = decode_batch(
                pair.target, watched(prompts), max_new_tokens, drafter, meter, settings, pair.stops, seed
            )
            again = build_method(name, pair)  # the metered pass may have taught the rule or the drafter
            session = Session(pair.target, again.drafter, again.verifier, settings, pair.stops, seed=seed)
            timed = [session.start(prompt).run(max_new_tokens) for prompt in watched(few)]
            rows.append(
                {
                    "method": method.name,
                    "settings": {k: v if math.isfinite(v) else str(v) for k, v in method.knobs.items()},  # for JSON
                    "lossless": rule.lossless,
                    "learning": any(trace.learning for trace in traces),
                    **exactness(traces),
                    "kept": kept(traces),
                    "tok_per_s": sum(len(t.ids) for t in timed) / sum(r.seconds for r in rounds_of(timed)),
                }
            )
    return rows


def table(rows: Sequence[dict]) -> str:
    """The rows as plain text."""
    heads = {
        "changed": "changed", "given_up": "given up", "variation": "TV a token", "variation_a_text": "TV a text",
        "kept": "kept", "tok_per_s": "tok/s",
    }  # fmt: skip
    lines = [f"{'method':12s}" + "".join(f"{head:>12s}" for head in heads.values())]
    for row in rows:
        numbers = ("-" if row[key] is None else f"{row[key]:.4g}" for key in heads)
        lines.append(f"{row['method']:12s}" + "".join(f"{number:>12s}" for number in numbers))
    return "\n".join(lines)
