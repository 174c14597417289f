"""Duplicates among rows that memory does not hold: rows in files, one table of keys after another.

Rows with an equal key in one of L bands of r samples are candidates ([GMM]); they are
scored exactly, and rows that pairs of enough connect are a group. What is done is on the disk, so
that an interrupted search goes on from there. Parts are done at once by a pool: of threads, or of
other machines that see the same folder.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

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

T = TypeVar("T")

Progress = Callable[[float], None]
"""Called with the share that is done."""

CHUNK_ROWS: Final = 1 << 15
_WIDE: Final = 256
"""Rows of a bucket from which they are compared with leaders alone."""
_CHECKED: Final = 256
"""Rows whose partners are looked for among all, to measure recall."""
_KEY_BYTES: Final = 40
"""Of a table being sorted and looked through, a row."""
_SCANNED: Final = 4 * CHUNK_ROWS
"""Rows that one call looks through for partners."""
_PLACE_BITS: Final = 20
"""Of the place that a slot hashes to."""
_MULTIPLIER: Final = np.uint32(0x9E3779B1)
_ROUNDING: Final = 1e-5
"""Relative: more than norms in float32 are off."""
_SPREAD: Final = 1.96  # standard errors of an interval that holds in 95 of 100 cases


class TaskPool(NamedTuple):
    """Where functions run: so many at once."""

    submit: Callable[..., Future[Any]]  # with a function and its arguments
    size: int
    end: Callable[[], object] = lambda: None  # what runs, where it takes long; no more is submitted


def results(
    pool: TaskPool,
    function: Callable[..., T],
    calls: Iterable[tuple[Any, ...]],
    *,
    in_order: bool = True,
    waiting: Callable[[], None] = lambda: None,
) -> Generator[T]:
    """Yield what a function returns for each of its arguments; some calls are begun ahead.

    in_order: of the calls; else as they end.
    waiting: called each second for which the next is waited for.
    """
    begun: list[Future[T]] = []

    def following() -> T:
        among = begun[: 1 if in_order else None]
        while not (ended := wait(among, 1, FIRST_COMPLETED).done):
            waiting()
        place = next(place for place, each in enumerate(begun) if each in ended)
        return begun.pop(place).result()

    try:
        for arguments in calls:
            if len(begun) >= 2 * pool.size - 1:  # of one, one after the other
                yield following()
            begun.append(pool.submit(function, *arguments))
        while begun:
            yield following()
    finally:
        for each in begun:
            each.cancel()
        if begun:
            pool.end()
        wait(begun)


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
        """Close the files, all of them where one cannot be written to its end."""
        with ExitStack() as stack:
            for file in self._files.values():
                stack.callback(file.close)

    def column(self, name: str) -> AnyArray:
        """Return a column as an array of mapped memory."""
        return _mapped(self._folder / name, self._types[name], self.counts[name])

    def rows(self) -> StoredRows:
        """Return where the committed rows lie."""
        return StoredRows(self._folder, dict(self.counts))


def _mapped(path: Path, type_: str | np.dtype[Any], count: int) -> AnyArray:
    if not count:
        return np.empty(0, type_)
    found: AnyArray = np.memmap(path, type_, "r+", 0, (count,))
    return np.asarray(found)


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows in the files of a folder; any process that sees it opens them."""

    folder: Path
    counts: Mapping[str, int]

    def __len__(self) -> int:
        return self.counts["norms"]

    def open(self) -> VectorBatch:
        """Return all rows; the system reads from the disk what is looked at."""
        is_dense = "dense" in self.counts
        columns: Any = {
            name: _mapped(self.folder / name, type_, self.counts[name])
            for name, type_ in row_types(is_dense=is_dense).items()
        }
        if is_dense:
            columns["dense"] = columns["dense"].reshape(len(self), -1)
        return VectorBatch("dense" if is_dense else "sparse", **columns)


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


# Groups


class Wide(NamedTuple):
    """Buckets whose rows were compared with leaders alone: how many, and the longest."""

    buckets: int
    rows: int
    row: int | None  # one of the rows of the longest


