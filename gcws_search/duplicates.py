"""Near-duplicates of files that need not fit into memory, without a service: `dedupe`.

Rows are read into files of a folder, hashed, and joined by tables, one after another; see
`index.corpus`. The same call goes on where it was interrupted.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from gcws_search import index as ix
from gcws_search.formats.files import STDIN, BadFile, Folder, InputFile, input_files, whole_file
from gcws_search.formats.items import Items
from gcws_search.formats.sources import Choices, Source, source_of
from gcws_search.formats.stores import StoredPath, stored_path
from gcws_search.index.contracts.parameters import require
from gcws_search.index.corpus import (
    CHUNK_ROWS,
    Grouping,
    Groups,
    Recall,
    RowFiles,
    Wide,
    append_rows,
    groups_of,
    mapped_rows,
    measure_recall,
    row_types,
    scores_to_first,
)
from gcws_search.index.lsh.pair_bands import choose_bands, recall_of
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.space import VectorSpace
from gcws_search.version import program_version

if TYPE_CHECKING:
    from gcws_search.index.contracts.arrays import Float64s, Int64s
    from gcws_search.index.contracts.batches import VectorBatch

Progress = Callable[[str, float | None], None]
"""Called with what is done now, and how much of it as far as that is known."""

_WORK: Final = ".work"
_STATE: Final = "state.json"
_REPORT: Final = "report.json"
_TABLES: Final = ("groups.parquet", "kept.parquet", "removed.parquet")
_COMMIT_ROWS: Final = 1 << 16
_PIECE_BYTES: Final = 1 << 20
_MAX_ROWS: Final = 2**31 - 1
_LABELS: Final = {"ids": "u1", "id_borders": "i8", "numbers": "i8"}
"""Columns beside the rows: UTF-8 of ids, their borders, and the rows of the files."""


@dataclass(frozen=True, slots=True)
class Deduplicated:
    """What `dedupe` found, as in its ``report.json``.

    rejected: rows that could not be read, which a lenient choice left out.
    dropped: rows that lack a number, which ``missing="drop"`` left out.
    expected_recall: the share of pairs of ``min_score`` that share a key; those alike more than
        that do so more often.
    recall, recall_low, recall_high: the share of pairs of a sample, found by exact scans, that are
        in one group, and the interval of 95 %; None where the sample has no pairs.
    recall_pairs: how many pairs that are.
    bands, band_width: of how many samples the keys are made.
    wide_buckets: keys that more than 256 rows of several groups have; these were compared with 256
        of them at most. ``widest`` is how many rows have one such key, ``widest_id`` one of them.
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
    show: Callable[[Source], None] | None = None,
    progress: Progress | None = None,
) -> Deduplicated:
    """Find groups of near-duplicates in files, and write what is kept and what is not.

    ``groups.parquet`` has the rows of groups of two or more (id, file, row, group, representative,
    score to it), ``kept.parquet`` and ``removed.parquet`` (id, file, row) all rows by what becomes
    of them, ``report.json`` what is returned. A pair joins two rows if its exact score is at least
    ``min_score``; groups are what chains of pairs join.

    Parameters
    ----------
    sources : path or sequence of paths
        Files of any format that `gcws-search load` reads, or folders of them; or their addresses
        in an object store.
    output : path
        A folder that is made, or one that the same call has begun.
    to : str
        Address to which the result is copied, ``report.json`` last; one that is there is not
        copied again.
    min_score : float
        Least GMM of a pair, above 0 and at most 1.
    recall : float
        Probability, below 1, with which a pair of ``min_score`` is a candidate.
    keep : {"first", "longest"}
        Which row of a group is kept: the first one, or that of the greatest L1 norm.
    choices : Choices
        What the columns are; None guesses.
    encoding : str
        Of text; None guesses.
    text : mapping
        Tokens of texts, as of a collection: ``{"ngrams": [3, 3]}``; the weights are "set" or
        "counts".
    transform : mapping
        As of a collection, but for learned weights.
    memory_bytes : int
        For tables of keys. About 40 bytes a row come on top; rows lie in files.
    threads : int
        None takes all processors.
    show : callable
        Called with the first file before its rows are read; ``guess`` says what it is taken for.
    progress : callable
        Called with a word for the step, and the share of it that is done, None where not known.

    Raises
    ------
    BadFile
        A file cannot be read, or a row of it is none.
    InvalidParameter
        An argument is out of its range, or the folder holds something else.
    StoreFailed
        An object store does not answer as expected; the same call goes on.
    """
    require(0 < min_score <= 1, name="min_score", expected="above 0 and at most 1", got=min_score)
    require(0 < recall < 1, name="recall", expected="above 0 and below 1", got=recall)
    require(keep in ("first", "longest"), name="keep", expected="'first' or 'longest'", got=keep)
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
            for each in input_files(os.fspath(path), encoding)
        ]
        options: dict[str, Any] = {
            "text": dict(text or {}), "transform": dict(transform or {}), "min_score": min_score,
            "recall": recall, "keep": keep, "choices": repr(choices), "encoding": encoding,
        }  # fmt: skip
        key = _key(files, options)
        target = None if to is None else _target(to, key)
        if (done := _finished(folder, key)) is not None:
            _copy(folder, target)
            return done
        corpus = stack.enter_context(_begin(folder, key))
        corpus.read(files, choices or Choices(), options, show or (lambda _source: None), tell)
        more = {"memory_bytes": memory_bytes, "threads": threads}
        found = _group(corpus, options | more, tell)
        tell("writing", None)
        _write_tables(corpus, folder, found[1], found[2])
        done = _report(corpus, found, min_score, perf_counter() - began)
    document = json.dumps({"key": key, **asdict(done)}, indent=2)
    with whole_file(folder / _REPORT) as part:
        part.write_text(document + "\n")
    shutil.rmtree(folder / _WORK)
    _copy(folder, target)
    return done


