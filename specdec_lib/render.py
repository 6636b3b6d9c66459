"""A trace to look at: its text in colours for a terminal, a notebook or a page, and its rounds one by one.

Our own; LayerSkip's coloured stream is the model. Pure functions: a trace and a tokenizer in, text out.
Left out: printing (cli.py), pictures and controls (views.py, widgets.py).
"""

import html
from dataclasses import dataclass
from itertools import zip_longest

from rich.text import Text

from specdec_lib.colours import COLOURS
from specdec_lib.trace import Round, Trace, alpha, kept, mat
from specdec_lib.verifiers.base import EXACT, REJECTED, RESCUED

KINDS = ("accepted", "rescued", "recovered", "bonus")  # of an emitted token
OUTCOMES = {EXACT: "accepted", RESCUED: "rescued", REJECTED: "rejected"}  # of a proposed one
NOT_REACHED = "not reached"
STYLES = {  # for terminals; all but accepted are told apart without colour, too
    "accepted": COLOURS["accepted"],
    "rescued": f"italic {COLOURS['rescued']}",
    "recovered": f"underline {COLOURS['recovered']}",
    "bonus": f"bold {COLOURS['bonus']}",
    "rejected": f"strike {COLOURS['rejected']}",
    NOT_REACHED: "dim",
}
# Control characters that a model may write, but a terminal must not obey; newline and tab stay.
CONTROL = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(9), *range(11, 32), 127)}


@dataclass(frozen=True)
class Piece:
    """The text that one emitted id adds, how the id came (a kind), and its round (0 is the first)."""

    text: str
    kind: str
    round: int


class PieceStream:
    """Emitted ids to pieces, round by round. Joined, the pieces are tokenizer.decode(all ids), special ones skipped.

    A token's text may depend on its neighbours (a character of several tokens, a space that only the first word
    lacks), so each piece is what its id adds to the text before it. An unfinished character is held back until it
    is complete; its last token then carries it.
    """

    def __init__(self, tokenizer):
        self.tokenizer, self.ids, self.text, self.rounds = tokenizer, [], "", 0

    def add(self, rounds: list[Round], last: bool = False) -> list[Piece]:
        """The pieces of further rounds, one an emitted id. last: nothing follows, so hold nothing back."""
        ids, pieces = list(self.ids), []
        whole = self._decode([*ids, *(token for r in rounds for token in r.emitted)])
        settled = whole if last else whole.rstrip("\N{REPLACEMENT CHARACTER}")
        at = _shared(self.text, settled)
        for number, r in enumerate(rounds, start=self.rounds):
            for token, kind in zip(r.emitted, r.kinds, strict=True):
                ids.append(token)
                end = max(at, _shared(self._decode(ids), settled))
                pieces.append(Piece(settled[at:end], kind, number))
                at = end
        self.ids, self.text, self.rounds = ids, settled[:at], self.rounds + len(rounds)
        return pieces

    def _decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)


def _shared(a: str, b: str) -> int:
    """How many characters a and b have in common at their start."""
    if b.startswith(a):
        return len(a)
    return next(i for i, (x, y) in enumerate(zip_longest(a, b)) if x != y)


def pieces(trace: Trace, tokenizer) -> list[Piece]:
    """The emitted text in pieces, one an emitted id; joined, they are the text."""
    return PieceStream(tokenizer).add(trace.rounds, last=True)


def token_text(tokenizer, token: int, before: list[int] = ()) -> str:
    """What a token writes after other ids, special tokens shown; its own name where that is no whole character."""
    before = list(before)[-8:]  # enough to see a space or an unfinished character
    start = tokenizer.decode(before).rstrip("\N{REPLACEMENT CHARACTER}")
    whole = tokenizer.decode([*before, token])
    text = whole[len(start) :]
    if not text or "\N{REPLACEMENT CHARACTER}" in text or not whole.startswith(start):
        text = str(tokenizer.convert_ids_to_tokens(token))
    return text


# ---- one round -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeView:
    """A proposed token as a reader sees it. branch: how it hangs in its tree, "" throughout on a chain.

    outcome: accepted, rescued, rejected or not reached. cut: accepted, but after the end of the text.
    """

    branch: str
    text: str
    target_prob: float
    draft_prob: float
    outcome: str
    cut: bool


