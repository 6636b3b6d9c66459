"""Traces to look at: the pieces join to the text, rounds are described as they happened, pages are whole and safe.

Follows specdec_lib/render.py.
Left out: how a page looks (seen by eye), and the commands that print all this (test_cli.py).
"""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specdec_lib import render
from specdec_lib.pocket.tokenizer import build_tokenizer
from specdec_lib.trace import Round, Trace

POCKET = build_tokenizer()
WORDS = {token: POCKET.convert_tokens_to_ids("\u2581" + token) for token in ("first", "then", "nuts", "leo")}


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte: a character such as é takes several, none of which decodes alone."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


BYTES = byte_tokenizer()


def chain(tokens, emitted, outcomes, path, last, **more) -> Round:
    """A round whose proposal is a chain below root 4."""
    nodes = len(tokens) + 1
    laws = {key: [0.5] * nodes for key in ("target_probs", "draft_probs", "overlaps")} | more
    return Round(
        [4, *tokens], [*range(-1, nodes - 1)], path=path, outcomes=outcomes, emitted=emitted, last=last, **laws
    )


def trace_of(ids: list[int], cuts: list[int]) -> Trace:
    """A trace that emits these ids in rounds ending at the cuts, everything accepted but each round's last."""
    rounds, at = [], 0
    for end in sorted({c % (len(ids) + 1) for c in cuts} | {len(ids)}):
        part = ids[at:end]
        if part:
            accepted = list(range(1, len(part)))
            rounds.append(chain(part[:-1], part, dict.fromkeys(accepted, "exact"), accepted, "bonus"))
        at = end
    return Trace([1, 4], "lossless", True, rounds=rounds, reason="eos")


def two_rounds() -> Trace:
    """leo | then (recovered), nuts (cut by the limit)."""
    leo, then, nuts, first = WORDS["leo"], WORDS["then"], WORDS["nuts"], WORDS["first"]
    rejected = chain([leo, first, nuts], [leo, then], {1: "exact", 2: "rejected"}, [1], "recovered",
                     target_probs=[0, 0.9, 0.25, 0.0004], draft_probs=[0, 0.8, 0.75, 0.5])  # fmt: skip
    cut = chain([nuts, first], [nuts], {1: "rescued", 2: "exact"}, [1], "accepted")
    return Trace(
        [POCKET.bos_token_id, leo], "lenience:lenience=0.1", False, {"temperature": 1.0}, {},
        [rejected, cut], "length", 0.5,
    )  # fmt: skip


# ---- pieces ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["né à côté", "a🙂b", "日本語 text", "plain"])
def test_pieces_join_to_the_text_where_tokens_do_not_decode_alone(text):
    ids = BYTES(text)["input_ids"]
    pieces = render.pieces(trace_of(ids, [2, 5]), BYTES)
    assert "".join(p.text for p in pieces) == text
    assert len(pieces) == len(ids)
    assert not any("\N{REPLACEMENT CHARACTER}" in p.text for p in pieces)


def test_a_character_of_two_tokens_belongs_to_the_token_that_completes_it():
    first, second = BYTES("é")["input_ids"]
    pieces = render.pieces(trace_of([first, second], []), BYTES)
    assert [(p.text, p.kind) for p in pieces] == [("", "accepted"), ("é", "bonus")]


@given(ids=st.lists(st.integers(0, 255), min_size=1, max_size=30), cuts=st.lists(st.integers(0, 40), max_size=6))
def test_pieces_join_to_what_the_tokenizer_decodes_for_any_bytes_streamed_or_not(ids, cuts):
    trace = trace_of(ids, cuts)
    stream, streamed = render.PieceStream(BYTES), []
    for r in trace.rounds:
        streamed += stream.add([r], last=r is trace.rounds[-1])
    for pieces in (render.pieces(trace, BYTES), streamed):
        assert "".join(p.text for p in pieces) == BYTES.decode(ids)
        assert [p.kind for p in pieces] == [kind for r in trace.rounds for kind in r.kinds]
        assert [p.round for p in pieces] == [i for i, r in enumerate(trace.rounds) for _ in r.emitted]