def _target(address: str, key: str) -> StoredPath:
    """Return where a result is copied to; refuse a place of another one."""
    target = stored_path(address)
    report = target / _REPORT
    if report.exists():
        with report.open() as file:
            held = file.read()
        if f'"key": "{key}"'.encode() not in held:
            raise ix.InvalidParameter(
                expected="a place without a result, or with that of the same files and options",
                got=f"{str(target)!r}, which has another one",
                loc=("to",),
            )
    return target


def _copy(folder: Path, target: StoredPath | None) -> None:
    """Copy a result, unless it is there; the report comes last."""
    if target is None or (target / _REPORT).exists():
        return
    for name in (*_TABLES, _REPORT):
        with (folder / name).open("rb") as file:
            (target / name).write(iter(partial(file.read, _PIECE_BYTES), b""))


def _key(files: Sequence[InputFile | Folder], options: Mapping[str, Any]) -> str:
    """Return the same for the same files, options and program."""
    told = [[str(each.path), each.size_bytes, each.version] for each in files]
    return hashlib.sha256(json.dumps([told, options, program_version()]).encode()).hexdigest()


def _finished(folder: Path, key: str) -> Deduplicated | None:
    """Return what the same call has found before; refuse a folder of anything else."""
    report, state = folder / _REPORT, folder / _WORK / _STATE
    for path in (report, state):
        if path.exists():
            held = json.loads(path.read_text())
            if held.pop("key") != key:
                break
            if path == state:
                return None
            shutil.rmtree(folder / _WORK, ignore_errors=True)  # of a call that ended before this
            return Deduplicated(**held)
    else:
        if not folder.exists() or not any(each.name != _WORK for each in folder.iterdir()):
            return None
    raise ix.InvalidParameter(
        expected="a new folder, or that of the same files and options",
        got=f"{str(folder)!r}, which holds something else",
        loc=("output",),
    )


