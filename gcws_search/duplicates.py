"""Near-duplicates of files that need not fit into memory, without a service: `dedupe`.

Each file is read into its own folder, several in parallel; these are joined in the order of the
files. The rows are hashed, and compared band by band; see `index.corpus`. The same call resumes an
interrupted one.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import IO, TYPE_CHECKING, Any, Final, Literal

import numpy as np

from gcws_search import index as ix
from gcws_search.formats.files import (
    STDIN,
    BadFile,
    Folder,
    InputFile,
    NoRows,
    files_with_rows,
    input_files,
    require_distinct,
    require_same,
    whole_file,
)
from gcws_search.formats.items import Items
from gcws_search.formats.sources import Choices, Source, require_form, source_of
from gcws_search.formats.stores import StoredPath, place_of, stored_path
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import require
from gcws_search.index.corpus import (
    CHUNK_ROWS,
    Grouping,
    Groups,
    Recall,
    RowFiles,
    TaskPool,
    Wide,
    append_rows,
    groups_of,
    measure_recall,
    results,
    row_types,
    scores_to_first,
)
from gcws_search.index.lsh.pair_bands import choose_bands, recall_of
from gcws_search.index.threads import available_threads
from gcws_search.index.vectors.space import VectorSpace
from gcws_search.tasks import process_pool, ray_pool, thread_pool
from gcws_search.version import program_version

if TYPE_CHECKING:
    from gcws_search.index.contracts.arrays import AnyArray, Float64s, Int64s, UInt32s

Progress = Callable[[str, float | None], None]
"""Called with what is done now, and how much of it as far as that is known."""

_WORK: Final = ".work"
_STATE: Final = "state.json"
_ROWS, _PARTS = "rows", "parts"
_REPORT: Final = "report.json"
REJECTED_FILE: Final = "rejected.ndjson"
"""Lines of rows that could not be read: where they are, and why. There is none without any."""
_TABLES: Final = ("groups.parquet", "kept.parquet", "removed.parquet")
_COMMIT_ROWS: Final = 1 << 16
_PIECE_BYTES: Final = 1 << 20
_MAX_ROWS: Final = 2**31 - 1
_PROCESS_BYTES: Final = 32 << 20
"""Of files, from which a further process reads some of them."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a write says where a disk takes no more, and does not name the file."""
_NO_ID: Final = b"\xff"
"""In the place of an id, which is UTF-8: it is the number of the row."""
_LABELS: Final = {"ids": "u1", "id_borders": "i8", "numbers": "i8"}
"""Columns beside the rows: UTF-8 of ids, their borders, and the rows of the files."""


@dataclass(frozen=True, slots=True)
class Deduplicated:
    """The result of `dedupe`, as in its ``report.json``.

    rejected: number of unreadable rows that a lenient choice left out; ``rejected.ndjson`` lists
        them.
    dropped: number of rows with a missing number that ``missing="drop"`` left out.
    expected_recall: probability that a pair of ``min_score`` shares a key; more similar pairs do
        so more often.
    recall, recall_low, recall_high: the share of a sample of pairs, found by exact scans, that is
        in one group, and its interval of 95 %; None if the sample has no pairs.
    recall_pairs: number of pairs in the sample.
    bands, band_width: number of bands, and of samples in each.
    wide_buckets: number of keys with more than 256 rows in several groups; at most 256 of these
        were compared. ``widest`` is the largest number of rows of a key, ``widest_id`` one of them.
    """

    rows: int
    kept: int
    removed: int
    groups: int
    rejected: int
    dropped: int
    min_score: float
    expected_recall: float
    recall: float | None
    recall_low: float
    recall_high: float
    recall_pairs: int
    bands: int
    band_width: int
    wide_buckets: int
    widest: int
    widest_id: str | None
    seconds: float