@dataclass(frozen=True)
class RoundView:
    """One round as a reader sees it; emitted: (text, kind) of each emitted id."""

    number: int  # 0 is the first
    nodes: list[NodeView]
    emitted: list[tuple[str, str]]
    seconds: dict[str, float]
    scouts: int = 0

    @property
    def summary(self) -> str:
        kept_nodes = sum(node.outcome in ("accepted", "rescued") and not node.cut for node in self.nodes)
        scouts = f", {self.scouts} scouts" if self.scouts else ""
        return (
            f"round {self.number}: {len(self.nodes)} proposed{scouts}, {kept_nodes} kept, {len(self.emitted)} emitted"
        )

    @property
    def timing(self) -> str:
        return ", ".join(f"{phase} {seconds * 1000:.1f} ms" for phase, seconds in self.seconds.items())


def round_view(trace: Trace, index: int, tokenizer) -> RoundView:
    """One round (0 is the first) described. IndexError if there is no such round."""
    if not 0 <= index < len(trace.rounds):
        raise IndexError(f"round {index} of a trace with {len(trace.rounds)} rounds")
    r = trace.rounds[index]
    before = [*trace.prompt, *(token for earlier in trace.rounds[:index] for token in earlier.emitted)]
    history, nodes = {0: before}, []
    for node, branch in _branches(r.parents, r.scouts):
        parent = history[r.parents[node]]
        history[node] = [*parent, r.tokens[node]]
        outcome = OUTCOMES[r.outcomes[node]] if node in r.outcomes else NOT_REACHED
        cut = outcome in ("accepted", "rescued") and node not in r.path
        text = token_text(tokenizer, r.tokens[node], parent)
        nodes.append(NodeView(branch, text, r.target_probs[node], r.draft_probs[node], outcome, cut))
    emitted = []
    for token, kind in zip(r.emitted, r.kinds, strict=True):
        emitted.append((token_text(tokenizer, token, before), kind))
        before = [*before, token]
    seconds = {"draft": r.draft_s, "score": r.score_s, "verify": r.verify_s, "other": r.other_s}
    return RoundView(index, nodes, emitted, seconds, len(r.scouts))


def _branches(parents: list[int], scouts: list[int]) -> list[tuple[int, str]]:
    """(node, how it hangs) for every node but the root and the scouts, depth first. Only siblings make a fork."""
    children: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents[1:], start=1):
        if node not in scouts:
            children[parent].append(node)
    found, stack = [], _below(children[0], "")
    while stack:
        node, lead, rest = stack.pop()
        found.append((node, lead))
        stack += _below(children[node], rest)
    return found


def _below(children: list[int], lead: str) -> list[tuple[int, str, str]]:
    """Children as (node, its own lead, the lead of what hangs below it), the last one first."""
    if len(children) == 1:
        return [(children[0], lead, lead)]
    forks = [(node, lead + "├─ ", lead + "│  ") for node in children[:-1]]
    forks += [(node, lead + "└─ ", lead + "   ") for node in children[-1:]]
    return forks[::-1]


def probability(value: float) -> str:
    """A probability in five characters or so: three digits, tiny ones as a power of ten."""
    return f"{value:.3f}" if value >= 0.001 or value == 0 else f"{value:.0e}"


def figures(trace: Trace) -> str:
    """The trace's figures in one line, without times: the same wherever the same text was decoded."""

    def shown(value: float | None) -> str:
        return "n/a" if value is None else f"{value:.2f}"

    parts = [
        f"{len(trace.ids)} tokens in {len(trace.rounds)} rounds",
        f"MAT {shown(mat([trace]))} (prefill not counted)",
        f"kept {shown(kept([trace]))}",
        *([] if alpha([trace]) is None else [f"alpha {shown(alpha([trace]))}"]),
        *([] if any(r.proposed for r in trace.rounds) else ["nothing drafted"]),
        f"ended by {trace.reason or 'nothing'}",
    ]
    return ", ".join(parts)


def summary(trace: Trace) -> str:
    """The trace's figures and times in one line."""
    seconds = sum(r.seconds for r in trace.rounds)
    return f"{figures(trace)}, {seconds:.2f} s after {trace.prefill_s:.2f} s of prefill"


