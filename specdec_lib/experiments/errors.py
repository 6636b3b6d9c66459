"""Where the judge errs: right tokens that it rejects and wrong ones that it keeps, by kind of token, and on texts.

Our own; Judge Decoding (arXiv 2501.19309) shows single examples. Whole texts are judged in one pass each, so a token is
judged after the text's own words; what stands behind the first wrong token is left out of all counts.
Left out: what an error does to the rest of an answer (tradeoff.py has the accuracy).
"""

import html
import random
from collections import Counter
from collections.abc import Sequence

from specdec_lib import plots
from specdec_lib.colours import COLOURS
from specdec_lib.experiments.base import Lab, between, percent, table
from specdec_lib.judge.corrupt import corrupted
from specdec_lib.judge.data import any_wording
from specdec_lib.knob import accepts
from specdec_lib.methods import build_method
from specdec_lib.pocket.checker import RIGHT, WRONG, mark
from specdec_lib.pocket.tokenizer import world_ids
from specdec_lib.pocket.world import EOS, write_answer
from specdec_lib.scored import ScoredText, draft_answers, from_row, score_answer, to_row
from specdec_lib.stats import share_interval

WHAT = "where the judge errs: right tokens rejected, wrong ones kept, by kind of token"
PROBLEMS = 300
DIGIT, WORD, MARK, END = "digit", "word", "mark", "end"
SHOWN = 12  # texts that the result holds, half of them corrupted, half the draft's
STANDARD, RESCUED, FALSE_REJECT, FALSE_ACCEPT, CAUGHT = (
    "right, kept by the standard rule", "right, kept by the judge", "right, but rejected", "wrong, but kept",
    "wrong, rejected",
)  # fmt: skip
LOOK = {
    STANDARD: f"background:{COLOURS['accepted']}22",
    RESCUED: f"background:{COLOURS['rescued']}55;border-bottom:2px solid {COLOURS['rescued']}",
    FALSE_REJECT: f"border:2px solid {COLOURS['draft']}",
    FALSE_ACCEPT: "background:#000;color:#fff;font-weight:bold",
    CAUGHT: f"background:{COLOURS['rejected']}55;text-decoration:line-through",
}


def kind_of(token: str) -> str:
    """The kind of a world's token."""
    if token == EOS:
        return END
    letters = token.strip()
    return DIGIT if letters.isdigit() else WORD if letters.isalpha() else MARK


def fates(text: ScoredText, delta: float) -> list[str | None]:
    """What becomes of each token, up to the first wrong one; None behind it, and for what puts a slip right."""
    found: list[str | None] = []
    kept, matched = accepts(text, "judge", delta), [rank == 0 for rank in text.rank]
    for label, keeps, matches in zip(text.labels, kept, matched, strict=True):
        if WRONG in text.labels[: len(found)] or label not in (RIGHT, WRONG):
            found.append(None)
        elif label == WRONG:
            found.append(FALSE_ACCEPT if keeps else CAUGHT)
        else:
            found.append(STANDARD if matches else RESCUED if keeps else FALSE_REJECT)
    return found


