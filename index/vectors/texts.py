r"""Convert texts to rows: each n-gram of tokens gets a coordinate, by a fixed hash.

Rows equal those of scikit-learn's ``HashingVectorizer(n_features=2**31 - 1, alternate_sign=False,
norm=None)``; words match its ``token_pattern=r"(?u)\b\w+\b"``. No dictionary grows. Two
n-grams share a coordinate with probability 2^-31, and their weights are then added.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Int64s, UInt8s
from gcws_search.index.contracts.batches import RawBatch, concatenate
from gcws_search.index.contracts.errors import InvalidVector
from gcws_search.index.contracts.parameters import TextParams
from gcws_search.index.kernels.hashing.tokens import hash_tokens

_WORDS: Final = re.compile(r"\w+")
_BLANKS: Final = re.compile(r"\s\s+")
_SPACE, _CONTINUES = ord(" "), 0x80
_LEAD_BITS: Final = 0xC0
"""Bits of a byte of UTF-8 by which it begins a character, or continues one."""
_BITS: Final = 31
"""Of a coordinate."""
_RUN_CHARACTERS: Final = 1 << 20
"""Of texts that become rows together."""


def _ngrams_of(
    texts: Sequence[str], params: TextParams
) -> tuple[UInt8s, Int64s, Int64s, Int64s, Int64s]:
    """Return UTF-8, and for each n-gram its start, end, number of its text, and coordinate."""
    if params.lowercase:
        texts = [text.lower() for text in texts]
    if params.tokens == "words":
        lists = [_WORDS.findall(text) for text in texts]
        if params.stop_words:
            left_out = {*params.stop_words}
            lists = [[word for word in words if word not in left_out] for words in lists]
        counts = [*map(len, lists)]
        data = _encode([" ".join(words) for words in lists if words], " ")
        ends = np.append(np.flatnonzero(data == _SPACE), len(data))[: sum(counts)]
        starts = np.append(0, ends[:-1] + 1)[: len(ends)]
    else:
        texts = [_BLANKS.sub(" ", text) for text in texts]
        counts = [*map(len, texts)]
        data = _encode(texts, "")
        starts = np.flatnonzero((data & _LEAD_BITS) != _CONTINUES)
        ends = np.append(starts[1:], len(data))[: len(starts)]
    rows = np.repeat(np.arange(len(counts)), counts)
    low, high = params.ngrams
    found: list[list[Int64s]] = []
    for length in range(low, high + 1):
        count = max(0, len(rows) - length + 1)
        first = np.flatnonzero(rows[:count] == rows[len(rows) - count :])
        found.append([starts[first], ends[first + length - 1], rows[first]])
    starts, ends, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
    coordinates = np.empty(len(starts), np.int64)
    hash_tokens(data, starts, ends, coordinates)
    return data, starts, ends, rows, coordinates


def _encode(texts: Sequence[str], between: str) -> UInt8s:
    """Return the bytes of texts with a separator between them."""
    return np.frombuffer(bytearray(between.join(texts), "utf-8"), np.uint8)


def rows_of_texts(texts: Sequence[str], params: TextParams) -> RawBatch:
    """Return the rows of texts; InvalidVector at ``(row,)`` for a text without an n-gram."""
    parts = [RawBatch("sparse")]
    for first, some in _runs(texts):
        try:
            parts.append(_rows(some, params))
        except InvalidVector as error:
            raise error.at(first + int(error.loc[0]), skip=1) from None
    return concatenate(parts)


def _runs(texts: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield runs of texts with few characters, each with the number of its first text."""
    first = size = 0
    for row, text in enumerate(texts):
        size += len(text)
        if size >= _RUN_CHARACTERS:
            yield first, texts[first : row + 1]
            first, size = row + 1, 0
    if first < len(texts):
        yield first, texts[first:]


def _rows(texts: Sequence[str], params: TextParams) -> RawBatch:
    *_, rows, coordinates = _ngrams_of(texts, params)
    keys = (rows << _BITS) | coordinates
    keys.sort()
    is_first = np.append(True, keys[1:] != keys[:-1])[: len(keys)]
    firsts = np.flatnonzero(is_first)
    keys = keys[firsts]
    counts = np.bincount(keys >> _BITS, minlength=len(texts))
    for row in np.flatnonzero(counts == 0)[:1].tolist():
        raise InvalidVector(expected=_least(params), got=f"{texts[row]!r:.60}", loc=(row,))
    values = np.ones(len(keys), np.float32)
    if params.weights != "set":
        values = np.diff(np.append(firsts, len(is_first))).astype(np.float32)
    indices = (keys & ((1 << _BITS) - 1)).astype(np.int32)
    indptr = np.append(0, np.cumsum(counts)).astype(np.int64)
    return RawBatch("sparse", indptr=indptr, indices=indices, values=values)


def _least(params: TextParams) -> str:
    """Return the minimum that a text must contain, in words."""
    count, word = params.ngrams[0], params.tokens.removesuffix("s")
    tokens = f"a {word}" if count == 1 else f"{count} {word}s"
    return f"a text of at least {tokens}" + (" that is no stop word" if params.stop_words else "")


def tokens_by_coordinate(texts: Sequence[str], params: TextParams) -> dict[int, str]:
    """Return the n-gram of each coordinate of some texts; the first if several share it."""
    bytes_, starts, ends, _, coordinates = _ngrams_of(texts, params)
    data, places = bytes_.tobytes(), zip(starts.tolist(), ends.tolist(), strict=True)
    words = [data[start:stop].decode() for start, stop in places]
    return dict(reversed([*zip(coordinates.tolist(), words, strict=True)]))
