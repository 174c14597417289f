"""Duplicates among rows that memory does not hold: rows in files, one table of keys after another.

Rows with an equal key in one of L bands of r samples are candidates ([GMM]); they are
scored exactly, and rows that pairs of enough connect are a group. What is done is on the disk, so
that an interrupted search goes on from there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import AnyArray, Float64s, Int32s, Int64s, UInt32s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import scan
from gcws_search.index.hashing.gcws import Gcws
from gcws_search.index.kernels.gmm.rows import rows_of
from gcws_search.index.kernels.lsh.bucket_join import exact_pairs
from gcws_search.index.kernels.lsh.connect import connect_buckets, unite
from gcws_search.index.kernels.ordering.keys import RowPairs, sort_keys
from gcws_search.index.lsh.band_keys import BandKeys
from gcws_search.index.lsh.pair_bands import band_plan
from gcws_search.index.threads import Workers

Progress = Callable[[float], None]
"""Called with the share that is done."""

CHUNK_ROWS: Final = 1 << 15
_WIDE: Final = 256
"""Rows of a bucket from which they are compared with leaders alone."""
_CHECKED: Final = 256
"""Rows whose partners are looked for among all, to measure recall."""
_KEY_BYTES: Final = 40
"""Of a table being sorted and looked through, a row."""
_PLACE_BITS: Final = 20
"""Of the place that a slot hashes to."""
_MULTIPLIER: Final = np.uint32(0x9E3779B1)
_ROUNDING: Final = 1e-5
"""Relative: more than norms in float32 are off."""
_SPREAD: Final = 1.96  # standard errors of an interval that holds in 95 of 100 cases


class RowFiles:
    """Columns of a folder that rows are appended to, in files of their own; one writer.

    counts: of each column how many values are committed; what is beyond is cut off.
    """

    def __init__(self, folder: Path, types: Mapping[str, str], counts: Mapping[str, int]) -> None:
        self._folder = folder
        self._types = {name: np.dtype(type_) for name, type_ in types.items()}
        self.counts = {name: counts.get(name, 0) for name in types}
        folder.mkdir(parents=True, exist_ok=True)
        self._files = {name: (folder / name).open("ab") for name in types}
        for name, file in self._files.items():
            file.truncate(self.counts[name] * self._types[name].itemsize)

    def append(self, name: str, values: AnyArray) -> None:
        """Append values to a column."""
        flat = np.ascontiguousarray(values, self._types[name]).reshape(-1)
        self._files[name].write(flat.data)
        self.counts[name] += len(flat)

    def commit(self) -> None:
        """Put on the disk what has been appended; the caller then notes `counts`."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()

    def column(self, name: str) -> AnyArray:
        """Return a column as an array of mapped memory."""
        if not self.counts[name]:
            return np.empty(0, self._types[name])
        shape = (self.counts[name],)
        found: AnyArray = np.memmap(self._folder / name, self._types[name], "r+", 0, shape)
        return np.asarray(found)


def row_types(*, is_dense: bool) -> dict[str, str]:
    """Return the columns of rows of one form and their types."""
    if is_dense:
        return {"dense": "f4", "norms": "f4"}
    return {"indptr": "i8", "slots": "u4", "values": "f4", "norms": "f4"}


def append_rows(files: RowFiles, rows: VectorBatch) -> None:
    """Append rows, in the columns of `row_types`."""
    if rows.form == "dense":
        files.append("dense", rows.dense)
    else:
        before = files.counts["slots"]
        first = 1 if files.counts["indptr"] else 0
        files.append("indptr", rows.indptr[first:] - rows.indptr[0] + before)
        files.append("slots", rows.slots)
        files.append("values", rows.values)
    files.append("norms", rows.norms)


def mapped_rows(files: RowFiles) -> VectorBatch:
    """Return all rows; the system reads from the disk what is looked at."""
    norms = files.column("norms")
    if "dense" in files.counts:
        dense = files.column("dense")
        return VectorBatch("dense", dense=dense.reshape(len(norms), -1), norms=norms)
    indptr, slots, values = (files.column(name) for name in ("indptr", "slots", "values"))
    return VectorBatch("sparse", indptr=indptr, slots=slots, values=values, norms=norms)


# Groups


class Wide(NamedTuple):
    """Buckets whose rows were compared with leaders alone: how many, and the longest."""

    buckets: int
    rows: int
    row: int | None  # one of the rows of the longest