def dedupe(  # noqa: PLR0913 (what a caller may say)
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    to: str | None = None,
    min_score: float,
    recall: float = 0.95,
    keep: Literal["first", "longest"] = "first",
    choices: Choices | None = None,
    encoding: str | None = None,
    text: Mapping[str, Any] | None = None,
    transform: Mapping[str, Any] | None = None,
    memory_bytes: int = 2 << 30,
    threads: int | None = None,
    processes: int | None = 1,
    ray: str | None = None,
    show: Callable[[Source], None] | None = None,
    progress: Progress | None = None,
) -> Deduplicated:
    """Find groups of near-duplicates in files, and write which rows are kept and removed.

    ``groups.parquet`` has the rows of groups of two or more (id, file, row, group, representative,
    score to it). ``kept.parquet`` and ``removed.parquet`` (id, file, row) together have all rows.
    ``report.json`` has the returned result, ``rejected.ndjson`` (file, row, detail) the rows that
    a lenient choice left out. A pair joins two rows if its exact score is at least ``min_score``;
    a group is everything that a chain of pairs connects.

    Parameters
    ----------
    sources : path or sequence of paths
        Files of any format that `gcws-search load` reads, folders of them, or their addresses in
        an object store.
    output : path
        Folder to create, or the folder of an interrupted identical call.
    to : str
        Address to which the result is copied, ``report.json`` last; an existing copy is not
        repeated.
    min_score : float
        Minimum GMM of a pair, above 0 and at most 1.
    recall : float
        Probability, below 1, that a pair of ``min_score`` is a candidate.
    keep : {"first", "longest"}
        The kept row of a group: the first, or that with the greatest L1 norm.
    choices : Choices
        The roles of columns; None guesses.
    encoding : str
        Of text; None guesses.
    text : mapping
        Tokens of texts, as for a collection: ``{"ngrams": [3, 3]}``; the weights are "set" or
        "counts".
    transform : mapping
        As for a collection, without learned weights.
    memory_bytes : int
        For tables of keys. Each row takes about 40 bytes more; vectors are in files.
    threads : int
        None: all processors.
    processes : int
        Number of processes that read large files; None: one per processor. A script that uses
        more than one needs ``if __name__ == "__main__":``.
    ray : str
        Address of a Ray cluster for the work, "auto" for this machine's. All nodes must have the
        files and the folder under the same paths, and this version. The result is the same.
    show : callable
        Called with the first file before its rows are read; ``guess`` describes how it is read.
    progress : callable
        Called with the name of a step, and the completed share of it, None if unknown.

    Raises
    ------
    BadFile
        A file cannot be read, or a row is invalid.
    InvalidParameter
        An argument is out of its range, or the folder has other contents.
    StoreFailed
        An object store does not answer as expected; the same call resumes the work.
    ConnectionError
        Ray does not answer.
    """
    require(0 < min_score <= 1, name="min_score", expected="above 0 and at most 1", got=min_score)
    require(0 < recall < 1, name="recall", expected="above 0 and below 1", got=recall)
    require(keep in ("first", "longest"), name="keep", expected="'first' or 'longest'", got=keep)
    processes = available_threads() if processes is None else processes
    require(processes >= 1, name="processes", expected="1 or more", got=processes)
    least = 1 << 20
    require(memory_bytes >= least, name="memory_bytes", expected="1 MiB or more", got=memory_bytes)
    paths = [sources] if isinstance(sources, str | os.PathLike) else [*sources]
    if STDIN in paths:
        raise BadFile("standard input: expected files, which are read again after a stop")
    tell = progress or (lambda _word, _share: None)
    began, folder = perf_counter(), Path(output)
    with ExitStack() as stack:
        files = [
            stack.enter_context(closing(each))
            for path in paths
            for each in _files(os.fspath(path), encoding, choices or Choices())
        ]
        require_distinct(files)  # a row of a repeated file would be both removed and kept
        options: dict[str, Any] = {
            "text": dict(text or {}), "transform": dict(transform or {}), "min_score": min_score,
            "recall": recall, "keep": keep, "choices": repr(choices), "encoding": encoding,
        }  # fmt: skip
        key = _key(files, options)
        target = None if to is None else _target(to, key)
        if (done := _finished(folder, key)) is not None:
            _copy(folder, target)
            return done
        if ray is None:
            pool = stack.enter_context(thread_pool(threads or available_threads()))
        else:
            pool = stack.enter_context(ray_pool(ray, (folder / _WORK).resolve()))
        corpus = stack.enter_context(_begin(folder, key))

        def first() -> tuple[_First, Source]:
            source = _first_source(files, choices or Choices())
            if show is not None:
                show(source)
            return _First.of(source, encoding, options), source

        corpus.read(files, first, processes, None if ray is None else pool, tell)
        found = _group(corpus, {**options, "memory_bytes": memory_bytes}, pool, tell)
        tell("writing", None)
        table = corpus.table
        _write_tables(table, folder, found[1], found[2])
        if table.state["rejected"]:
            with whole_file(folder / REJECTED_FILE) as part:
                shutil.copy(table.folder / REJECTED_FILE, part)
        done = _report(table, found, min_score, perf_counter() - began)
    document = json.dumps({"key": key, **asdict(done)}, indent=2)
    with whole_file(folder / _REPORT) as part:
        part.write_text(document + "\n")
    shutil.rmtree(folder / _WORK)
    _copy(folder, target)
    return done