@dataclass(frozen=True, slots=True)
class Grouping:
    """The search for groups among rows, by keys of so many bands, one band after the other.

    folder: for keys, and for what is found; what is there already is not done again.
    """

    rows: StoredRows
    folder: Path
    bands: int
    width: int

    def hash(self, pool: TaskPool, progress: Progress) -> None:
        """Write the keys of all rows, a chunk a file."""
        chunks = range(0, len(self.rows), CHUNK_ROWS)
        missing = [(first,) for first in chunks if not self._keys_path(first).exists()]
        done = len(chunks) - len(missing)
        for step, _ in enumerate(results(pool, self._hash, missing), 1):
            progress((done + step) / len(chunks))

    def _hash(self, first: int) -> None:
        plan = band_plan(self.bands, self.width)
        chunk = self.rows.open()[first : first + CHUNK_ROWS]
        dense_width = chunk.width if chunk.form == "dense" else None
        hash_ = Gcws(seed=0, samples=plan.samples, dense_width=dense_width)
        found = BandKeys(plan, hash_, Workers(1)).keys(chunk, self.bands)
        _write(self._keys_path(first), np.ascontiguousarray(found.T))

    def connect(
        self, pool: TaskPool, min_score: float, memory_bytes: int, progress: Progress
    ) -> tuple[Int32s, Wide]:
        """Return of each row the first one of its group, and what `Wide` says.

        Parts of a band hold other keys each, so that neither their number nor what is done at once
        decides what is found.

        memory_bytes: for all parts at once.
        """
        parts = 1
        while parts < pool.size or len(self.rows) * _KEY_BYTES * pool.size > parts * memory_bytes:
            parts *= 2
        done, path, wide = self._load()
        roots = np.fromfile(path, np.int32)
        for band in range(done, self.bands):
            calls = ((path, band, part, parts, min_score) for part in range(parts))
            for step, (pairs, seen) in enumerate(results(pool, self._look, calls)):
                unite(roots, pairs.a, pairs.b)
                longest = max(wide, seen, key=lambda each: each.rows)
                wide = longest._replace(buckets=wide.buckets + seen.buckets)
                if step == parts - 1:
                    path = self._save(band + 1, roots, wide)
                progress((band + (step + 1) / parts) / self.bands)
        return roots, wide

    def _look(
        self, path: Path, band: int, part: int, parts: int, min_score: float
    ) -> tuple[RowPairs, Wide]:
        """Return the pairs that connect rows of a part of one band's keys."""
        roots = np.memmap(path, np.int32, "c")
        keys, rows = self._part(band, part, parts)
        n = len(keys)
        sort_keys(keys, rows, np.empty_like(keys), np.empty_like(rows))
        out = RowPairs(np.empty(n, np.int32), np.empty(n, np.int32))
        held = rows_of(self.rows.open())
        count, buckets, place = connect_buckets(
            keys, rows, held, np.asarray(roots), float(min_score), _WIDE, out
        )
        found = RowPairs(out.a[:count].copy(), out.b[:count].copy())
        if not buckets:
            return found, Wide(0, 0, None)
        size = int(np.searchsorted(keys, keys[place], "right")) - place
        return found, Wide(buckets, size, int(rows[place]))

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

    def _load(self) -> tuple[int, Path, Wide]:
        """Return how many bands have been looked through, where the roots are, and `Wide`."""
        for name in os.listdir(self.folder):  # `Path.glob` finds nothing where that fails
            if name.startswith("roots-") and not name.endswith(".part"):
                done, buckets, rows, row = map(int, name.split("-")[1:])
                return done, self.folder / name, Wide(buckets, rows, row if buckets else None)
        none = Wide(0, 0, None)
        return 0, self._save(0, np.arange(len(self.rows), dtype=np.int32), none), none

    def _save(self, done: int, roots: Int32s, wide: Wide) -> Path:
        found = self.folder / f"roots-{done}-{wide.buckets}-{wide.rows}-{wide.row or 0}"
        _write(found, roots)
        for path in self.folder.glob("roots-*"):
            if path != found:
                path.unlink()
        return found