@dataclass(slots=True)
class Grouping:
    """The search for groups among rows, a table at a time.

    folder: for keys, and for what is found; what is there already is not done again.
    memory_bytes: for tables.
    """

    rows: VectorBatch
    folder: Path
    bands: int
    width: int
    workers: Workers
    memory_bytes: int

    def hash(self, progress: Progress) -> None:
        """Write the keys of all rows, a chunk a file."""
        plan = band_plan(self.bands, self.width)
        dense_width = self.rows.width if self.rows.form == "dense" else None
        hash_ = Gcws(seed=0, samples=plan.samples, dense_width=dense_width)
        keys = BandKeys(plan, hash_, self.workers)
        for first in range(0, len(self.rows), CHUNK_ROWS):
            path = self._keys_path(first)
            if not path.exists():
                chunk = self.rows[first : first + CHUNK_ROWS]
                found = keys.keys(chunk, self.bands)
                _write(path, np.ascontiguousarray(found.T))
            progress(min(1.0, (first + CHUNK_ROWS) / len(self.rows)))

    def connect(self, min_score: float, progress: Progress) -> tuple[Int32s, Wide]:
        """Return of each row the first one of its group, and what `Wide` says."""
        n = len(self.rows)
        parts = 1
        while n * _KEY_BYTES * self.workers.threads > parts * self.memory_bytes:
            parts *= 2
        done, roots, wide = self._load()
        tables = self.bands * parts
        for step in range(done, tables, self.workers.threads):
            found = self._look_at(
                range(step, min(step + self.workers.threads, tables)), parts, roots, min_score
            )
            for pairs, count, _ in found:
                unite(roots, pairs.a[:count], pairs.b[:count])
            seen = [wide, *(each for _, _, each in found)]
            buckets = sum(each.buckets for each in seen)
            wide = max(seen, key=lambda each: each.rows)._replace(buckets=buckets)
            done = step + len(found)
            self._save(done, roots, wide)
            progress(done / tables)
        return roots, wide

    def _look_at(
        self, tables: range, parts: int, roots: Int32s, min_score: float
    ) -> list[tuple[RowPairs, int, Wide]]:
        """Look through some tables at once."""
        found: list[tuple[RowPairs, int, Wide]] = []

        def look(first: int, last: int) -> None:
            found.extend(self._look(each, parts, roots, min_score) for each in tables[first:last])

        self.workers.split(len(tables), look)
        return found

    def _look(
        self, table: int, parts: int, roots: Int32s, min_score: float
    ) -> tuple[RowPairs, int, Wide]:
        """Return the pairs that connect rows of a part of one table's keys."""
        band, part = divmod(table, parts)
        keys, rows = self._part(band, part, parts)
        n = len(keys)
        sort_keys(keys, rows, np.empty_like(keys), np.empty_like(rows))
        out = RowPairs(np.empty(n, np.int32), np.empty(n, np.int32))
        held = rows_of(self.rows)
        count, buckets, place = connect_buckets(
            keys, rows, held, roots, float(min_score), _WIDE, out
        )
        if not buckets:
            return out, count, Wide(0, 0, None)
        size = int(np.searchsorted(keys, keys[place], "right")) - place
        return out, count, Wide(buckets, size, int(rows[place]))

    def _part(self, band: int, part: int, parts: int) -> tuple[UInt64s, Int32s]:
        """Return those keys of a band that begin with the bits of a part, and their rows."""
        shift = np.uint64(64 - (parts.bit_length() - 1))
        all_keys, all_rows = [np.empty(0, np.uint64)], [np.empty(0, np.int32)]
        for first in range(0, len(self.rows), CHUNK_ROWS):
            count = min(CHUNK_ROWS, len(self.rows) - first)
            offset = 8 * band * count
            keys = np.fromfile(self._keys_path(first), np.uint64, count, offset=offset)
            rows = np.arange(first, first + count, dtype=np.int32)
            if parts > 1:
                chosen = np.flatnonzero(keys >> shift == part)
                keys, rows = keys[chosen], rows[chosen]
            all_keys.append(keys)
            all_rows.append(rows)
        return np.concatenate(all_keys), np.concatenate(all_rows)

    def _keys_path(self, first: int) -> Path:
        return self.folder / f"keys-{first // CHUNK_ROWS:06}"

    def _load(self) -> tuple[int, Int32s, Wide]:
        """Return how many tables have been looked through, and what they gave."""
        for path in self.folder.glob("roots-*[0-9]"):
            done, buckets, rows, row = map(int, path.name.split("-")[1:])
            roots = np.fromfile(path, np.int32)
            return done, roots, Wide(buckets, rows, row if buckets else None)
        return 0, np.arange(len(self.rows), dtype=np.int32), Wide(0, 0, None)

    def _save(self, done: int, roots: Int32s, wide: Wide) -> None:
        found = self.folder / f"roots-{done}-{wide.buckets}-{wide.rows}-{wide.row or 0}"
        _write(found, roots)
        for path in self.folder.glob("roots-*"):
            if path != found:
                path.unlink()