def test_a_stream_never_gives_out_half_a_character():
    e, acute = BYTES("é")["input_ids"]
    stream = render.PieceStream(BYTES)
    assert [p.text for p in stream.add(trace_of([e], []).rounds)] == [""]
    assert [p.text for p in stream.add(trace_of([acute], []).rounds)] == ["é"]


def test_pieces_of_words_keep_the_space_that_only_the_first_word_lacks():
    ids = [WORDS["first"], WORDS["leo"], WORDS["nuts"], POCKET.eos_token_id]
    assert [p.text for p in render.pieces(trace_of(ids, [2]), POCKET)] == ["first", " leo", " nuts", ""]


def test_a_trace_without_rounds_has_no_pieces():
    assert render.pieces(Trace([1], "lossless", True), POCKET) == []


# ---- tokens and rounds -----------------------------------------------------------------------------------------


def test_a_token_is_shown_as_it_is_written_after_others():
    assert render.token_text(POCKET, WORDS["leo"], [WORDS["first"]]) == " leo"
    assert render.token_text(POCKET, POCKET.eos_token_id, [WORDS["first"]]) == "</s>"


def test_half_a_character_is_shown_by_its_token_name():
    first, second = BYTES("é")["input_ids"]
    assert render.token_text(BYTES, first) == BYTES.convert_ids_to_tokens(first)
    assert render.token_text(BYTES, second, [first]) == "é"


def test_a_round_tells_how_every_node_fared():
    view = render.round_view(two_rounds(), 0, POCKET)
    assert [(n.text, n.outcome) for n in view.nodes] == [
        (" leo", "accepted"), (" first", "rejected"), (" nuts", "not reached"),
    ]  # fmt: skip
    assert [(n.target_prob, n.draft_prob) for n in view.nodes] == [(0.9, 0.8), (0.25, 0.75), (0.0004, 0.5)]
    assert view.emitted == [(" leo", "accepted"), (" then", "recovered")]
    assert view.summary == "round 0: 3 proposed, 1 kept, 2 emitted"


def test_an_accepted_node_after_the_end_of_the_text_is_marked_as_cut():
    nodes = render.round_view(two_rounds(), 1, POCKET).nodes
    assert [(n.outcome, n.cut) for n in nodes] == [("rescued", False), ("accepted", True)]


def test_a_round_that_is_not_there_is_refused():
    with pytest.raises(IndexError, match="round 2 of a trace with 2 rounds"):
        render.round_view(two_rounds(), 2, POCKET)


def test_a_tree_is_drawn_depth_first_with_forks_only_at_siblings():
    #      0
    #     / \
    #    1   2
    #   / \   \
    #  3   4   5
    #          |
    #          6
    assert render._branches([-1, 0, 0, 1, 1, 2, 5], []) == [
        (1, "├─ "), (3, "│  ├─ "), (4, "│  └─ "), (2, "└─ "), (5, "   "), (6, "   "),
    ]  # fmt: skip


def test_a_chain_is_drawn_without_forks():
    assert render._branches([-1, 0, 1, 2], []) == [(1, ""), (2, ""), (3, "")]
    assert render._branches([-1], []) == []


def test_scouts_are_counted_and_not_drawn():
    leo, then = WORDS["leo"], WORDS["then"]
    one = chain([leo, leo, leo], [leo, then], {1: "exact"}, [1], "bonus", scouts=[2, 3])
    view = render.round_view(Trace([1, 4], "reflective", False, rounds=[one], reason="length"), 0, POCKET)
    assert [node.text.strip() for node in view.nodes] == ["leo"]
    assert view.summary == "round 0: 1 proposed, 2 scouts, 1 kept, 2 emitted"