def _files(path: str, encoding: str | None, choices: Choices) -> Iterator[InputFile | Folder]:
    """Yield the files of a path; a folder whose files form one table counts as a file."""
    for each in input_files(path, encoding):
        has_keys = isinstance(each, Folder) and any(map(each.keys, each.files))
        if isinstance(each, InputFile) or has_keys or choices.missing == "mean":
            yield each
        else:
            yield from files_with_rows(each.files, encoding)


def _first_source(files: Sequence[InputFile | Folder], choices: Choices) -> Source:
    """Return the first file with rows."""
    *before, last = files
    for each in before:
        with suppress(NoRows):
            return source_of(each, choices)
    return source_of(last, choices)


def _target(address: str, key: str) -> StoredPath:
    """Return the target of a copy; raise if it has another result."""
    target = stored_path(address)
    report = target / _REPORT
    if report.exists():
        with report.open() as file:
            held = file.read()
        if f'"key": "{key}"'.encode() not in held:
            raise ix.InvalidParameter(
                expected="a new place, or that of an earlier run with the same files and options",
                got=f"{str(target)!r}, which has another result",
                loc=("to",),
            )
    return target


def _copy(folder: Path, target: StoredPath | None) -> None:
    """Copy a result unless it exists; the report comes last."""
    if target is None or (target / _REPORT).exists():
        return
    rejected = [REJECTED_FILE] if (folder / REJECTED_FILE).exists() else []
    for name in (*_TABLES, *rejected, _REPORT):
        with (folder / name).open("rb") as file:
            (target / name).write(iter(partial(file.read, _PIECE_BYTES), b""))


def _key(files: Sequence[InputFile | Folder], options: Mapping[str, Any]) -> str:
    """Return a digest of the files, the options and the program version."""
    told = [[str(each.path), each.size_bytes, each.version] for each in files]
    return hashlib.sha256(json.dumps([told, options, program_version()]).encode()).hexdigest()


def _finished(folder: Path, key: str) -> Deduplicated | None:
    """Return the result of an earlier identical call; raise if the folder has other contents.

    None if there is none, or files of it were removed.
    """
    report, state = folder / _REPORT, folder / _WORK / _STATE
    for path in (report, state):
        if path.exists():
            held = _members(path)
            if held.pop("key", None) != key:
                break
            files = (*_TABLES, REJECTED_FILE) if held.get("rejected") else _TABLES
            if path == state or not all((folder / name).exists() for name in files):
                return None
            shutil.rmtree(folder / _WORK, ignore_errors=True)  # left by an interrupted call
            return Deduplicated(**held)
    else:
        if not folder.exists() or not any(each.name != _WORK for each in folder.iterdir()):
            return None
    raise ix.InvalidParameter(
        expected="a new folder, or the folder of an earlier run with the same files and options",
        got=f"{str(folder)!r}, which has other contents",
        loc=("output",),
    )