def run(lab: Lab) -> dict:
    """rows: one a writer and kind of token: right, false_rejects of the judge and standard_rejects of the standard rule
    among them, wrong and false_accepts, each share with its 95 % Wilson interval.

    Beside them: delta and texts (scored.to_row, and the writer): some of the corrupted ones, those with false accepts
    first, then some of the draft's, those with most errors of the judge first.
    Writers: draft, its own greedy answers; corrupted, right answers in any wording that end with a wrong token.
    """
    judge = build_method("judge", lab.pair)
    delta, head = judge.knobs["delta"], judge.verifier.head
    tasks = lab.problems()
    texts = {"draft": [], "corrupted": []}
    for found in draft_answers(lab.pair, lab.watch("draft", tasks)):
        labels = found.marking.labels
        texts["draft"].append(score_answer(lab.pair, found.problem, found.trace.ids, labels, head.logits))
    for number, problem in enumerate(lab.watch("corrupted", tasks)):
        rng = random.Random(f"errors-{lab.seed}-{number}")
        words = corrupted(problem, write_answer(problem, rng, any_wording(rng)), rng)
        labels = mark(problem, words).labels
        texts["corrupted"].append(
            score_answer(lab.pair, problem, world_ids(lab.pair.tokenizer, words), labels, head.logits)
        )
    rows = []
    for writer, mine in texts.items():
        counts = Counter(
            (kind_of(token), fate)
            for text in mine
            for token, fate in zip(text.tokens, fates(text, delta), strict=True)
            if fate is not None
        )
        rows += [{"writer": writer, "kind": kind, **_row(counts, kind)} for kind in (DIGIT, WORD, MARK, END)]
    first = {"corrupted": (FALSE_ACCEPT,), "draft": (FALSE_ACCEPT, FALSE_REJECT)}
    shown = [
        {"writer": writer, **to_row(text)}
        for writer, wanted in first.items()
        for text in erring(texts[writer], delta, *wanted)[: SHOWN // 2]
    ]
    return {"rows": rows, "delta": delta, "texts": shown}


def erring(texts: Sequence[ScoredText], delta: float, *wanted: str) -> list[ScoredText]:
    """The texts, those with most tokens of these fates first."""
    return sorted(texts, key=lambda text: -sum(fate in wanted for fate in fates(text, delta)))


def _row(counts: Counter, kind: str) -> dict:
    kept, rescued, rejects, accepts_, caught = (
        counts[kind, fate] for fate in (STANDARD, RESCUED, FALSE_REJECT, FALSE_ACCEPT, CAUGHT)
    )
    right, wrong = kept + rescued + rejects, accepts_ + caught
    return {
        "right": right,
        "standard_rejects": rescued + rejects,
        "false_rejects": rejects,
        "false_reject_interval": share_interval(rejects, right),
        "wrong": wrong,
        "false_accepts": accepts_,
        "false_accept_interval": share_interval(accepts_, wrong),
    }


def text(result: dict) -> str:
    heads = (
        "writer, kind of token", "right", "standard rejects %", "judge rejects %", "95 % interval", "wrong",
        "judge keeps %", "95 % interval",
    )  # fmt: skip
    lines = []
    for row in result["rows"]:
        right, wrong = row["right"], row["wrong"]
        lines.append(
            (
                f"{row['writer']}, {row['kind']}", right, percent(_share(row["standard_rejects"], right)),
                percent(_share(row["false_rejects"], right)), between(row["false_reject_interval"], 100, 1), wrong,
                percent(_share(row["false_accepts"], wrong)), between(row["false_accept_interval"], 100, 1),
            )
        )  # fmt: skip
    return table(heads, lines)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def figure(result: dict):
    """Shares of false rejects and false accepts by kind of token, the standard rule's false rejects beside them."""
    rows = [row for row in result["rows"] if row["writer"] == "draft"]
    digit = rows[0]
    title = (
        f"Of the draft's wrong digits the judge keeps {percent(_share(digit['false_accepts'], digit['wrong']))} %; "
        f"of its right words\nit rejects {percent(_share(rows[1]['false_rejects'], rows[1]['right']))} %, "
        f"the standard rule {percent(_share(rows[1]['standard_rejects'], rows[1]['right']))} %"
    )
    fig, ax = plots.figure(title, "kind of token (how many right, how many wrong)", "share, %", (9.5, 4.8))
    for shift, (label, part, whole, interval, colour) in zip(
        (-0.27, 0, 0.27),
        (
            ("right, rejected by the standard rule", "standard_rejects", "right", None, COLOURS["greedy"]),
            ("right, rejected by the judge", "false_rejects", "right", "false_reject_interval", COLOURS["judge"]),
            ("wrong, kept by the judge", "false_accepts", "wrong", "false_accept_interval", "#000000"),
        ),
        strict=True,
    ):
        for x, row in enumerate(rows):
            share = _share(row[part], row[whole])
            if share is None:
                continue
            low, high = row[interval] if interval else share_interval(row[part], row[whole])
            ax.bar(x + shift, 100 * share, width=0.26, color=colour, label=label if x == 0 else None)
            off = [[100 * max(share - low, 0)], [100 * max(high - share, 0)]]
            ax.errorbar(x + shift, 100 * share, off, color="#777777", capsize=3)
            ax.annotate(f"{100 * share:.1f}", (x + shift, 100 * high), (0, 2), textcoords="offset points", ha="center")
    ax.set_xticks(range(len(rows)), [f"{row['kind']}\n({row['right']:,}, {row['wrong']:,})" for row in rows])
    ax.margins(y=0.12)
    ax.legend(fontsize=9, title="bars: 95 % Wilson intervals", title_fontsize=9)
    return fig


# ---- the texts in colour ---------------------------------------------------------------------------------------


def text_html(text: ScoredText, delta: float) -> str:
    """A text in colours, one span a token with its score in the pointer's note; what is not counted is grey."""
    spans = []
    for token, fate, logit in zip(text.tokens, fates(text, delta), text.judge, strict=True):
        look, note = (LOOK[fate], fate) if fate else ("color:#999", "not counted")
        spans.append(f'<span style="{look}" title="{note}, judge logit {logit:.1f}">{html.escape(token)}</span>')
    question = f'<div style="color:#555">{html.escape(text.question)}</div>'
    return f'{question}<div style="white-space:pre-wrap;line-height:1.9">{"".join(spans)}</div>'


def legend_html() -> str:
    return " ".join(f'<span style="{look}">{name}</span>' for name, look in LOOK.items())


def texts_html(texts: Sequence[ScoredText], delta: float) -> str:
    """Texts in colours as one HTML piece, for a page or a notebook."""
    parts = "<hr>".join(text_html(text, delta) for text in texts)
    return f'<div style="max-width:60em"><p style="font-size:85%">{legend_html()}</p>{parts}</div>'


def page(result: dict) -> str:
    """The result's texts as an HTML page."""
    texts = texts_html([from_row(row) for row in result["texts"]], result["delta"])
    return f'<!doctype html><meta charset="utf-8"><title>Where the judge errs</title>{texts}\n'
