"""What block verification gains over token by token: both rules on the very same proposals.

Follows Sun et al. 2025 (arXiv 2403.10444), which compares mean kept tokens; pairing the rules is ours.
Left out: speed (specdec bench, methods lossless and block).
"""

from collections.abc import Iterable, Sequence

from specdec_lib.decode import Session
from specdec_lib.drafters import ModelDrafter
from specdec_lib.sampling import SamplingSettings
from specdec_lib.stats import ratio_interval
from specdec_lib.verifiers import LosslessRejection, block, lossless
from specdec_lib.zoo import Pair


class _BothRules(LosslessRejection):
    """Judges token by token, and notes how many drafts each rule keeps of the proposal on average over its chance."""

    def verify(self, tree, scores, chance):
        if len(tree) > 1:
            rules = (lossless.accept_and_recover, block.accept_and_recover)
            self.expected.append([float(rule(tree, scores.laws)[0][1:].cumprod(0).sum()) for rule in rules])
        return super().verify(tree, scores, chance)


def block_gain(
    pair: Pair,
    prompts: Iterable[Sequence[int]],
    gamma: int,
    max_new_tokens: int,
    temperature: float = 1.0,
    seed: int = 0,
) -> dict:
    """Decode token by token, and compare what each rule keeps of every proposal; stops do not cut here.

    rounds; kept_lossless and kept_block: mean tokens a round; gain: kept_block over kept_lossless - 1, with its 95 %
    interval, a bootstrap over prompts. No chance of a verdict is in these figures, only that of the drafts: on a single
    proposal the block may keep fewer, on average over proposals never. ValueError at temperature 0, where the rules
    are one.
    """
    settings = SamplingSettings(temperature)
    if settings.adjuster().greedy:
        raise ValueError("at temperature 0 block verification is exact match, as token by token; give a temperature")
    rule = _BothRules()
    session = Session(pair.target, ModelDrafter(pair.draft, gamma), rule, settings, pair.stops, seed=seed)
    rounds, tokens, blocks = [], [], []  # of each text
    for prompt in prompts:
        rule.expected = []
        session.start(prompt).run(max_new_tokens)
        rounds.append(len(rule.expected))
        tokens.append(sum(kept for kept, _ in rule.expected))
        blocks.append(sum(kept for _, kept in rule.expected))
    if not sum(tokens):
        raise ValueError("no draft has any chance to be kept; give more prompts")
    interval = ratio_interval(blocks, tokens, seed)
    return {
        "rounds": sum(rounds),
        "kept_lossless": sum(tokens) / sum(rounds),
        "kept_block": sum(blocks) / sum(rounds),
        "gain": sum(blocks) / sum(tokens) - 1,
        "gain_interval": tuple(bound - 1 for bound in interval),
    }