def _members(path: Path) -> dict[str, Any]:
    """Return the members of a JSON object in a file; none if it has another content."""
    with suppress(ValueError):
        held = json.loads(path.read_bytes())
        if isinstance(held, dict):
            return held
    return {}


@contextmanager
def _begin(folder: Path, key: str) -> Iterator[_Corpus]:
    """Yield the rows that were read into a folder; remove it after an error that would recur."""
    try:
        with closing(_Corpus(folder / _WORK, key)) as corpus:
            try:
                yield corpus
            except (BadFile, ix.GcwsError):
                shutil.rmtree(folder / _WORK)
                if not any(folder.iterdir()):
                    folder.rmdir()
                raise
    except OSError as error:
        if error.errno in _FULL and error.filename is None:
            error.filename = str(folder)
        raise


class _Table:
    """Rows, their ids and places in files, in a separate folder; committed rows are kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = (folder / "lock").open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # another run that has begun one ends soon
        path = folder / _STATE
        state: dict[str, Any] = {"counts": {}, "starts": [], "names": 0, "form": None}
        state |= {"files": 0, "read": 0, "bytes": 0, "rejected": 0, "dropped": 0}
        self.state = json.loads(path.read_text()) if path.exists() else state
        self.files: RowFiles | None = None
        self.names = self._load_names()
        self._rejected = self._cut(REJECTED_FILE, self.state["rejected"])
        if self.state["form"] is not None:
            self.open(self.state["form"])

    def close(self) -> None:
        with self._lock:
            if self.files is not None:
                self.files.close()

    def __len__(self) -> int:
        return 0 if self.files is None else self.files.counts["norms"]

    def open(self, form: str) -> RowFiles:
        """Open the files for rows of a form."""
        self.state["form"] = form
        types = {**row_types(is_dense=form == "dense"), **_LABELS}
        self.files = RowFiles(self.folder / _ROWS, types, self.state["counts"])
        return self.files

    def append(self, ids: AnyArray, borders: Int64s, numbers: Int64s, rows: VectorBatch) -> None:
        """Append rows, the UTF-8 of their ids with its borders, and their numbers in files."""
        files = self.files
        assert files is not None
        if len(self) + len(rows) > _MAX_ROWS:
            raise BadFile(f"expected at most {_MAX_ROWS:,} rows, got more")
        before = files.counts["ids"]
        files.append("ids", ids)
        files.append("id_borders", borders[1 if files.counts["id_borders"] else 0 :] + before)
        files.append("numbers", numbers)
        append_rows(files, rows)

    def join(self, other: _Table) -> None:
        state, added, found = self.state, other.state, other.files
        if found is not None and len(other):
            if self.files is None:
                self.open(added["form"])
            state["starts"] += [[name, row + len(self)] for name, row in added["starts"]]
            numbers = np.array(self.find([*other.names]), np.uint32)
            rows = _renumbered(found.rows().open(), numbers)
            ids, borders, places = map(found.column, _LABELS)
            self.append(ids, borders, places, rows)
        with self._rejected.open("ab") as file, other._rejected.open("rb") as more:
            shutil.copyfileobj(more, file)
            _sync(file)
        for name in "files", "bytes", "rejected", "dropped":
            state[name] += added[name]

    def reject(self, source: Source, rows: Mapping[int, str]) -> None:
        """Record which rows of a file are left out, with the errors."""
        file = source.file.name
        with self._rejected.open("ab") as out:
            for row, words in rows.items():
                detail = f"{source.place(row)}: {source.with_column(words)}"
                told = {"file": file, "row": row, "detail": detail}
                out.write(json.dumps(told, ensure_ascii=False).encode() + b"\n")
            _sync(out)
        self.state["rejected"] += len(rows)

    def find(self, names: Sequence[str]) -> list[int]:
        """Return the coordinates of names, numbered by arrival."""
        known = self.names
        return [known.setdefault(name, len(known)) for name in names]

    def _load_names(self) -> dict[str, int]:
        lines = self._cut("names.ndjson", self.state["names"]).read_bytes().splitlines()
        return {json.loads(line): number for number, line in enumerate(lines)}

    def _cut(self, name: str, lines: int) -> Path:
        """Return a file of lines, truncated to the committed ones."""
        path = self.folder / name
        with path.open("a+b") as file:
            file.seek(0)
            file.truncate(sum(map(len, islice(file, lines))))
        return path

    def commit(self) -> None:
        known = self.state["names"]
        if len(self.names) > known:
            with (self.folder / "names.ndjson").open("a") as file:
                file.writelines(json.dumps(name) + "\n" for name in [*self.names][known:])
                _sync(file)
            self.state["names"] = len(self.names)
        if self.files is not None:
            self.files.commit()
            self.state["counts"] = self.files.counts
        _save(self.folder / _STATE, self.state)

    def labels(self, rows: Int64s) -> dict[str, Any]:
        """Return ids, files, and row numbers there, of some rows, as columns of Arrow."""
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        files, starts = self.files, self.state["starts"]
        assert files is not None
        parts = (pa.py_buffer(files.column(name)) for name in ("id_borders", "ids"))
        ids = pa.Array.from_buffers(pa.large_binary(), len(self), [None, *parts])
        ids = ids.take(pa.array(rows))
        own = pa.array(rows).cast(pa.string()).cast(pa.large_binary())
        ids = pc.if_else(pc.equal(ids, _NO_ID), own, ids)
        firsts = np.array([first for _, first in starts])
        of = np.searchsorted(firsts, rows, side="right") - 1
        names = pa.array([name for name, _ in starts], pa.string())
        return {
            "id": ids.cast(pa.string()),
            "file": pa.DictionaryArray.from_arrays(pa.array(of.astype(np.int32)), names),
            "row": pa.array(files.column("numbers")[rows]),
        }


def _renumbered(rows: VectorBatch, numbers: UInt32s) -> VectorBatch:
    """Return rows with other coordinates; empty numbers keep them."""
    if np.array_equal(numbers, np.arange(len(numbers))):
        return rows
    slots, values = numbers[rows.slots >> 1] * np.uint32(2) + (rows.slots & 1), rows.values
    of = np.repeat(np.arange(len(rows), dtype=np.uint64), np.diff(rows.indptr))
    order = np.argsort(of << np.uint64(32) | slots)
    return VectorBatch(
        "sparse", indptr=rows.indptr, slots=slots[order], values=values[order], norms=rows.norms
    )


def _sync(file: IO[Any]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _save(path: Path, state: Mapping[str, Any]) -> None:
    part = path.with_suffix(".part")
    with part.open("w") as file:
        json.dump(state, file)
        _sync(file)
    part.replace(path)


# Files to a table


@dataclass(frozen=True, slots=True)
class _First:
    """The interpretation of the first file, which applies to all files."""

    choices: Choices
    encoding: str | None
    config: ix.CollectionConfig
    name: str
    format: str
    settled: Mapping[str, Any]
    is_text: bool
    dim: int | None
    names: list[str] | None
    header: list[str] | None

    @classmethod
    def of(cls, source: Source, encoding: str | None, options: Mapping[str, Any]) -> _First:
        """Raise if the options do not fit the file."""
        is_text = source.is_text
        config = ix.CollectionConfig(
            dim=None if is_text else source.dim,
            transform=ix.Transform(**options["transform"]),
            text=ix.TextParams.from_dict(options["text"]) if is_text else None,
        )
        if isinstance(config.transform.weights, str):
            raise ix.InvalidParameter(
                expected="weights that need not be learned",
                got=repr(config.transform.weights),
                loc=("text" if is_text else "transform", "weights"),
            )
        file = source.file
        return cls(
            source.choices, encoding, config, file.name, file.format, source.settled, is_text,
            source.dim, source.names, None if source.table is None else source.table.names,
        )  # fmt: skip

    def source(self, file: InputFile | Folder) -> Source:
        """Return a file as items, if it has the same form."""
        settled = self.settled if file.format == self.format else {}
        source = source_of(file, replace(self.choices, **settled))
        require_form(source, self.name, is_text=self.is_text, dim=self.dim)
        if file.name != self.name and self.names is not None:
            source.arrange(dict(enumerate(self.names)), self.dim)
        return source


def _read_files(
    first: _First, table: _Table, files: Sequence[InputFile | Folder], head: Source | None
) -> Iterator[int]:
    """Read the rows that a table lacks; yield the number of bytes read after each batch.

    head: the first of all files, if it is among these.
    """
    space = VectorSpace.of(first.config)
    if table.files is None:
        table.open(first.config.form)
    state, behind, pending = table.state, 0, 0
    for number, file in enumerate(files):
        if number >= state["files"]:
            try:
                is_head = head is not None and head.file is file
                source = head if head is not None and is_head else first.source(file)
            except NoRows as error:
                if error.names != first.header:
                    raise
                state["files"] = number + 1
                continue
            if not state["read"]:
                state["starts"].append([file.name, len(table)])
            for count in _read_file(table, space, source):
                state["bytes"] = behind + file.read_bytes
                pending += count
                if pending >= _COMMIT_ROWS:
                    table.commit()
                    pending = 0
                yield state["bytes"]
            state["files"], state["read"] = number + 1, 0
            state["bytes"] = behind + (file.size_bytes or 0)
            table.commit()
            pending = 0
        behind += file.size_bytes or 0


def _read_file(table: _Table, space: VectorSpace, source: Source) -> Iterator[int]:
    """Append the remaining rows of a file; yield the number of rows of each batch."""
    state = table.state
    skipped, passed, dropped, end = state["read"], 0, 0, 0
    for items in source.items():
        passed, first, before = passed + len(items), end, dropped
        dropped = len(source.dropped)
        end = passed + dropped
        if passed <= skipped:
            continue
        numbers = np.setdiff1d(np.arange(first, end), source.dropped[before:])
        if items.numbers is not None:
            numbers = np.asarray(items.numbers, np.int64)
        _append(table, space, source, items, numbers)
        state["read"] = passed
        yield len(items)
    if source.unreadable:
        table.reject(source, {each.row: each.detail for each in source.unreadable})
    state["dropped"] += len(source.dropped)


def _append(
    table: _Table, space: VectorSpace, source: Source, items: Items, numbers: Int64s
) -> None:
    """Append the rows of a batch of a file, which have these numbers there."""

    def check(rows: slice) -> ix.RawBatch:
        raw = items.rows.part(rows).check(space, table.find)
        space.prepare(raw)
        return raw

    try:
        rows = space.prepare(items.rows.check(space, table.find))
    except ix.InvalidVector as error:
        if not source.choices.lenient:
            at = int(error.loc[0]) if error.loc else 0
            place = source.place(int(numbers[at]))
            words = f"expected {error.expected}, got {error.got}"
            raise BadFile(f"{source.file.name}: {place}: {words}") from None
        bad = ix.bad_rows(len(items), check, ix.InvalidVector)
        table.reject(
            source,
            {
                int(numbers[row]): f"expected {error.expected}, got {error.got}"
                for row, error in bad.items()
            },
        )
        good = [row for row in range(len(items)) if row not in bad]
        if not good:
            return
        items, numbers = items.part(good), numbers[good]
        rows = space.prepare(items.rows.check(space, table.find))
    ids = items.texts()
    texts = [_NO_ID] * len(items) if ids is None else [each.encode() for each in ids]
    borders = np.cumsum([0, *map(len, texts)])
    table.append(np.frombuffer(b"".join(texts), np.uint8), borders, numbers, rows)


def _read_part(first: _First, files: Sequence[tuple[str, type]], folder: Path) -> None:
    with ExitStack() as stack:
        opened = [
            stack.enter_context(closing(kind(place_of(path), first.encoding)))
            for path, kind in files
        ]
        table = stack.enter_context(closing(_Table(folder)))
        for _ in _read_files(first, table, opened, None):
            pass


def _parts(files: Sequence[InputFile | Folder], first: int) -> list[range]:
    """Return the files from one on in runs that are large enough for a process."""
    sizes = np.cumsum([0, *(each.size_bytes or 0 for each in files[first:])])
    numbers = np.flatnonzero(np.diff(sizes[:-1] // _PROCESS_BYTES, prepend=-1)) + first
    borders = [*numbers.tolist(), len(files)]
    return [*map(range, borders[:-1], borders[1:])]


# All files


class _Corpus:
    """All files as one table, in a folder beside the result."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = (folder / "lock").open("wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ix.DirectoryLocked(folder, "another process") from None
        self._path = folder / _STATE
        state: dict[str, Any] = {"key": key, "done": False}
        self._state = json.loads(self._path.read_text()) if self._path.exists() else state
        _save(self._path, self._state)
        self.table = _Table(folder / "table")

    def close(self) -> None:
        with self._lock:
            self.table.close()

    def choose_bands(self, choose: Callable[[], tuple[int, int]]) -> tuple[int, int]:
        """Return the number of bands and of samples in each, chosen now or before."""
        if "bands" not in self._state:
            self._state["bands"] = choose()
            _save(self._path, self._state)
        bands, width = self._state["bands"]
        return bands, width

    def read(
        self,
        files: Sequence[InputFile | Folder],
        first: Callable[[], tuple[_First, Source]],
        processes: int,
        ray: TaskPool | None,
        progress: Progress,
    ) -> None:
        """Read the remaining files: in this process, or in several in parallel."""
        if self._state["done"]:
            return
        form, head = first()
        total = sum(each.size_bytes or 0 for each in files) or 1

        def tell(read: int) -> None:
            progress("reading", min(1.0, read / total))

        with ExitStack() as stack:
            # A partly read file is completed in this process.
            done = self.table.state["files"] + (self.table.state["read"] > 0)
            parts = _parts(files, done)
            if ray is None and min(processes, len(parts)) > 1:
                ray = stack.enter_context(process_pool(min(processes, len(parts))))
            here = files if ray is None else files[:done]
            for read in _read_files(form, self.table, here, head):
                tell(read)
            if ray is not None:
                self._read_parts(form, files, parts, ray, tell)
        require_same(files)
        if not len(self.table):
            raise BadFile(f"{files[0].name}: expected rows, got none")
        self._state["done"] = True
        _save(self._path, self._state)

    def _read_parts(
        self,
        form: _First,
        files: Sequence[InputFile | Folder],
        parts: Sequence[range],
        pool: TaskPool,
        progress: Callable[[int], None],
    ) -> None:
        """Read parts in parallel, and join them in order; ``progress`` gets the bytes read."""
        folders = [self.folder / f"part-{part.start}-{part.stop}" for part in parts]
        calls = (
            (form, [(str(files[each].path), type(files[each])) for each in part], folder)
            for part, folder in zip(parts, folders, strict=True)
        )

        def tell() -> None:
            read = self.table.state["bytes"]
            for path in self.folder.glob(f"part-*/{_STATE}"):
                with suppress(FileNotFoundError):
                    read += json.loads(path.read_text())["bytes"]
            progress(read)

        with closing(results(pool, _read_part, calls, waiting=tell)) as done:
            for folder, _ in zip(folders, done, strict=True):
                with closing(_Table(folder)) as part:
                    self.table.join(part)
                self.table.commit()
                shutil.rmtree(folder)
                tell()