@contextmanager
def _begin(folder: Path, key: str) -> Iterator[_Corpus]:
    """Yield what has been read in a folder; after an error that comes again, it is gone."""
    with closing(_Corpus(folder / _WORK, key)) as corpus:
        try:
            yield corpus
        except (BadFile, ix.GcwsError):
            shutil.rmtree(folder / _WORK)
            if not any(folder.iterdir()):
                folder.rmdir()
            raise


class _Corpus:
    """Rows, ids and places of all files, in a folder; what is committed is read once."""

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        self._path = folder / _STATE
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = (folder / "lock").open("wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ix.DirectoryLocked(folder, "another process") from None
        state: dict[str, Any] = {"key": key, "counts": {}, "starts": [], "names": 0, "rejected": 0}
        state |= {"dropped": 0, "file": 0, "read": 0, "form": None, "done": False}
        self._state = json.loads(self._path.read_text()) if self._path.exists() else state
        self._files: RowFiles | None = None
        self._names = self._load_names()
        if self._state["form"] is not None:
            self._open()
        self._save()

    def close(self) -> None:
        if self._files is not None:
            self._files.close()
        self._lock.close()

    def __len__(self) -> int:
        return 0 if self._files is None else self._files.counts["norms"]

    @property
    def left_out(self) -> tuple[int, int]:
        """How many rows could not be read, and how many lacked a number."""
        return self._state["rejected"], self._state["dropped"]

    def choose_bands(self, choose: Callable[[], tuple[int, int]]) -> tuple[int, int]:
        """Return how many bands of how many samples were chosen, now or before."""
        if "bands" not in self._state:
            self._state["bands"] = choose()
            self._save()
        bands, width = self._state["bands"]
        return bands, width

    @property
    def folder(self) -> Path:
        """Where further files may lie."""
        return self._folder

    def rows(self) -> VectorBatch:
        assert self._files is not None
        return mapped_rows(self._files)

    def read(
        self,
        files: Sequence[InputFile | Folder],
        choices: Choices,
        options: Mapping[str, Any],
        show: Callable[[Source], None],
        progress: Progress,
    ) -> None:
        state, first = self._state, None
        if state["done"]:
            return
        total = sum(each.size_bytes or 0 for each in files) or 1
        behind = 0
        for number, file in enumerate(files):
            is_like_first = first is not None and file.format == first.file.format
            settled = first.settled if first is not None and is_like_first else dict[str, Any]()
            source = source_of(file, replace(choices, **settled))
            if first is None:
                first = source
                show(first)
            if number >= state["file"]:
                space = self._space(first, source, options)
                if source is not first and first.names is not None:
                    source.arrange(dict(enumerate(first.names)), first.dim)
                if state["read"] == 0:
                    state["starts"].append([file.name, len(self)])
                for _ in self._read_file(source, space):
                    progress("reading", (behind + file.read_bytes) / total)
                state["file"], state["read"] = number + 1, 0
                self._commit()
            behind += file.size_bytes or 0
        if not len(self):
            raise BadFile(f"{files[0].name}: expected rows, got none")
        state["done"] = True
        self._commit()

    def _space(self, first: Source, source: Source, options: Mapping[str, Any]) -> VectorSpace:
        """Return what makes rows of a file; all files are of one form."""
        if first.is_text != source.is_text:
            raise BadFile(f"{source.file.name}: expected {_kind(first)}, got {_kind(source)}")
        if first.dim != source.dim:
            raise BadFile(
                f"{source.file.name}: expected {first.dim or 'sparse'} coordinates as in "
                f"{first.file.name}, got {source.dim or 'sparse ones'}"
            )
        config = ix.CollectionConfig(
            dim=None if first.is_text else first.dim,
            transform=ix.Transform(**options["transform"]),
            text=ix.TextParams.from_dict(options["text"]) if first.is_text else None,
        )
        if isinstance(config.transform.weights, str):
            raise ix.InvalidParameter(
                expected="weights that need not be learned",
                got=repr(config.transform.weights),
                loc=("text" if first.is_text else "transform", "weights"),
            )
        if self._state["form"] is None:
            self._state["form"] = config.form
            self._open()
        return VectorSpace.of(config)

    def _read_file(self, source: Source, space: VectorSpace) -> Iterator[None]:
        """Append the rows of a file, behind those that are read already."""
        state, skipped, pending = self._state, self._state["read"], 0
        passed = end = 0
        for items in source.items():
            passed, first = passed + len(items), end
            end = passed + len(source.dropped)
            if passed <= skipped:
                continue
            numbers = np.setdiff1d(np.arange(first, end), source.dropped)
            if items.numbers is not None:
                numbers = np.asarray(items.numbers, np.int64)
            self._append(source, items, space, numbers)
            state["read"], pending = passed, pending + len(items)
            if pending >= _COMMIT_ROWS:
                self._commit()
                pending = 0
            yield
        state["rejected"] += len(source.unreadable)
        state["dropped"] += len(source.dropped)

    def _append(self, source: Source, items: Items, space: VectorSpace, numbers: Int64s) -> None:
        """Append the rows of a batch of a file, which have these numbers there."""

        def check(rows: slice) -> ix.RawBatch:
            raw = items.rows.part(rows).check(space, self._find)
            space.prepare(raw)
            return raw

        try:
            rows = space.prepare(items.rows.check(space, self._find))
        except ix.InvalidVector as error:
            if not source.choices.lenient:
                at = int(error.loc[0]) if error.loc else 0
                place = source.place(int(numbers[at]))
                words = f"expected {error.expected}, got {error.got}"
                raise BadFile(f"{source.file.name}: {place}: {words}") from None
            bad = ix.bad_rows(len(items), check, ix.InvalidVector)
            self._state["rejected"] += len(bad)
            good = [row for row in range(len(items)) if row not in bad]
            if not good:
                return
            items, numbers = items.part(good), numbers[good]
            rows = space.prepare(items.rows.check(space, self._find))
        count = len(self) + len(rows)
        if count > _MAX_ROWS:
            raise BadFile(f"{source.file.name}: expected at most {_MAX_ROWS:,} rows, got more")
        assert self._files is not None
        ids = items.texts() or [str(row) for row in range(len(self), count)]
        texts = [each.encode() for each in ids]
        borders = np.cumsum([0, *map(len, texts)]) + self._files.counts["ids"]
        self._files.append("ids", np.frombuffer(b"".join(texts), np.uint8))
        self._files.append("id_borders", borders[1 if self._files.counts["id_borders"] else 0 :])
        self._files.append("numbers", numbers)
        append_rows(self._files, rows)

    def _find(self, names: Sequence[str]) -> list[int]:
        """Return the coordinates of names, which are numbered by arrival."""
        known = self._names
        return [known.setdefault(name, len(known)) for name in names]

    def _load_names(self) -> dict[str, int]:
        path = self._folder / "names.ndjson"
        lines = path.read_bytes().splitlines()[: self._state["names"]] if path.exists() else []
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return {json.loads(line): number for number, line in enumerate(lines)}

    def _commit(self) -> None:
        """Put on the disk what has been read."""
        known = self._state["names"]
        if len(self._names) > known:
            with (self._folder / "names.ndjson").open("a") as file:
                file.writelines(json.dumps(name) + "\n" for name in [*self._names][known:])
                file.flush()
                os.fsync(file.fileno())
            self._state["names"] = len(self._names)
        if self._files is not None:
            self._files.commit()
            self._state["counts"] = self._files.counts
        self._save()

    def _open(self) -> None:
        types = {**row_types(is_dense=self._state["form"] == "dense"), **_LABELS}
        self._files = RowFiles(self._folder / "rows", types, self._state["counts"])

    def _save(self) -> None:
        part = self._path.with_suffix(".part")
        with part.open("w") as file:
            json.dump(self._state, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._path)

    def labels(self, rows: Int64s) -> dict[str, Any]:
        """Return ids, files and rows there of some rows, as Arrow's columns."""
        import pyarrow as pa  # noqa: PLC0415

        assert self._files is not None
        parts = (pa.py_buffer(self._files.column(name)) for name in ("id_borders", "ids"))
        ids = pa.LargeStringArray.from_buffers(len(self), *parts).take(pa.array(rows))
        firsts = np.array([first for _, first in self._state["starts"]])
        of = np.searchsorted(firsts, rows, side="right") - 1
        names = pa.array([name for name, _ in self._state["starts"]], pa.string())
        return {
            "id": ids.cast(pa.string()),
            "file": pa.DictionaryArray.from_arrays(pa.array(of.astype(np.int32)), names),
            "row": pa.array(self._files.column("numbers")[rows]),
        }

    def id_of(self, row: int) -> str:
        found: str = self.labels(np.array([row]))["id"][0].as_py()
        return found


def _kind(source: Source) -> str:
    return "texts" if source.is_text else "vectors"


_Found = tuple[tuple[int, int], Groups, "Float64s", Recall, Wide]
"""Bands and their width; groups, and the scores of their rows to the first of each."""


def _group(corpus: _Corpus, wanted: Mapping[str, Any], progress: Progress) -> _Found:
    rows, workers = corpus.rows(), Workers(wanted["threads"])
    min_score: float = wanted["min_score"]
    progress("choosing bands", None)
    bands, width = corpus.choose_bands(lambda: choose_bands(rows, min_score, wanted["recall"]))
    grouping = Grouping(rows, corpus.folder, bands, width, workers, wanted["memory_bytes"])
    grouping.hash(partial(progress, "hashing"))
    roots, wide = grouping.connect(min_score, partial(progress, "comparing"))
    groups = groups_of(roots, rows.norms, wanted["keep"])
    progress("scoring", None)
    scores = [np.empty(0), *scores_to_first(rows, groups, workers)]
    recall = measure_recall(rows, roots, min_score, workers, partial(progress, "checking"))
    return (bands, width), groups, np.concatenate(scores), recall, wide


def _write_tables(corpus: _Corpus, folder: Path, groups: Groups, scores: Float64s) -> None:
    """Write the files of a result; each appears when it is whole."""
    import pyarrow as pa  # noqa: PLC0415

    numbers = np.repeat(np.arange(len(groups.starts) - 1), np.diff(groups.starts))
    firsts = groups.rows[groups.starts[:-1]]

    def members() -> Iterator[dict[str, Any]]:
        for run in _runs(len(groups.rows)):
            group = numbers[run]
            yield {
                **corpus.labels(groups.rows[run]),
                "group": pa.array(group),
                "representative": corpus.labels(firsts[group])["id"],
                "score": pa.array(scores[run]),
            }

    is_removed = np.zeros(len(corpus), np.bool_)
    is_removed[groups.rows] = True
    is_removed[firsts] = False
    _write_table(folder / "groups.parquet", members())
    for name, wanted in (("kept", False), ("removed", True)):
        rows = np.flatnonzero(is_removed == wanted)
        parts = (corpus.labels(rows[run]) for run in _runs(len(rows)))
        _write_table(folder / f"{name}.parquet", parts)


def _runs(count: int) -> Iterator[slice]:
    """Yield parts of a count; one of none."""
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


def _report(corpus: _Corpus, found: _Found, min_score: float, seconds: float) -> Deduplicated:
    (bands, width), groups, _, recall, wide = found
    count = len(groups.starts) - 1
    removed = len(groups.rows) - count
    rejected, dropped = corpus.left_out
    return Deduplicated(
        rows=len(corpus),
        kept=len(corpus) - removed,
        removed=removed,
        groups=count,
        rejected=rejected,
        dropped=dropped,
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
        widest_id=None if wide.row is None else corpus.id_of(wide.row),
        seconds=seconds,
    )