def _write(path: Path, array: AnyArray) -> None:
    """Write the bytes of an array to a file that appears when it is whole.

    numpy's own format begins with an expression, and Python 3.11 parses none in two threads.
    """
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        array.tofile(file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


# What was found


class Recall(NamedTuple):
    """How many pairs of some rows there are, how many of them are in one group, and the share.

    low, high: of the share, in 95 of 100 cases.
    """

    pairs: int
    found: int
    low: float
    high: float


def measure_recall(
    rows: VectorBatch, roots: Int32s, min_score: float, workers: Workers, progress: Progress
) -> Recall:
    """Look for all partners of a sample of the rows by scans; return how many share their group.

    Rows that are equal to a sampled one and those of its group count as any others.
    """
    n = len(rows)
    rng = np.random.default_rng(1)
    sample = np.sort(rng.choice(n, min(n, _CHECKED), replace=False)).astype(np.int64)
    view = RowView(rows[sample], np.ones(len(sample), np.uint8), len(sample))
    inverted = InvertedIndex.of(view.vectors, workers)
    params = SearchParams(limit=len(sample), recall=1.0, min_score=min_score)
    pairs, found = np.zeros(len(sample), np.int64), np.zeros(len(sample), np.int64)
    near = _near_rows(view.vectors, min_score)
    for first in range(0, n, CHUNK_ROWS // 8):
        chunk = rows[first : first + CHUNK_ROWS // 8]
        some = near(chunk)
        chunk, numbers = chunk[some], first + some
        skip = np.searchsorted(sample, numbers)
        skip[sample[np.minimum(skip, len(sample) - 1)] != numbers] = -1
        skip[skip == len(sample)] = -1
        hits = scan(
            view, chunk, params, skip=skip, inverted=inverted, workers=workers, with_ties=False
        )
        there = np.arange(hits.rows.shape[1]) < hits.sizes[:, None]
        of, among = np.repeat(numbers, hits.sizes), hits.rows[there]
        np.add.at(pairs, among, 1)
        np.add.at(found, among[roots[of] == roots[sample[among]]], 1)
        progress(min(1.0, (first + CHUNK_ROWS // 8) / n))
    with_partners = int(np.count_nonzero(pairs))
    total, good = int(pairs.sum()), int(found.sum())
    low, high = _wilson(good / total, with_partners) if total else (0.0, 1.0)
    return Recall(total, good, low, high)


def _near_rows(sample: VectorBatch, min_score: float) -> Callable[[VectorBatch], Int64s]:
    """Return what tells which rows of a chunk may score enough with one of the sample.

    A sparse row u shares at least ``min_score`` · |u| with such a row, all of it in slots that the
    sample has. Slots are known by the place that they hash to.
    """
    if sample.form == "dense":
        return lambda chunk: np.arange(len(chunk))
    held = np.zeros(1 << _PLACE_BITS, np.bool_)
    held[_places(sample.slots)] = True

    def near(chunk: VectorBatch) -> Int64s:
        masses = held[_places(chunk.slots)] * chunk.values
        shared = np.add.reduceat(masses, chunk.indptr[:-1], dtype=np.float64)
        return np.flatnonzero(shared >= (1 - _ROUNDING) * min_score * chunk.norms)

    return near


def _places(slots: UInt32s) -> UInt32s:
    places: UInt32s = (slots * _MULTIPLIER) >> np.uint32(32 - _PLACE_BITS)
    return places


def _wilson(share: float, n: int) -> tuple[float, float]:
    """Return Wilson's interval of a share found among n that are independent."""
    square = _SPREAD**2
    middle = (share + square / (2 * n)) / (1 + square / n)
    spread = _SPREAD / (1 + square / n) * np.sqrt(share * (1 - share) / n + square / (4 * n * n))
    return max(0.0, float(middle - spread)), min(1.0, float(middle + spread))


class Groups(NamedTuple):
    """Rows of groups of two or more, group after group, in each the one that is kept first.

    rows: (m,) int64.
    starts: (g + 1,) int64, where each group begins, and where the last one ends.
    """

    rows: Int64s
    starts: Int64s


def groups_of(roots: Int32s, norms: AnyArray, keep: str) -> Groups:
    """Return the groups of rows in the order of their first ones.

    keep: "first", or "longest" for the row of the greatest L1 norm.
    """
    sizes = np.bincount(roots, minlength=len(roots))
    rows = np.flatnonzero(sizes[roots] > 1)
    longest = np.zeros(len(rows)) if keep == "first" else -norms[rows]
    rows = rows[np.lexsort((rows, longest, roots[rows]))]
    owners = roots[rows]
    starts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))[: len(owners)]
    return Groups(rows, np.append(starts, len(rows)))


def scores_to_first(rows: VectorBatch, groups: Groups, workers: Workers) -> Iterator[Float64s]:
    """Yield the scores of the rows of groups to the first of each, a run of rows at a time."""
    firsts = np.repeat(groups.rows[groups.starts[:-1]], np.diff(groups.starts))
    for start in range(0, len(groups.rows), CHUNK_ROWS):
        run = slice(start, start + CHUNK_ROWS)
        yield _scores(rows, firsts[run], groups.rows[run], workers)


def _scores(rows: VectorBatch, a: Int64s, b: Int64s, workers: Workers) -> Float64s:
    """Return the scores of pairs of rows."""
    held, scores = rows_of(rows), np.empty(len(a))

    def score(first: int, last: int) -> None:
        exact_pairs(held, a[first:last], held, b[first:last], scores[first:last])

    workers.split(len(a), score, min_size=256)
    return scores