def lossless_line(trace: Trace) -> str:
    """One line: whether the text follows the target's law."""
    if trace.lossless:
        return f"{trace.method}: lossless, the text follows the target's law"
    return f"{trace.method}: LOSSY, the text may follow another law than the target's"


# ---- terminal --------------------------------------------------------------------------------------------------


def coloured(parts: list[Piece]) -> Text:
    """Pieces as a rich text for a terminal."""
    text = Text()
    for piece in parts:
        text.append(piece.text.translate(CONTROL), STYLES[piece.kind])
    return text


def legend() -> Text:
    """The kinds in their colours."""
    return Text(" ").join(Text(kind, STYLES[kind]) for kind in KINDS)


def round_text(view: RoundView) -> Text:
    """A round for a terminal: a line a proposed token, then what was emitted."""
    labels = [node.branch + shown_token(node.text) for node in view.nodes]
    width = max([len("proposed"), *map(len, labels)])
    text = Text()
    text.append(view.summary, "bold")
    text.append(f"  ({view.timing})\n", "dim")
    if view.nodes:
        text.append(f"  {'proposed':{width}}  {'p':>6}  {'q':>6}  outcome\n", "dim")
    for node, label in zip(view.nodes, labels, strict=True):
        p, q = probability(node.target_prob), probability(node.draft_prob)
        text.append("  " + node.branch, "dim")
        text.append(f"{label[len(node.branch) :]:{width - len(node.branch)}}", STYLES[node.outcome])
        text.append(f"  {p:>6}  {q:>6}  {node.outcome}{', cut' if node.cut else ''}\n")
    text.append("  emitted")
    for piece, kind in view.emitted:
        text.append(" ")
        text.append(shown_token(piece), STYLES[kind])
    last = view.emitted[-1][1] if view.emitted else ""
    text.append(f" ({last})\n" if last in ("recovered", "bonus") else "\n")
    return text


def shown_token(text: str) -> str:
    """A token's text in quotes, so that spaces and line ends are seen."""
    return repr(text)


# ---- HTML ------------------------------------------------------------------------------------------------------


def _mark(kind: str) -> str:
    """Inline style of a kind: dark text on a tint, a line below. It needs no style sheet, so notebooks keep it."""
    colour = COLOURS[kind]
    return f"background:{colour}33;border-bottom:2px solid {colour};border-radius:2px"


def text_html(parts: list[Piece]) -> str:
    """Pieces as HTML; a pointer on a token shows its round and kind."""
    return "".join(
        f'<span style="{_mark(p.kind)}" title="round {p.round}, {p.kind}">{html.escape(p.text)}</span>'
        for p in parts
        if p.text
    )


def legend_html() -> str:
    """The kinds in their colours."""
    return " ".join(f'<span style="{_mark(kind)}">{kind}</span>' for kind in KINDS)


def trace_html(trace: Trace, tokenizer, title: str = "") -> str:
    """A trace's text for a notebook, the same at every run: title, text in colours, legend, figures."""
    heading = f"<strong>{html.escape(title)}</strong><br>" if title else ""
    return (
        f'<div style="line-height:1.9;max-width:60em">{heading}'
        f'<div style="white-space:pre-wrap">{text_html(pieces(trace, tokenizer))}</div>'
        f'<div style="font-size:85%">{legend_html()}<br>{html.escape(figures(trace))}</div></div>'
    )


def round_html(view: RoundView) -> str:
    """One round as a card of a page: a row a proposed token with p and q as bars, then what was emitted."""
    rows = []
    for node in view.nodes:
        cells = "".join(
            f'<td class="law"><div><span class="bar {law}" style="width:{100 * value:.0f}%"></span>'
            f"{probability(value)}</div></td>"
            for law, value in (("p", node.target_prob), ("q", node.draft_prob))
        )
        token = f"<i>{node.branch}</i><code>{html.escape(node.text)}</code>"
        outcome = node.outcome + (", cut" if node.cut else "")
        rows.append(
            f'<tr class="{node.outcome.replace(" ", "-")}"><td class="token">{token}</td>{cells}<td>{outcome}</td></tr>'
        )
    head = "<tr><th>proposed</th><th>p</th><th>q</th><th>outcome</th></tr>"
    body = f"<table>{head}{''.join(rows)}</table>" if rows else "<p>nothing proposed</p>"
    emitted = " ".join(
        f'<code style="{_mark(kind)}" title="{kind}">{html.escape(text)}</code>' for text, kind in view.emitted
    )
    return (
        f'<section id="round-{view.number}"><h3>{html.escape(view.summary)}</h3>{body}'
        f"<p>emitted {emitted}</p><footer>{html.escape(view.timing)}</footer></section>"
    )