def _write(path: Path, array: AnyArray) -> None:
    """Write the bytes of an array to a file that appears when it is whole.

    numpy's own format begins with an expression, and Python 3.11 parses none in two threads.
    """
    part = path.with_suffix(f".{secrets.token_hex(4)}.part")  # others may write the same
    try:
        with part.open("wb") as file:
            file.write(array.data)  # `tofile` does not say why it fails
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


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
    rows: StoredRows, roots: Int32s, min_score: float, pool: TaskPool, progress: Progress
) -> Recall:
    """Look for all partners of a sample of the rows by scans; return how many share their group.

    Rows that are equal to a sampled one and those of its group count as any others.
    """
    n = len(rows)
    rng = np.random.default_rng(1)
    sample = np.sort(rng.choice(n, min(n, _CHECKED), replace=False)).astype(np.int64)
    pairs, found = np.zeros(len(sample), np.int64), np.zeros(len(sample), np.int64)
    calls = ((rows, sample, min_score, first) for first in range(0, n, _SCANNED))
    for step, (of, among) in enumerate(results(pool, _partners, calls), 1):
        np.add.at(pairs, among, 1)
        np.add.at(found, among[roots[of] == roots[sample[among]]], 1)
        progress(min(1.0, step * _SCANNED / n))
    with_partners = int(np.count_nonzero(pairs))
    total, good = int(pairs.sum()), int(found.sum())
    low, high = _wilson(good / total, with_partners) if total else (0.0, 1.0)
    return Recall(total, good, low, high)


def _partners(
    rows: StoredRows, sample: Int64s, min_score: float, start: int
) -> tuple[Int64s, Int64s]:
    """Return rows from one on that score enough with one of the sample, and with which."""
    every, workers = rows.open(), Workers(1)
    view = RowView(every[sample], np.ones(len(sample), np.uint8), len(sample))
    inverted = InvertedIndex.of(view.vectors, workers)
    params = SearchParams(limit=len(sample), recall=1.0, min_score=min_score)
    near = _near_rows(view.vectors, min_score)
    found = []
    for first in range(start, min(start + _SCANNED, len(every)), CHUNK_ROWS // 8):
        chunk = every[first : first + CHUNK_ROWS // 8]
        some = near(chunk)
        chunk, numbers = chunk[some], first + some
        skip = np.searchsorted(sample, numbers)
        skip[sample[np.minimum(skip, len(sample) - 1)] != numbers] = -1
        skip[skip == len(sample)] = -1
        hits = scan(
            view, chunk, params, skip=skip, inverted=inverted, workers=workers, with_ties=False
        )
        there = np.arange(hits.rows.shape[1]) < hits.sizes[:, None]
        found.append((np.repeat(numbers, hits.sizes), hits.rows[there]))
    of, among = zip(*found, strict=True)
    return np.concatenate(of), np.concatenate(among)


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
    low, high = float(middle - spread), float(middle + spread)
    return max(0.0, min(low, share)), min(1.0, max(high, share))  # sums are rounded


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


def scores_to_first(rows: StoredRows, groups: Groups, pool: TaskPool) -> Iterator[Float64s]:
    """Yield the scores of the rows of groups to the first of each, a run of rows at a time."""
    firsts = np.repeat(groups.rows[groups.starts[:-1]], np.diff(groups.starts))
    runs = (slice(start, start + CHUNK_ROWS) for start in range(0, len(firsts), CHUNK_ROWS))
    yield from results(pool, _scores, ((rows, firsts[run], groups.rows[run]) for run in runs))


def _scores(rows: StoredRows, a: Int64s, b: Int64s) -> Float64s:
    """Return the scores of pairs of rows."""
    held, scores = rows_of(rows.open()), np.empty(len(a))
    exact_pairs(held, a, held, b, scores)
    return scores
