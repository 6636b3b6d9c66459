"""Spec-Bench's figures beside ours: the same answers counted in two ways, and what lies between.

Follows Spec-Bench (Xia et al. 2024, arXiv 2401.07851): what its speed script computes.
Left out: quality of the answers; its spread over three runs.
"""

from collections.abc import Callable, Sequence

from specdec_lib.specbench import GROUPS, Answer, group_of
from specdec_lib.trace import mean

OVERALL = "overall"


def figures(answers: Sequence[Answer], base: Sequence[Answer], count: Callable[[str], int]) -> dict[str, dict]:
    """For each group that has questions, and overall: their figures and ours, and what lies between.

    theirs: mat, the mean of accept_lengths pooled over all rounds; tok_per_s, the mean over questions of tokens by
    seconds; base_tok_per_s, the same, but with the baseline's tokens counted anew in its text, where EOS no longer
    stands; speedup, the ratio of the two. count(text): tokens of a text, special ones left out.
    ours: both counted alike, EOS included, and a ratio of totals, so that long answers count for more.
    counted_alike: their speedup with nothing changed but the baseline's count. unseen: new tokens a turn that no round
    accounts for: 1 where a prefill emits a token and is no round, 0 here and where the prefill is one.
    ValueError where the two have answered different questions.
    """
    if sorted(a.question_id for a in answers) != sorted(b.question_id for b in base):
        raise ValueError("the two files have answers to different questions; figures compare the same ones")
    groups = {OVERALL: (list(answers), list(base))}
    for group in GROUPS:
        both = tuple([a for a in some if group_of(a.category) == group] for some in (answers, base))
        if both[0]:
            groups[group] = both
    return {group: _figures(mine, plain, count) for group, (mine, plain) in groups.items()}


def _figures(mine: list[Answer], base: list[Answer], count: Callable[[str], int]) -> dict:
    recounted = [sum(map(count, answer.turns)) for answer in base]
    rounds = [length for answer in mine for length in answer.accept_lengths]
    theirs = mean(_rate(a) for a in mine)
    their_base = mean(tokens / sum(a.wall_time) for tokens, a in zip(recounted, base, strict=True))
    tokens, seconds = _totals(mine)
    base_tokens, base_seconds = _totals(base)
    return {
        "theirs": {
            "mat": mean(rounds),
            "tok_per_s": theirs,
            "base_tok_per_s": their_base,
            "speedup": theirs / their_base if their_base else None,
        },
        "ours": {
            "mat": mean(rounds),
            "tok_per_s": tokens / seconds,
            "base_tok_per_s": base_tokens / base_seconds,
            "speedup": tokens / seconds * base_seconds / base_tokens if base_tokens else None,
        },
        "counted_alike": theirs / mean(map(_rate, base)) if base_tokens else None,
        "base_tokens_lost": 1 - sum(recounted) / base_tokens if base_tokens else None,
        "unseen": mean((sum(a.new_tokens) - sum(a.accept_lengths)) / len(a.turns) for a in mine) if rounds else None,
    }


def _rate(answer: Answer) -> float:
    return sum(answer.new_tokens) / sum(answer.wall_time)


def _totals(answers: list[Answer]) -> tuple[int, float]:
    return sum(sum(a.new_tokens) for a in answers), sum(sum(a.wall_time) for a in answers)


def table(found: dict[str, dict[str, dict]]) -> str:
    """figures() of several methods, by their names, as plain text."""
    width = max((len(f"{method}, {group}") for method, groups in found.items() for group in groups), default=0)
    lines = [f"{'':{width}} {'MAT':>5} {'speed-up':>8} {'Spec-Bench':>10} {'counted alike':>13} {'lost':>6}"]
    for method, groups in found.items():
        for group, f in groups.items():
            numbers = (f["ours"]["mat"], f["ours"]["speedup"], f["theirs"]["speedup"], f["counted_alike"])
            cells = [f"{'-' if n is None else f'{n:.2f}':>{w}}" for n, w in zip(numbers, (5, 8, 10, 13), strict=True)]
            lost = "-" if f["base_tokens_lost"] is None else f"{100 * f['base_tokens_lost']:.1f} %"
            lines.append(f"{f'{method}, {group}':{width}} {' '.join(cells)} {lost:>6}")
    return "\n".join([*lines, "", LEGEND])


LEGEND = """\
speed-up: ratio of totals, all tokens counted alike. Spec-Bench: its own ratio, of mean tokens a second by question,
the baseline's tokens counted anew in its text, where EOS is lost; counted alike: that ratio without the new count;
lost: the share of the baseline's tokens that it misses."""
