"""Check files that no process has open, and repair them: findings and lost items."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from gcws_search.index.backends import make_backend
from gcws_search.index.collection.audit import tallies_of
from gcws_search.index.collection.items import check_ids, check_life
from gcws_search.index.collection.recovery import config_of, params_of
from gcws_search.index.collection.writer import codes_to_blobs
from gcws_search.index.contracts.errors import (
    DamagedFile,
    IncompatibleFile,
    InvalidInput,
    StoreError,
)
from gcws_search.index.contracts.saved_index import next_id_of, notes_of
from gcws_search.index.hashing.gcws import ALGORITHM_VERSION
from gcws_search.index.payload import is_payload, metadata_of
from gcws_search.index.storage.connection import storage_errors
from gcws_search.index.storage.data_directory import DataDirectory, discard, sync_file
from gcws_search.index.storage.graph_parts import unpack
from gcws_search.index.storage.lost_log import keep_lost_commits
from gcws_search.index.storage.opened_files import read_note, second_name
from gcws_search.index.storage.salvage import FoundRow, Salvage
from gcws_search.index.storage.schema import (
    Change,
    RowBatch,
    codes_checksum,
    content_checksum,
    life_checksum,
)
from gcws_search.index.storage.store import MetaName, Store
from gcws_search.index.vectors.names import CoordinateNames, NamedCoordinate
from gcws_search.index.vectors.space import VectorSpace
from gcws_search.index.vectors.weights import Weights

_MAX_LISTED: Final = 100
_NOTED: Final[tuple[tuple[MetaName, str, Callable[[str], object]], ...]] = (
    ("notes", "notes", notes_of),
    ("audit", "results of the audit", tallies_of),
    ("metadata", "metadata", metadata_of),
    ("next_id", "number of the next item without an id", next_id_of),
    ("weights", "weights", Weights.from_text),
)
"""What a file notes beside its rows: its name, what it is, and what reads it or raises."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Report:
    """The result of checking one collection's file.

    items: rows that are intact.
    findings: the problems, one per line; empty if there are none.
    more: number of further problems.
    lost: number of items that can no longer be read.
    repaired: whether the file was replaced by one with everything intact.
    """

    name: str
    items: int = 0
    findings: list[str] = field(default_factory=list)
    more: int = 0
    lost: int = 0
    repaired: bool = False

    @property
    def is_sound(self) -> bool:
        """Whether there are no problems."""
        return not self.findings

    def find(self, what: str) -> None:
        """Add a problem."""
        if len(self.findings) < _MAX_LISTED:
            self.findings.append(what)
        else:
            self.more += 1

    def lose(self, what: str) -> None:
        """Add a lost item."""
        self.lost += 1
        self.find(what)


def check_directory(path: Path, *, repair: bool = False) -> Iterator[Report]:
    """Yield the report of each collection of a data directory, by name.

    repair: whether to replace a damaged file by one with everything intact. The damaged file is
        kept beside it, as ``NAME.sqlite.damaged-NUMBER``.
    Raises DirectoryLocked.
    """
    with closing(DataDirectory(path)) as directory:
        for name in directory.names():
            yield check_file(directory, name, repair=repair)


def check_file(directory: DataDirectory, name: str, *, repair: bool) -> Report:
    """Return the report of one collection's file, and repair the file if requested."""
    report = Report(name)
    try:
        path = directory.file(name)
        with storage_errors(name):
            note, lost, second = read_note(path), keep_lost_commits(path), second_name(path)
        for each in (note, lost):
            if each is not None:
                report.find(each)
        if second:
            report.find(f"expected a file with one name, got {second}")
        Examination(path, report).run(None)
        if repair and report.findings:
            _repair(directory, report)
    except IncompatibleFile as error:
        report.find(str(error))
    except DamagedFile as error:
        report.find(f"{error}; nothing can be done but to restore a snapshot")
    except StoreError as error:
        report.find(f"{error}; it can be tried again")
    return report


