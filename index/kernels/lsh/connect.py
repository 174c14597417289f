"""Groups from one table: pairs that connect the rows of each bucket."""

from typing import NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import Float64s, Int32s, Int64s, UInt64s
from gcws_search.index.kernels.compiling import inner, kernel
from gcws_search.index.kernels.gmm.exact_rerank import exact_gmm
from gcws_search.index.kernels.gmm.rows import Rows
from gcws_search.index.kernels.ordering.keys import RowPairs

_ROUNDED = 1.00001
"""Norms are of float32: those of two rows that score the least may be so much further apart."""


class Bucket(NamedTuple):
    """Memory for one bucket in `connect_buckets`; as many places as rows."""

    labels: Int32s  # rows with equal labels were connected before
    parents: Int32s  # by label: a smaller one connected with it, or itself
    leaders: Int64s  # places of rows that represent others, in a wide bucket
    near: Int64s  # places of the rows that a row is compared with
    rows: Int64s  # and these rows
    scores: Float64s


@inner
def _first(parents: Int32s, label: int) -> int:
    """Return the smallest label connected with one, and halve the path to it."""
    while parents[label] != label:
        parents[label] = parents[parents[label]]
        label = int(parents[label])
    return label


@inner
def _connect(
    key_rows: Int32s,
    rows: Rows,
    threshold: float,
    wide: int,
    room: Bucket,
    out: RowPairs,
    found: int,
) -> int:
    """Append the pairs that connect the rows of a bucket; return the new number of pairs."""
    norms, labels, parents, leaders = rows.norms, room.labels, room.parents, room.leaders
    n = key_rows.shape[0]
    count = 0
    for i in range(n):
        a = int(key_rows[i])
        own = _first(parents, int(labels[i]))
        compared = count if n > wide else n - i - 1
        size = 0
        for place in range(compared):
            j = leaders[place] if n > wide else i + 1 + place
            b = np.int64(key_rows[j])
            # GMM is at most the smaller norm divided by the greater.
            near = min(norms[a], norms[b]) * _ROUNDED >= threshold * max(norms[a], norms[b])
            if near and _first(parents, int(labels[j])) != own:
                room.near[size] = j
                room.rows[size] = b
                size += 1
        exact_gmm(rows, a, rows, room.rows[:size], room.scores)
        for place in range(size):
            j = room.near[place]
            other = _first(parents, int(labels[j]))
            if room.scores[place] >= threshold and other != own:
                out.a[found] = np.int32(a)
                out.b[found] = key_rows[j]
                found += 1
                parents[max(own, other)] = np.int32(min(own, other))
                own = min(own, other)
        if n > wide and count < wide:
            is_led = False
            for place in range(count):
                is_led |= _first(parents, int(labels[leaders[place]])) == own
            if not is_led:
                leaders[count] = i
                count += 1
    return found


@kernel
def connect_buckets(
    keys: UInt64s,
    key_rows: Int32s,
    rows: Rows,
    roots: Int32s,
    threshold: float,
    wide: int,
    out: RowPairs,
) -> tuple[int, int, int]:
    """List pairs that connect rows with equal keys that are not connected already.

    Each pair has a float64 GMM of at least ``threshold``. A bucket of n rows gives fewer than n
    pairs. If it has more than ``wide`` rows, each row is compared with at most ``wide`` others that
    represent the rest.

    keys, key_rows: (n,), keys ascending.
    roots: rows with equal numbers are connected.
    out: room for n.
    Returns pairs written, the number of wide buckets, and where the longest of these begins.
    """
    rows, out = Rows(*rows), RowPairs(*out)
    n = keys.shape[0]
    found = wides = longest = longest_at = 0
    place = 0
    capacity = 0
    room = _room(1)
    while place < n:
        end = place + 1
        while end < n and keys[end] == keys[place]:
            end += 1
        size = end - place
        if size > capacity:
            capacity = 2 * size
            room = _room(capacity)
        is_connected = True
        for i in range(size):
            room.parents[i] = roots[key_rows[place + i]]
            is_connected &= room.parents[i] == room.parents[0]
        if not is_connected:
            _label(room, size)
            if size > wide:
                wides += 1
                if size > longest:
                    longest, longest_at = size, place
            found = _connect(key_rows[place:end], rows, threshold, wide, room, out, found)
        place = end
    return found, wides, longest_at


@inner
def _label(room: Bucket, size: int) -> None:
    """Label the roots in ``room.parents`` by number; each label is then its own parent."""
    label = np.int32(0)
    order = np.argsort(room.parents[:size])
    for place in range(size):
        is_new = place > 0 and room.parents[order[place]] != room.parents[order[place - 1]]
        label += np.int32(is_new)
        room.labels[order[place]] = label
    for i in range(size):
        room.parents[i] = i


@inner
def _room(size: int) -> Bucket:
    """Return memory for a bucket of ``size`` rows."""
    return Bucket(
        np.empty(size, np.int32),
        np.empty(size, np.int32),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.float64),
    )


@kernel
def unite(roots: Int32s, a: Int32s, b: Int32s) -> None:
    """Connect rows by pairs: ``roots`` then has the first connected row of each row."""
    for i in range(a.shape[0]):
        x, y = a[i], b[i]
        while roots[x] != x:
            roots[x] = roots[roots[x]]
            x = roots[x]
        while roots[y] != y:
            roots[y] = roots[roots[y]]
            y = roots[y]
        roots[max(x, y)] = min(x, y)
    for row in range(roots.shape[0]):
        roots[row] = roots[roots[row]]
