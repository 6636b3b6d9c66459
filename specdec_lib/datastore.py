"""Datastore: token ids of many texts in one file, with their suffix array, read from disk where a look-up needs them.

Follows REST (He et al. 2024, arXiv 2311.08252) for what is looked up. Sorting by the first 32 tokens alone is ours: a
look-up compares 16 and reads 10 more.
Left out: adding to a file that is written; texts that together have more than 2^32 - 2 tokens.
"""

import hashlib
import json
import os
import struct
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from specdec_lib.presets import data_folder
from specdec_lib.smollm2 import cache_folder

MAGIC, VERSION = b"SPECDSA\n", 1
END = 2**32 - 1  # stands behind every text; no token
SORTED = 32  # tokens by which suffixes are sorted
_FIXED = struct.Struct("<8sI")  # magic, bytes of the JSON header that follows


def fingerprint(tokenizer) -> str:
    """sha256 of a tokenizer's vocabulary: two with the same one give the ids of a datastore the same meaning."""
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda entry: (entry[1], entry[0]))
    return hashlib.sha256(json.dumps(vocabulary).encode()).hexdigest()


def joined(texts: Iterable[Sequence[int]]) -> np.ndarray:
    """All ids, uint32, END behind each text. ValueError for an id that is none, and for no ids at all."""
    parts = []
    for text in texts:
        ids = np.asarray(text, dtype=np.int64)
        if ids.ndim != 1 or (len(ids) and not 0 <= ids.min() <= ids.max() < END):
            raise ValueError(f"a text is a flat list of token ids from 0 to {END - 1}")
        if len(ids):
            parts += [ids.astype(np.uint32), np.array([END], np.uint32)]
    if not parts:
        raise ValueError("the texts hold no token; nothing could ever be found")
    return np.concatenate(parts)


def suffix_array(tokens: np.ndarray, step: Callable[[], None] = lambda: None) -> np.ndarray:
    """Positions of tokens (n,), uint32, sorted by the SORTED tokens that begin there; equal ones in order of position.

    Prefix doubling: ranks by k tokens and the ranks k further on give ranks by 2 k. step is called after each of
    the log2(SORTED) rounds.
    """
    n = len(tokens)
    rank = np.unique(tokens, return_inverse=True)[1].astype(np.int64) + 1  # 0 stands for: behind the end
    order, k = np.argsort(rank, kind="stable"), 1
    while k < SORTED:
        behind = np.zeros(n, np.int64)
        behind[:-k] = rank[k:]
        key = rank * (n + 1) + behind
        order = np.argsort(key, kind="stable")
        rank = np.empty(n, np.int64)
        rank[order] = 1 + np.concatenate([[0], np.cumsum(np.diff(key[order]) != 0)])
        k *= 2
        step()
    return order.astype(np.uint32)


def store_file(pair: str) -> Path:
    """Where a pair's datastore is, or will be: one for all pocket pairs below data/, else in the user's cache."""
    if pair.startswith("pocket"):
        return data_folder() / "pocket" / "rest.store"
    return cache_folder() / "datastores" / f"{pair}.store"


def store_of(pair) -> "Datastore":
    """The datastore of a zoo.Pair. ValueError where there is none, and as Datastore says."""
    file = store_file(pair.name)
    if not file.is_file():
        raise ValueError(
            f"there is no datastore for {pair.name}; specdec datastore build --pair {pair.name} FILE makes it"
        )
    return Datastore(file, fingerprint(pair.tokenizer))


ROUNDS = SORTED.bit_length() - 1  # calls of `step`


def write(
    file: Path | str, texts: Iterable[Sequence[int]], tokenizer: str, step: Callable[[], None] = lambda: None, **about
) -> None:
    """Build a datastore and write it whole or not at all. tokenizer: its fingerprint. about: kept in the header.

    An earlier file of that name stays until the new one is whole. ValueError for what joined refuses.
    """
    tokens = joined(texts)
    body = tokens.astype("<u4").tobytes() + suffix_array(tokens, step).astype("<u4").tobytes()
    header = {
        "version": VERSION,
        "tokens": len(tokens),
        "texts": int((tokens == END).sum()),
        "largest": int(tokens[tokens != END].max()),
        "tokenizer": tokenizer,
        "sha256": hashlib.sha256(body).hexdigest(),
        "about": about,
    }
    head = json.dumps(header).encode()
    head += b" " * (-(_FIXED.size + len(head)) % 8)  # the arrays begin at a multiple of 8 bytes
    file = Path(file)
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}.", delete=False) as unfinished:
        try:
            for part in (_FIXED.pack(MAGIC, len(head)), head, body):
                unfinished.write(part)
            unfinished.flush()
            os.fsync(unfinished.fileno())
            os.chmod(unfinished.name, 0o644)
            os.replace(unfinished.name, file)
        except BaseException:
            os.unlink(unfinished.name)
            raise