_Found = tuple[tuple[int, int], Groups, "Float64s", Recall, Wide]
"""Bands and their width; groups, and the scores of their rows to the first of each."""


def _group(
    corpus: _Corpus, wanted: Mapping[str, Any], pool: TaskPool, progress: Progress
) -> _Found:
    files, min_score = corpus.table.files, wanted["min_score"]
    assert files is not None
    stored = files.rows()
    rows = stored.open()
    progress("choosing bands", None)
    bands, width = corpus.choose_bands(lambda: choose_bands(rows, min_score, wanted["recall"]))
    grouping = Grouping(stored, corpus.folder.resolve(), bands, width)
    grouping.hash(pool, partial(progress, "hashing"))
    roots, wide = grouping.connect(
        pool, min_score, wanted["memory_bytes"], partial(progress, "comparing")
    )
    groups = groups_of(roots, rows.norms, wanted["keep"])
    progress("scoring", None)
    scores = [np.empty(0), *scores_to_first(stored, groups, pool)]
    recall = measure_recall(stored, roots, min_score, pool, partial(progress, "checking"))
    return (bands, width), groups, np.concatenate(scores), recall, wide


def _write_tables(table: _Table, folder: Path, groups: Groups, scores: Float64s) -> None:
    """Write the files of a result; each appears when it is complete."""
    import pyarrow as pa  # noqa: PLC0415

    numbers = np.repeat(np.arange(len(groups.starts) - 1), np.diff(groups.starts))
    firsts = groups.rows[groups.starts[:-1]]

    def members() -> Iterator[dict[str, Any]]:
        for run in _runs(len(groups.rows)):
            group = numbers[run]
            yield {
                **table.labels(groups.rows[run]),
                "group": pa.array(group),
                "representative": table.labels(firsts[group])["id"],
                "score": pa.array(scores[run]),
            }

    is_removed = np.zeros(len(table), np.bool_)
    is_removed[groups.rows] = True
    is_removed[firsts] = False
    _write_table(folder / "groups.parquet", members())
    for name, wanted in (("kept", False), ("removed", True)):
        rows = np.flatnonzero(is_removed == wanted)
        parts = (table.labels(rows[run]) for run in _runs(len(rows)))
        _write_table(folder / f"{name}.parquet", parts)