PAGE_STYLE = f"""
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 84rem; padding: 0 1rem; color: #222;
  background: #fff; }}
h1 {{ font-size: 1.5rem; }}
h3 {{ font-size: 1rem; margin: 0 0 .5rem; }}
.text {{ white-space: pre-wrap; line-height: 2; font-size: 1.1rem; }}
.prompt {{ color: #555; white-space: pre-wrap; border-left: 3px solid #ccc; padding-left: .8rem; }}
.lossy {{ color: {COLOURS["recovered"]}; font-weight: 600; }}
.rounds {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(24.5rem, 1fr)); gap: 1rem;
  align-items: start; }}
section {{ border: 1px solid #ddd; border-radius: 6px; padding: .8rem 1rem; overflow-x: auto; }}
section:target {{ border-color: #222; }}
table {{ border-collapse: collapse; width: 100%; font-size: .88rem; }}
th {{ text-align: left; font-weight: 500; color: #666; }}
td {{ padding: .1rem 0; white-space: nowrap; }}
td + td, th + th {{ padding-left: .6rem; }}
code {{ display: inline-block; white-space: pre; padding: 0 .15em; }}
.token i {{ font-family: monospace; white-space: pre; color: #999; font-style: normal; }}
.law div {{ position: relative; width: 4.5rem; padding-left: .2rem; }}
.bar {{ position: absolute; left: 0; top: .15rem; bottom: .15rem; border-radius: 2px; opacity: .35; }}
.bar.p {{ background: {COLOURS["target"]}; }}
.bar.q {{ background: {COLOURS["draft"]}; }}
tr.accepted code {{ background: {COLOURS["accepted"]}33; }}
tr.rescued code {{ background: {COLOURS["rescued"]}33; }}
tr.rejected code {{ background: {COLOURS["rejected"]}33; text-decoration: line-through; }}
tr.not-reached {{ color: #999; }}
tr.not-reached .bar {{ opacity: .12; }}
footer {{ white-space: nowrap; letter-spacing: -.02em; }}
footer, dl, .legend {{ font-size: .8rem; color: #555; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }}
dt {{ font-weight: 600; }}
dd {{ margin: 0; }}
""".strip()


def page(trace: Trace, tokenizer) -> str:
    """A trace as one HTML page that needs nothing else: prompt, coloured text, figures, and a card for each round."""
    origin = trace.provenance
    known = {
        "settings": ", ".join(f"{k} {v}" for k, v in trace.settings.items() if v not in (None, [])),
        "made": origin.get("date", ""),
        "by": (origin.get("git_sha") or "") + (" and changes" if origin.get("dirty") else ""),
        "on": f"{origin['device']}, {origin['threads']} threads, {origin['dtype']}" if "device" in origin else "",
    }
    details = "".join(f"<dt>{k}</dt><dd>{html.escape(str(v))}</dd>" for k, v in known.items() if v)
    text = "".join(
        f'<a href="#round-{p.round}" style="color:inherit;text-decoration:none">{text_html([p])}</a>'
        for p in pieces(trace, tokenizer)
        if p.text
    )
    cards = "".join(round_html(round_view(trace, i, tokenizer)) for i in range(len(trace.rounds)))
    lossy = "" if trace.lossless else ' class="lossy"'
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Trace: {html.escape(trace.method)}</title>
<style>
{PAGE_STYLE}
</style></head>
<body>
<h1>A text, round by round</h1>
<p{lossy}>{html.escape(lossless_line(trace))}</p>
<p class="prompt">{html.escape(tokenizer.decode(trace.prompt))}</p>
<p class="text">{text}</p>
<p class="legend">{legend_html()}</p>
<p>{html.escape(summary(trace))}</p>
<p class="legend">p is the target's probability of a proposed token, q the draft's, both after the
settings: at temperature 0 they are 0 or 1.</p>
<dl>{details}</dl>
<div class="rounds">{cards}</div>
</body>
</html>
"""
