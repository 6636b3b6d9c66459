"""REST and its datastore: against counting by hand, ids above 65,535, files that are refused, exact texts and laws.
Follows REST (arXiv 2311.08252), specdec_lib/datastore.py, drafters/rest.py and case D10.
Left out: the command (test_cli_datastore.py) and speed.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from laws import TOLERANCE, law_error, plain_law, round_error, whole_text
from retrieval import context_of, kept_beside_plain, plain_texts, pocket_texts

from specdec_lib import datastore
from specdec_lib.datastore import END, Datastore, joined, suffix_array, write
from specdec_lib.decode import decode
from specdec_lib.drafters import rest
from specdec_lib.drafters.rest import Rest, heaviest
from specdec_lib.model import TableModel

many_texts = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=30), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("stores")


def stored(folder, texts, name="t.store"):
    write(folder / name, texts, "abc")
    return Datastore(folder / name, "abc")


@given(many_texts)
def test_the_suffix_array_is_the_sorted_suffixes(texts):
    tokens = joined(texts)
    by_hand = sorted(range(len(tokens)), key=lambda i: (tokens[i : i + datastore.SORTED].tolist(), i))
    assert suffix_array(tokens).tolist() == by_hand


def test_long_repetitions_are_sorted_by_32_tokens():
    tokens = joined([[1] * 100, [1, 2] * 50, [4] * 30 + [3], [4] * 30 + [2]])  # the last two: by token 31 alone
    by_hand = sorted(range(len(tokens)), key=lambda i: (tokens[i : i + 32].tolist(), i))
    assert suffix_array(tokens).tolist() == by_hand


def places(texts, key):
    return [(text, i + len(key)) for text in texts for i in range(len(text)) if text[i : i + len(key)] == key]


def by_hand(texts, tail, nodes, length=10):
    """The commonest prefixes behind the longest end of `tail` that stands in a text."""
    for n in range(min(16, len(tail)), 1, -1):
        found = places(texts, tail[-n:])
        if found:
            break
    else:
        return Counter()
    goes_on = [text[at : at + length] for text, at in found]
    return Counter(tuple(row[:d]) for row in goes_on for d in range(1, len(row) + 1))


@hypothesis_settings(max_examples=60)
@given(texts=many_texts, tail=st.lists(st.integers(0, 3), min_size=1, max_size=20), nodes=st.integers(1, 12))
def test_the_tree_holds_the_heaviest_prefixes_behind_the_longest_match(folder, texts, tail, nodes):
    counts = by_hand(texts, tail, nodes)
    tree = Rest(stored(folder, texts), nodes).propose(context_of(tail))
    found = [tuple(tree.tokens[tree.path_to(n)].tolist()) for n in range(1, len(tree))]
    assert len(found) == len(set(found)) == min(nodes, len(counts))
    heavy = sorted(counts.values(), reverse=True)[:nodes]
    assert sorted((counts[prefix] for prefix in found), reverse=True) == heavy


def test_a_small_store_by_hand(folder):
    texts = [[1, 2, 3, 4], [1, 2, 3, 5], [9, 1, 2, 7], [2, 3, 8]]
    tree = Rest(stored(folder, texts)).propose(context_of([0, 1, 2]))  # [1 2]: 3 twice (then 4, 5), 7 once
    assert tree.tokens.tolist() == [2, 3, 7, 4, 5] and tree.parents == [-1, 0, 0, 1, 1]
    tree = Rest(stored(folder, texts), nodes=2).propose(context_of([0, 1, 2]))
    assert tree.tokens.tolist() == [2, 3, 7]
    assert len(Rest(stored(folder, texts)).propose(context_of([5, 9]))) == 1  # [5 9] is nowhere; one token is too few
    assert Rest(stored(folder, texts)).propose(context_of([0, 2, 3])).tokens.tolist() == [3, 4, 5, 8]


def test_the_settings_are_the_papers():
    assert (rest.LONGEST, rest.SHORTEST, rest.PLACES, rest.LENGTH) == (16, 2, 5000, 10)


def test_sixteen_tokens_are_matched_not_fifteen_and_never_seventeen(folder):
    key = list(range(10, 26))
    store = stored(folder, [[0, *key, 1], [*key[1:], 2], [*key[1:], 2]], "sixteen.store")
    assert Rest(store).propose(context_of([9, *key])).tokens.tolist() == [25, 1]
    assert Rest(store).propose(context_of([9, *key[1:]])).tokens.tolist() == [25, 2, 1]


def test_a_continuation_ends_with_its_text(folder):
    store = stored(folder, [[1, 2, 3], [1, 2, 4, 5]], "ends.store")
    rows = store.continuations(*store.find([1, 2]), 2, 3, 10)
    assert rows.tolist() == [[3, END, END], [4, 5, END]]


def test_of_many_places_evenly_spread_ones_count(folder):
    texts = [[1, 2, token % 7 + 3] for token in range(7000)]
    store = stored(folder, texts)
    _, first, last = store.longest([1, 2], 16, 2)
    assert last - first == 7000
    rows = store.continuations(first, last, 2, 10, 5000)
    counts = Counter(rows[:, 0].tolist())
    assert rows.shape == (5000, 10) and set(counts) == set(range(3, 10))
    assert max(counts.values()) - min(counts.values()) < 5


def test_proposals_end_at_the_text_the_room_eos_and_the_vocabulary(folder):
    store = stored(folder, [[1, 2, 3, 4, 5], [6, 6]])
    for arguments, context, expected in (
        ({}, {}, [2, 3, 4, 5]),
        ({}, {"room": 1}, [2, 3]),
        ({}, {"room": 0}, [2]),
        ({"eos_token_ids": [4]}, {}, [2, 3]),
        ({}, {"vocab_size": 5}, [2, 3, 4]),
    ):
        assert Rest(store, **arguments).propose(context_of([1, 2], **context)).tokens.tolist() == expected


def test_ids_above_65535_survive(folder):
    """D10."""
    text = [65535, 65536, 151935, 65535, 65536, END - 1]
    store = stored(folder, [text])
    assert store.tokens.tolist() == [*text, END] and store.header["largest"] == END - 1
    tree = Rest(store).propose(context_of([65535, 65536], vocab_size=200_000))
    assert sorted(tree.tokens.tolist()) == sorted([65536, 151935, 65535, 65536])  # END - 1 is beyond the vocabulary
    assert [p[0] for p in [tree.tokens[1:2].tolist()]] == [151935]


@pytest.mark.parametrize("texts", [[], [[]], [[-1]], [[END]], [[[1, 2]]]])
def test_ids_that_are_none_are_refused(folder, texts):
    with pytest.raises(ValueError):
        write(folder / "bad.store", texts, "abc")
    assert not (folder / "bad.store").exists()


def test_reads_grow_with_the_logarithm(folder):
    generator = np.random.default_rng(0)
    spent = {}
    for n in (1_000, 64_000):
        store = stored(folder, [generator.integers(0, 50, n).tolist()], f"{n}.store")
        store.longest(generator.integers(0, 50, 16).tolist(), 16, 2)
        spent[n] = store.reads
    assert all(0 < reads <= 5 * 2 * n.bit_length() for n, reads in spent.items())  # 15 lengths halved, two bounds each


def test_a_damaged_or_foreign_file_is_refused(folder, tmp_path):
    store = stored(folder, [[1, 2, 3, 4] * 20])
    whole = store.file.read_bytes()
    file = tmp_path / "x.store"
    for change, said in (
        (whole[:-1], "bytes where"),
        (whole[: len(whole) // 2], "bytes where"),
        (whole + b"\0", "bytes where"),
        (whole[:40], "header"),
        (whole[:7], "no datastore"),
        (b"", "no datastore"),
        (b"PK" + whole[2:], "no datastore"),
        (whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:], "damaged"),
        (whole.replace(b'"version": 1', b'"version": 2'), "version"),
        (whole.replace(b'"version"', b'"aversio"'), "damaged"),
        (whole.replace(b'{"version": 1', b'[ "version", 1'), "damaged"),
        (whole[:8] + b"\xff\xff\xff\xff" + whole[12:], "header"),
    ):
        file.write_bytes(change)
        with pytest.raises(ValueError, match=said):
            Datastore(file)
    with pytest.raises(ValueError, match="another tokenizer"):
        Datastore(store.file, "def")
    with pytest.raises(FileNotFoundError):
        Datastore(tmp_path / "none.store")


def test_an_interrupted_build_leaves_the_old_file(folder, tmp_path):
    file = tmp_path / "x.store"
    write(file, [[1, 2, 3]], "abc")
    before = file.read_bytes()

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(file, [[4, 5, 6]], "abc", stop)
    assert file.read_bytes() == before and list(tmp_path.iterdir()) == [file]


def test_heaviest_prefixes_end_before_a_stop():
    rows = np.array([[1, 2, 9], [1, 2, 9], [1, 3, 3], [9, 1, 1]])
    assert heaviest(rows, 10, np.array([9]), 100) == [(1,), (1, 2), (1, 3), (1, 3, 3)]


def test_prefixes_that_differ_earlier_are_not_one():
    rows = np.array([[1, 5], [2, 5], [2, 5]])
    assert heaviest(rows, 10, np.array([9]), 100) == [(2,), (2, 5), (1,), (1, 5)]


def test_greedy_text_is_plain_decodings(folder):
    store = stored(folder, plain_texts())
    assert kept_beside_plain(lambda: Rest(store)) > 100


def test_greedy_text_of_the_pocket_pair_is_plain_decodings(pair, folder):
    plain = pocket_texts(pair, None)[0]
    other = [token for token in plain.ids if token % 5]  # another text, with stretches of this one
    drafted = pocket_texts(pair, Rest(stored(folder, [other, plain.ids[10:30]])))[1]
    assert drafted.ids == plain.ids and len(drafted.rounds) < len(plain.rounds)


def test_the_law_above_0_is_the_targets(folder):
    target = TableModel.random(3, 5)
    drafter = Rest(stored(folder, [[0, 1, 2, 0], [0, 1, 2, 1], [0, 1, 0], [1, 2, 2, 1, 0, 0]]))
    assert round_error(target, drafter, n=3, prompt=(0, 1), reaches=(1, 3)) < TOLERANCE
    emitted = whole_text(target, drafter, n=3, prompt=(0, 1))
    assert law_error(emitted, plain_law(target, prompt_length=2), (0, 1), 3) < TOLERANCE


def test_the_trace_can_name_the_store(folder):
    store = stored(folder, [[1, 2, 3]])
    drafter = Rest(store)
    decode(TableModel.random(5, 1), [1, 2], 3, drafter)
    assert drafter.memory == f"4 tokens of a datastore, sha256 {store.header['sha256'][:12]}"