def _runs(count: int) -> Iterator[slice]:
    """Yield ranges of a count; one empty range for 0."""
    for first in range(0, max(1, count), CHUNK_ROWS):
        yield slice(first, first + CHUNK_ROWS)


def _write_table(path: Path, parts: Iterable[dict[str, Any]]) -> None:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    with whole_file(path) as part, ExitStack() as stack:
        writer = None
        for columns in parts:
            table = pa.table(columns)
            writer = writer or stack.enter_context(pq.ParquetWriter(part, table.schema))
            writer.write_table(table)


def _report(table: _Table, found: _Found, min_score: float, seconds: float) -> Deduplicated:
    (bands, width), groups, _, recall, wide = found
    count = len(groups.starts) - 1
    removed = len(groups.rows) - count
    widest = None
    if wide.row is not None:
        widest = table.labels(np.array([wide.row]))["id"][0].as_py()
    return Deduplicated(
        rows=len(table),
        kept=len(table) - removed,
        removed=removed,
        groups=count,
        rejected=table.state["rejected"],
        dropped=table.state["dropped"],
        min_score=min_score,
        expected_recall=recall_of(bands, width, min_score),
        recall=recall.found / recall.pairs if recall.pairs else None,
        recall_low=recall.low,
        recall_high=recall.high,
        recall_pairs=recall.pairs,
        bands=bands,
        band_width=width,
        wide_buckets=wide.buckets,
        widest=wide.rows,
        widest_id=widest,
        seconds=seconds,
    )
