"""Near-duplicates among rows in files that exceed memory: one table of keys after another.

Rows with an equal key in one of L bands of r samples are candidates ([GMM]). Candidates are scored
exactly, and rows connected by pairs with enough score form a group. Finished parts are stored on
disk, so that an interrupted search continues from there. Parts run in parallel in a pool: of
threads, or of other machines that see the same folder.
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
_SPREAD: Final = 1.96  # standard errors of a 95 % interval


class TaskPool(NamedTuple):
    """Where functions run, and how many at once."""

    submit: Callable[..., Future[Any]]  # takes a function and its arguments
    size: int
    end: Callable[[], object] = lambda: None  # cancels long calls; nothing is submitted then


def results(
    pool: TaskPool,
    function: Callable[..., T],
    calls: Iterable[tuple[Any, ...]],
    *,
    in_order: bool = True,
    waiting: Callable[[], None] = lambda: None,
) -> Generator[T]:
    """Yield the result of a function for each of its arguments; some calls start ahead.

    in_order: yield in order of the calls; otherwise in order of completion.
    waiting: called once a second while the next result is awaited.
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
            if len(begun) >= 2 * pool.size - 1:  # with a size of one, run them one after the other
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
    """Columns in a folder, each in its own file, to which rows are appended; one writer.

    counts: committed values of each column; anything beyond is truncated.
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
        """Sync what has been appended to disk; the caller then saves `counts`."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """Close all files, even if one of them cannot be flushed."""
        with ExitStack() as stack:
            for file in self._files.values():
                stack.callback(file.close)

    def column(self, name: str) -> AnyArray:
        """Return a column as a mapped array."""
        return _mapped(self._folder / name, self._types[name], self.counts[name])

    def rows(self) -> StoredRows:
        """Return where the committed rows are stored."""
        return StoredRows(self._folder, dict(self.counts))


def _mapped(path: Path, type_: str | np.dtype[Any], count: int) -> AnyArray:
    if not count:
        return np.empty(0, type_)
    found: AnyArray = np.memmap(path, type_, "r+", 0, (count,))
    return np.asarray(found)


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows in the files of a folder; any process that sees the folder can open them."""

    folder: Path
    counts: Mapping[str, int]

    def __len__(self) -> int:
        return self.counts["norms"]

    def open(self) -> VectorBatch:
        """Return all rows; the system reads the used parts from disk."""
        is_dense = "dense" in self.counts
        columns: Any = {
            name: _mapped(self.folder / name, type_, self.counts[name])
            for name, type_ in row_types(is_dense=is_dense).items()
        }
        if is_dense:
            columns["dense"] = columns["dense"].reshape(len(self), -1)
        return VectorBatch("dense" if is_dense else "sparse", **columns)


def row_types(*, is_dense: bool) -> dict[str, str]:
    """Return the columns of rows of one form, with their types."""
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
    """Buckets whose rows were compared only with leaders: their number, and the longest."""

    buckets: int
    rows: int
    row: int | None  # one of the rows of the longest


@dataclass(frozen=True, slots=True)
class Grouping:
    """The search for groups among rows by band keys, one band after the other.

    folder: for keys and results; existing ones are reused.
    """

    rows: StoredRows
    folder: Path
    bands: int
    width: int

    def hash(self, pool: TaskPool, progress: Progress) -> None:
        """Write the keys of all rows, one file per chunk."""
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
        """Return the first row of each row's group, and the `Wide` buckets.

        The parts of a band have disjoint keys, so the result depends neither on their number nor on
        how many run in parallel.

        memory_bytes: for all parallel parts together.
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
        """Return the pairs that connect rows in a part of one band's keys."""
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
        """Return the keys of a band that begin with the bits of a part, and their rows."""
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
        """Return the number of finished bands, the path of the roots, and `Wide`."""
        for name in os.listdir(self.folder):  # `Path.glob` would hide read errors
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
    """Write the bytes of an array to a file that appears only when it is complete.

    NumPy's format begins with a Python expression, and Python 3.11 cannot parse two in parallel.
    """
    part = path.with_suffix(f".{secrets.token_hex(4)}.part")  # others may write it, too
    try:
        with part.open("wb") as file:
            file.write(array.data)  # `tofile` does not report the reason of a failure
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


# Results


class Recall(NamedTuple):
    """Pairs of some rows: all of them, those within one group, and the share of these.

    low, high: 95 % confidence interval of the share.
    """

    pairs: int
    found: int
    low: float
    high: float