class Datastore:
    """An opened file: tokens and order, (n,) uint32, stay on disk and are read through memory maps.

    ValueError for a file that is no datastore, of another version, cut short, longer than it says, or changed since it
    was written (its sha256 is computed once, on opening), and where `tokenizer`, a fingerprint, is not the one it was
    built with. FileNotFoundError if it is not there.
    """

    def __init__(self, file: Path | str, tokenizer: str | None = None):
        self.file = Path(file)
        size = self.file.stat().st_size
        with self.file.open("rb") as opened:
            fixed = opened.read(_FIXED.size)
            if len(fixed) < _FIXED.size or fixed[: len(MAGIC)] != MAGIC:
                raise ValueError(f"{file} is no datastore; build one with specdec datastore build")
            length = _FIXED.unpack(fixed)[1]
            self.header = self._header(opened.read(min(length, size)))
        start, n = _FIXED.size + length, self.header["tokens"]
        if size != start + 8 * n:
            raise ValueError(f"{file} has {size} bytes where {start + 8 * n} were written; build it again")
        body = np.memmap(self.file, np.uint8, "r", start)
        if hashlib.sha256(body).hexdigest() != self.header["sha256"]:
            raise ValueError(f"{file} is damaged: its sha256 is not the recorded one; build it again")
        if tokenizer is not None and tokenizer != self.header["tokenizer"]:
            raise ValueError(f"{file} was built with another tokenizer; build one for this pair")
        arrays = body.view("<u4")
        self.tokens, self.order = arrays[:n], arrays[n:]
        self.reads = 0  # suffixes compared so far, for the tests of cost

    def _header(self, head: bytes) -> dict:
        try:
            header = json.loads(head)
            version, n = header["version"], header["tokens"]
            whole = isinstance(n, int) and n > 0 and {"sha256", "tokenizer", "texts"} <= header.keys()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{self.file} is damaged: its header cannot be read; build it again") from error
        if version != VERSION or not whole:
            raise ValueError(f"{self.file} is a datastore of another version than {VERSION}; build it again")
        return header

    def find(self, key: Sequence[int]) -> tuple[int, int]:
        """(first, last + 1) in `order` of the suffixes that begin with this key of at most SORTED tokens."""
        key = list(key)
        return self._bound(key, False), self._bound(key, True)

    def _bound(self, key: list[int], after: bool) -> int:
        low, high = 0, len(self.order)
        while low < high:
            middle = (low + high) // 2
            self.reads += 1
            at = int(self.order[middle])
            found = self.tokens[at : at + len(key)].tolist()
            if found < key or (after and found == key):
                low = middle + 1
            else:
                high = middle
        return low

    def longest(self, text: Sequence[int], most: int, least: int) -> tuple[int, int, int] | None:
        """(tokens of the key, first, last + 1): the longest end of the text, of `least` to `most` tokens, that is here.

        Where an end is not here, no longer one is, so the length is found by halving. None if there is none.
        """
        low, high, best = least, min(most, len(text)), None
        while low <= high:
            middle = (low + high + 1) // 2 if best else low  # the shortest first: it often decides alone
            first, last = self.find(text[len(text) - middle :])
            if first < last:
                best, low = (middle, first, last), middle + 1
            else:
                high = middle - 1
        return best

    def continuations(self, first: int, last: int, skip: int, length: int, most: int) -> np.ndarray:
        """(hits, length) int64: what follows a key of `skip` tokens; END from the end of its text on.

        Rows are in the suffixes' order. Of more than `most` hits, `most` evenly spread ones.
        """
        hits = np.arange(first, last) if last - first <= most else np.linspace(first, last - 1, most).astype(np.int64)
        at = self.order[hits].astype(np.int64)[:, None] + skip + np.arange(length)
        rows = self.tokens[np.minimum(at, len(self.tokens) - 1)].astype(np.int64)
        ended = np.logical_or.accumulate((rows == END) | (at >= len(self.tokens)), axis=1)
        return np.where(ended, END, rows)