def test_a_round_in_a_terminal_has_a_line_a_node_with_p_and_q():
    lines = render.round_text(render.round_view(two_rounds(), 0, POCKET)).plain.splitlines()
    assert lines[2].split() == ["'", "leo'", "0.900", "0.800", "accepted"]
    assert lines[4].split() == ["'", "nuts'", "4e-04", "0.500", "not", "reached"]
    assert lines[-1] == "  emitted ' leo' ' then' (recovered)"


def test_probabilities_that_are_small_stay_above_zero():
    assert [render.probability(x) for x in (0, 1, 0.0123, 0.00004)] == ["0.000", "1.000", "0.012", "4e-05"]


# ---- terminal and HTML -----------------------------------------------------------------------------------------


def test_every_kind_has_its_own_style_in_a_terminal():
    text = render.coloured([render.Piece(kind, kind, 0) for kind in render.KINDS])
    assert text.plain == "".join(render.KINDS)
    styles = [str(span.style) for span in text.spans]
    assert len(set(styles)) == len(render.KINDS)
    assert all("#" in style for style in styles)


def test_a_terminal_gets_no_control_characters():
    plain = render.coloured([render.Piece("a\x1b[31mb\nc\td", "bonus", 0)]).plain
    assert plain == "a\N{REPLACEMENT CHARACTER}[31mb\nc\td"


def test_the_figures_line_says_what_does_not_apply():
    plain = Trace([1], "autoregressive", True, rounds=[chain([], [5], {}, [], "bonus")], reason="eos")
    assert "nothing drafted" in render.figures(plain)
    assert "MAT n/a" in render.figures(Trace([1], "lossless", True))


def test_a_lossy_trace_says_so_everywhere():
    trace = two_rounds()
    assert "LOSSY" in render.lossless_line(trace) and "LOSSY" in render.page(trace, POCKET)
    trace.lossless = True
    assert "LOSSY" not in render.lossless_line(trace) + render.page(trace, POCKET)


class Balance(HTMLParser):
    """Collects the text, and fails on a tag that is closed out of turn."""

    VOID = ("meta", "br")

    def __init__(self):
        super().__init__()
        self.open, self.texts, self.seen = [], [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def parsed(html: str) -> Balance:
    found = Balance()
    found.feed(html)
    assert found.open == []
    return found


def test_a_page_is_whole_and_needs_nothing_else():
    trace = two_rounds()
    page = parsed(render.page(trace, POCKET))
    assert "http" not in render.page(trace, POCKET)
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.seen}
    sections = [a["id"] for tag, a in page.seen if tag == "section"]
    links = [a["href"] for tag, a in page.seen if tag == "a"]
    assert sections == ["round-0", "round-1"]
    assert links == ["#round-0", "#round-0", "#round-1"]  # one an emitted token


def test_text_in_a_page_or_a_notebook_is_escaped():
    ids = BYTES("<b>&")["input_ids"]
    trace = trace_of(ids, [])
    trace.prompt, trace.method = BYTES("<script>")["input_ids"], "<method>"
    for html in (render.page(trace, BYTES), render.trace_html(trace, BYTES, "<title>")):
        page = parsed(html)
        assert not {"b", "script", "method"} & {tag for tag, _ in page.seen}
        assert "<b>&" in "".join(page.texts)


def test_a_token_that_looks_like_markup_is_escaped():
    page = parsed(render.text_html([render.Piece("<b>&", "bonus", 0)]))
    assert [tag for tag, _ in page.seen] == ["span"] and page.texts == ["<b>&"]


def test_a_notebook_text_holds_the_text_the_legend_and_no_times():
    trace = two_rounds()
    text = "".join(parsed(render.trace_html(trace, POCKET, "A title")).texts)
    assert "leo then nuts" in text and "A title" in text
    assert all(kind in text for kind in render.KINDS)
    slower = two_rounds()
    slower.prefill_s, slower.rounds[0].score_s = 9.0, 9.0
    assert render.trace_html(slower, POCKET) == render.trace_html(trace, POCKET)


def test_the_legend_names_every_kind():
    assert isinstance(render.legend(), Text)
    assert render.legend().plain.split() == list(render.KINDS)