def findings_of(path: Path, name: str) -> list[str]:
    """Return why a file that no process has open cannot be loaded as a collection; empty if it can.

    The saved index is not checked, because a load rebuilds damaged parts.

    Raises DamagedFile, IncompatibleFile (it is not a collection), DiskFull, OutOfDescriptors,
        StorageFailed (it cannot be read).
    """
    report = Report(name)
    try:
        Examination(path, report).run(None, derived=False, skips_unreadable=False)
    except StoreError:
        raise
    except Exception as error:
        _log.exception("a file for collection %r could not be examined", name)
        raise DamagedFile(name, f"it could not be examined ({error!r})") from error
    return report.findings


def _repair(directory: DataDirectory, report: Report) -> None:
    """Replace a damaged file by one with everything that is intact."""
    name, unfinished = report.name, directory.unfinished_path(report.name)
    try:
        examination = Examination(directory.file(name), Report(name))
        Store.create(unfinished, name, examination.identity_of_copy)
        with closing(Store(unfinished, name, durability="normal")) as copy:
            examination.run(copy)
        with storage_errors(name):
            sync_file(unfinished)
        directory.set_aside(name)
        directory.publish(unfinished, name)
    finally:
        discard(unfinished)
    report.repaired = True


class Examination:
    """One pass over a file from its first row to its last; the file has the present format.

    identity_of_copy: the identity that the copy is given.
    Raises DamagedFile, IncompatibleFile.
    """

    def __init__(self, path: Path, report: Report) -> None:
        with closing(Store(path, report.name, despite_note=True)) as store:
            identity, self._last_sequence = store.identity, store.next_sequence - 1
            weights = store.meta("weights")
        config = config_of(identity, report.name)
        self._path = path
        self.identity_of_copy = replace(identity, algorithm_version=ALGORITHM_VERSION)
        self._is_outdated = identity != self.identity_of_copy
        self._report = report
        self._space = VectorSpace.of(config, _weights_of(weights, report.name))
        self._backend = make_backend(config)

    def run(
        self, copy: Store | None, *, derived: bool = True, skips_unreadable: bool = True
    ) -> None:
        """Examine everything; whatever is intact, or can be restored, is written to ``copy``.

        derived: whether to check also what can be rebuilt from the items, except their codes.
        skips_unreadable: whether to skip rows that the storage cannot read.
        """
        salvage = Salvage(self._path, self._report.name, skips_unreadable=skips_unreadable)
        with closing(salvage) as file:
            self._report.findings.extend(file.problems())
            missing = file.ids()
            for rows in file.rows(self._last_sequence):
                for row in rows:
                    missing.pop(row.sequence, None)
                sound = self._examine([row for row in rows if self._is_written(row)])
                self._report.items += len(sound)
                if copy is not None:
                    _append(copy, sound)
            for sequence, item_id in sorted(missing.items()):
                self._report.lose(f"row {sequence}, id {item_id!r}, cannot be read")
            if derived:
                self._examine_links(file, copy)
            self._examine_backends(file, copy, derived=derived)
            self._examine_loads(file, copy)
            self._examine_names(file, copy)
            self._examine_meta(file, copy)

    def _is_written(self, row: FoundRow) -> bool:
        """Whether a row's content matches its checksum; a mismatch is reported."""
        try:
            content = content_checksum(row.id, row.vector, row.payload)
            content_is_right = life_checksum(content, row.version, row.expires) == row.checksum
            if content_is_right:
                check_life([row.version], [row.expires])
                check_ids([row.id.decode()])
                content_is_right = row.payload is None or is_payload(row.payload)
        except (TypeError, ValueError, InvalidInput):
            content_is_right = False
        if not content_is_right:
            self._report.lose(f"row {row.sequence}, id {_shown(row.id)}, is damaged")
        return content_is_right

    def _examine(self, rows: list[FoundRow]) -> list[FoundRow]:
        """Return the rows that hold vectors, with the codes of these vectors."""
        if not rows:
            return []
        try:
            vectors = self._space.from_file([row.vector for row in rows])
            codes = codes_to_blobs(self._backend.encode(vectors))
        except (ValueError, InvalidInput):
            if len(rows) > 1:
                return [sound for row in rows for sound in self._examine([row])]
            self._report.lose(f"row {rows[0].sequence}, id {_shown(rows[0].id)}, holds no vector")
            return []
        return [self._encode(row, right) for row, right in zip(rows, codes, strict=True)]

    def _encode(self, row: FoundRow, codes: bytes) -> FoundRow:
        checksum = codes_checksum(codes)
        if row.codes == codes and row.codes_checksum == checksum:
            return row
        # Codes of an earlier hash are replaced at the next load.
        is_own = isinstance(row.codes, bytes) and row.codes_checksum == codes_checksum(row.codes)
        if not (self._is_outdated and is_own):
            self._report.find(f"row {row.sequence}, id {_shown(row.id)}, has wrong codes")
        return replace(row, codes=codes, codes_checksum=checksum)

    def _examine_links(self, file: Salvage, copy: Store | None) -> None:
        """Check the saved index; the next start rebuilds lost parts."""
        for part, data in file.links():
            try:
                unpack(part, data)
            except ValueError as error:
                self._report.find(f"part {part} of the links: {error}")
                continue
            if copy is not None:
                copy.write_links(part, data)

    def _examine_meta(self, file: Salvage, copy: Store | None) -> None:
        """Check the file's metadata."""
        for name, told, read in _NOTED:
            text = file.meta(name)
            if text is None:
                continue
            try:
                read(text)
            except (ValueError, KeyError, TypeError) as error:
                self._report.find(f"the {told}: {error}")
                continue
            if copy is not None:
                copy.write_meta(name, text)

    def _examine_backends(self, file: Salvage, copy: Store | None, *, derived: bool) -> None:
        for record, is_written in file.backends():
            kept = record
            try:
                if derived and record.notes is not None:
                    notes_of(record.notes)
            except ValueError as error:
                self._report.find(f"the notes of backend {record.name!r}: {error}")
                kept = replace(record, notes=None)
            try:
                params_of(record, self._backend.kind)
            except (ValueError, InvalidInput):
                is_written = False  # noqa: PLW2901
            if not is_written:
                self._report.find(f"backend {record.name!r} is damaged and must be attached again")
            elif copy is not None:
                copy.add_backend(kept)

    def _examine_loads(self, file: Salvage, copy: Store | None) -> None:
        for record, is_written in file.loads():
            if not is_written:
                self._report.find(f"load {record.key!r} is damaged; it is removed")
            elif copy is not None:
                copy.save_load(record, 0)

    def _examine_names(self, file: Salvage, copy: Store | None) -> None:
        sound = []
        for coordinate, name, is_written in file.names():
            try:
                if not is_written:
                    raise ValueError("its checksum does not match")
                CoordinateNames(self._space.dim).load([NamedCoordinate(coordinate, name)])
            except ValueError as error:
                self._report.find(f"the name of coordinate {coordinate}: {error}")
            else:
                sound.append((coordinate, name))
        if copy is not None:
            copy.replace_names(sound)


def _weights_of(text: str | None, name: str) -> Weights | None:
    """Return the weights of a file; DamagedFile if they do not match their checksum."""
    try:
        return None if text is None else Weights.from_text(text)
    except ValueError as error:
        raise DamagedFile(name, f"its weights are damaged ({error})") from error


def _append(copy: Store, rows: Sequence[FoundRow]) -> None:
    if rows:
        columns = RowBatch(
            [row.id.decode() for row in rows],
            [row.vector for row in rows],
            [row.codes for row in rows],
            [row.payload for row in rows],
            [row.sequence for row in rows],
            [row.version for row in rows],
            [row.expires for row in rows],
        )
        copy.write([Change(rows=columns)])


def _shown(item_id: object) -> str:
    text = item_id.decode(errors="replace") if isinstance(item_id, bytes) else item_id
    return repr(text)[:80]