def measure_recall(
    rows: StoredRows, roots: Int32s, min_score: float, pool: TaskPool, progress: Progress
) -> Recall:
    """Find all partners of a sample of the rows by scans; return how many share their group.

    Rows equal to a sampled one, and rows of its group, count like any others.
    """
    n = len(rows)
    rng = np.random.default_rng(1)
    sample = np.sort(rng.choice(n, min(n, _CHECKED), replace=False)).astype(np.int64)
    pairs, found = np.zeros((2, len(sample)), np.int64)
    calls = (
        (rows, sample, roots[sample], min_score, first, roots[first : first + _SCANNED])
        for first in range(0, n, _SCANNED)
    )
    for step, (more, good) in enumerate(results(pool, _count_partners, calls), 1):
        pairs += more
        found += good
        progress(min(1.0, step * _SCANNED / n))
    with_partners = int(np.count_nonzero(pairs))
    total, connected = int(pairs.sum()), int(found.sum())
    low, high = _wilson(connected / total, with_partners) if total else (0.0, 1.0)
    return Recall(total, connected, low, high)


def _count_partners(
    rows: StoredRows,
    sample: Int64s,
    sample_roots: Int32s,
    min_score: float,
    start: int,
    roots: Int32s,
) -> tuple[Int64s, Int64s]:
    """Count the rows from one on that score enough with each of a sample; those of its group.

    roots: of the rows to count.
    """
    every, workers = rows.open(), Workers(1)
    view = RowView(every[sample], np.ones(len(sample), np.uint8), len(sample))
    inverted = InvertedIndex.of(view.vectors, workers)
    params = SearchParams(limit=len(sample), recall=1.0, min_score=min_score)
    near = _near_rows(view.vectors, min_score)
    pairs, found = np.zeros((2, len(sample)), np.int64)
    for first in range(start, start + len(roots), CHUNK_ROWS // 8):
        chunk = every[first : min(first + CHUNK_ROWS // 8, start + len(roots))]
        some = near(chunk)
        chunk, numbers = chunk[some], first + some
        skip = np.searchsorted(sample, numbers)
        skip[sample[np.minimum(skip, len(sample) - 1)] != numbers] = -1
        skip[skip == len(sample)] = -1
        hits = scan(
            view, chunk, params, skip=skip, inverted=inverted, workers=workers, with_ties=False
        )
        there = np.arange(hits.rows.shape[1]) < hits.sizes[:, None]
        among = hits.rows[there]
        is_found = np.repeat(roots[numbers - start], hits.sizes) == sample_roots[among]
        pairs += np.bincount(among, minlength=len(sample))
        found += np.bincount(among[is_found], minlength=len(sample))
    return pairs, found


def _near_rows(sample: VectorBatch, min_score: float) -> Callable[[VectorBatch], Int64s]:
    """Return a function that finds the rows of a chunk that may score enough with the sample.

    A sparse row u shares at least ``min_score`` · |u| with such a row, all in slots that the sample
    has. Slots are known by their hashes.
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
    """Return Wilson's interval of a share of n independent trials."""
    square = _SPREAD**2
    middle = (share + square / (2 * n)) / (1 + square / n)
    spread = _SPREAD / (1 + square / n) * np.sqrt(share * (1 - share) / n + square / (4 * n * n))
    low, high = float(middle - spread), float(middle + spread)
    return max(0.0, min(low, share)), min(1.0, max(high, share))  # sums are rounded


class Groups(NamedTuple):
    """Rows of groups of two or more, group by group; the row to keep comes first in each.

    rows: (m,) int64.
    starts: (g + 1,) int64, the start of each group, and the end of the last one.
    """

    rows: Int64s
    starts: Int64s


def groups_of(roots: Int32s, norms: AnyArray, keep: str) -> Groups:
    """Return the groups of rows, in the order of their first rows.

    keep: "first", or "longest" for the row with the greatest L1 norm.
    """
    sizes = np.bincount(roots, minlength=len(roots))
    rows = np.flatnonzero(sizes[roots] > 1)
    longest = np.zeros(len(rows)) if keep == "first" else -norms[rows]
    rows = rows[np.lexsort((rows, longest, roots[rows]))]
    owners = roots[rows]
    starts = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))[: len(owners)]
    return Groups(rows, np.append(starts, len(rows)))


def scores_to_first(rows: StoredRows, groups: Groups, pool: TaskPool) -> Iterator[Float64s]:
    """Yield the scores of the rows of groups with the first of each, in runs of rows."""
    firsts = np.repeat(groups.rows[groups.starts[:-1]], np.diff(groups.starts))
    runs = (slice(start, start + CHUNK_ROWS) for start in range(0, len(firsts), CHUNK_ROWS))
    yield from results(pool, _scores, ((rows, firsts[run], groups.rows[run]) for run in runs))


def _scores(rows: StoredRows, a: Int64s, b: Int64s) -> Float64s:
    """Return the scores of pairs of rows."""
    held, scores = rows_of(rows.open()), np.empty(len(a))
    exact_pairs(held, a, held, b, scores)
    return scores
