"""Files with other values and right checksums, or other bytes: refused, or read and served."""

import hashlib
import shutil
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
import orjson
from hypothesis import strategies as st

from gcws_search.index import (
    Catalog,
    CollectionConfig,
    DamagedFile,
    DamagedSnapshot,
    GcwsParams,
    IncompatibleFile,
    ItemBatch,
    NystroemParams,
    Policies,
    SearchParams,
    SparseVector,
    StoredCollection,
    Transform,
    parse_filter,
)
from gcws_search.index.contracts.saved_index import text_of
from gcws_search.index.graph.lifecycle import GraphPolicy
from gcws_search.index.graph.search import GraphSearch
from gcws_search.index.storage.schema import (
    backend_checksum,
    codes_checksum,
    content_checksum,
    life_checksum,
    text_checksum,
)
from tests.support.index.items import opened_catalog

ITEMS: Final = 150
MIN_LINKED: Final = 100
"""Collections of so many rows have lists, while files are tried."""
DIM: Final = 6
CONFIGS: Final = {
    "dense": CollectionConfig(dim=DIM, backend=GcwsParams(bands=16)),
    "sparse": CollectionConfig(
        dim=None, backend=GcwsParams(bands=16), transform=Transform(normalize="l1")
    ),
    "learned": CollectionConfig(dim=DIM, backend=NystroemParams(kind="rbf_nystroem", landmarks=8)),
}
SMALL_GRAPHS: Final = Policies(graph=GraphPolicy(min_rows=MIN_LINKED, scan_factor=0.0))
"""Collections of a few rows have graphs."""
BESIDE: Final = "beside"
"""A sound collection that must never notice anything."""
BYTES: Final = "bytes"
"""The kind of change that no checksum follows: what is read must be what was written."""
DERIVED: Final = ("links", "head", "keys", "notes", "backend notes")
"""Kinds of change to what can be made anew: no file is refused for them."""

_HEAD: Final = struct.Struct("<4s4I")


@contextmanager
def small_lists() -> Iterator[None]:
    """Let graphs of a few rows be searched: files are small then."""
    with mock.patch.object(GraphSearch, "scan_nanoseconds", return_value=np.inf):
        yield


def opened(folder: Path) -> AbstractContextManager[Catalog]:
    return closing(opened_catalog(folder, SMALL_GRAPHS, durability="normal"))


def _vectors(stored: StoredCollection) -> Any:  # noqa: ANN401
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(ITEMS, DIM)).round(3)
    if stored.config.dim is not None:
        return stored.space.from_items(rows.tolist())
    return stored.space.from_items([SparseVector([0, 1, 5, 9, 70, 1000], row) for row in rows])


def put_items(stored: StoredCollection) -> None:
    """Put items, some of them deleted again, and let indexes be made."""
    ids = [f"{stored.name}-{number}" for number in range(ITEMS)]
    payloads = [f'{{"n":{number}}}'.encode() for number in range(ITEMS)]
    stored.put(ItemBatch(ids, _vectors(stored), [*payloads]))
    stored.delete(ids[::40])
    stored.attach(NystroemParams(kind="gmm_nystroem", landmarks=8), "extra")
    stored.finish_background_work()


def shown(stored: StoredCollection) -> list[str]:
    """Return ids, vectors and payloads of all items."""
    return [*map(repr, stored.page(limit=1000, with_vector=True).items)]


_NOTES: Final = {"meta": ("value", "name = 'notes'"), "backends": ("notes", "notes IS NOT NULL")}


def rewrite_notes(
    file: sqlite3.Connection, change: Callable[[Any], Any], table: str = "meta"
) -> None:
    """Replace the notes of the primary backend, or those of the attached ones."""
    column, where = _NOTES[table]
    for row, text in file.execute(f"SELECT rowid, {column} FROM {table} WHERE {where}").fetchall():
        new = text_of(change(orjson.loads(text.partition(" ")[2])))
        file.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (new, row))


def rewrite_config(file: sqlite3.Connection, change: Callable[[Any], Any]) -> None:
    """Replace the configuration."""
    [(text,)] = file.execute("SELECT value FROM meta WHERE name = 'config'")
    new = orjson.dumps(change(orjson.loads(text))).decode()
    written = (new, "config"), (str(text_checksum(new)), "config_checksum")
    file.executemany("UPDATE meta SET value = ? WHERE name = ?", written)


def rewrite_links(file: sqlite3.Connection, change: Callable[[bytearray], int | None]) -> None:
    """Change parts of links in place; a number that is returned is the new one of the part."""
    for part, data in file.execute("SELECT part, data FROM links").fetchall():
        changed = bytearray(data)
        number = change(changed)
        head, body = changed[: _HEAD.size - 4], changed[_HEAD.size :]
        checksum = struct.pack("<I", zlib.crc32(body, zlib.crc32(head)))
        file.execute(
            "UPDATE links SET part = ?, data = ? WHERE part = ?",
            (part if number is None else number, bytes(head + checksum + body), part),
        )


def rewrite_row(
    file: sqlite3.Connection,
    key: int,
    version: int = 1,
    expires: int | None = None,
    **columns: Any,  # noqa: ANN401
) -> None:
    """Replace id, vector, codes or payload (bytes), version and expiry of a row."""
    query = "SELECT id, vector, codes, CAST(payload AS BLOB) FROM items WHERE key = ?"
    [held] = file.execute(query, (key,))
    row = dict(zip(("id", "vector", "codes", "payload"), held, strict=True)) | columns
    content = content_checksum(row["id"].encode(), row["vector"], row["payload"])
    checksums = life_checksum(content, version, expires), codes_checksum(row["codes"])
    file.execute(
        "UPDATE OR IGNORE items SET id = ?, vector = ?, codes = ?, payload = CAST(? AS TEXT), "
        "version = ?, expires = ?, checksum = ?, codes_checksum = ? WHERE key = ?",
        (*row.values(), version, expires, *checksums, key),
    )


def _calibrate(notes: Any) -> Any:  # noqa: ANN401
    """Let lists be walked for any recall: so few items measure next to nothing."""
    if "calibration" in notes:
        typical = {
            "settings": [0.3, 1.0, 1.2, 2.0],
            "recalls": [0.6, 0.9, 0.97, 0.999],
            "candidates": [9.0, 30.0, 50.0, 90.0],
        }
        extension = {"settings": [1.0, 1.2], "recalls": [0.9, 0.999], "candidates": [50.0, 90.0]}
        rest = {"extended": [0.1] * 4, "hard_items": [0.9, 0.999], "scores": [0.1, 0.05, 0.0]}
        notes["calibration"]["curves"] = [
            {"limit": limit, "typical": typical, "hard": extension, "foreign": extension, **rest}
            for limit in (1, 10, 30, 100)
        ]
    return notes


@dataclass(frozen=True)
class Sound:
    """Files of collections that were closed well, with lists, notes and an attached backend."""

    folder: Path
    items: dict[str, list[str]]

    @classmethod
    def made(cls, folder: Path) -> "Sound":
        items = {}
        with small_lists(), opened(folder) as catalog:
            for name, config in CONFIGS.items():
                stored, _ = catalog.create(name, config)
                put_items(stored)
                items[name] = shown(stored)
        for name in CONFIGS:
            with closing(sqlite3.connect(folder / f"{name}.sqlite")) as file:
                file.execute("PRAGMA journal_mode = DELETE").fetchall()
                rewrite_notes(file, _calibrate)
                file.commit()
        return cls(folder, items)

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.sqlite"


# What is put in the place of a value.

HOSTILE: Final[st.SearchStrategy[Any]] = st.sampled_from(
    [
        None, True, False, 0, 1, -1, 2, 3, 7, 100, 255, 256, 1 << 31, -(1 << 31), (1 << 32) - 1,
        1 << 62, (1 << 63) - 1, -(1 << 63), 1 << 63, (1 << 64) - 1, 0.0, -0.0, 0.5, 1.5, -1.5,
        1e-300, 1e300, -1e300, 1e18, 1e-9, "", "x", "1", "gcws", "é" * 300, [], [0], [[]],
        [1e300] * 3, [None], list(range(2000)), {}, {"a": 1}, {"version": 8},
    ]
)  # fmt: skip
VALUES: Final = HOSTILE | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False)
SHARES: Final = st.floats(0, 1, exclude_max=True)
NUMBERS: Final = st.sampled_from(
    [0, 1, 2, 5, 31, 32, 33, 64, 65, 1023, 1024, 1025, 1 << 16, (1 << 31) - 1, 1 << 31, -1 % 2**32]
) | st.integers(0, 2**32 - 1)
FLOATS: Final = st.sampled_from(
    [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 3e38, -3e38, 1e-45, 1e-38, 1.0]
) | st.floats(width=32)

Changes = list[tuple[float, Any]]
Target = Callable[[sqlite3.Connection, Changes], None]


def _paths(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401
    """Yield the paths of all values inside a document."""
    inner = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in inner:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from _paths(value, (*path, key))


def _changed(document: Any, changes: Changes) -> Any:  # noqa: ANN401
    """Return a JSON object with values replaced, removed, swapped with others, or doubled."""
    for share, new in changes:
        paths = [*_paths(document)]
        if not paths:
            break
        *path, last = paths[int(share * len(paths))]
        place = document
        for key in path:
            place = place[key]
        if new == "x" and isinstance(place, dict):
            del place[last]
        elif new == "1" and isinstance(place, list):
            place.reverse()
        elif new == "" and isinstance(place, list):
            place.append(place[-1])
        else:
            place[last] = deepcopy(new)
    return document


def _notes(file: sqlite3.Connection, changes: Changes, table: str = "meta") -> None:
    """Replace values of what an index has measured, or learned."""
    rewrite_notes(file, lambda notes: _changed(notes, changes), table)


def _whole_notes(file: sqlite3.Connection, changes: Changes) -> None:
    """Put something else in the place of all notes."""
    document = orjson.dumps(changes[0][1]).decode() if _fits(changes[0][1]) else "[]"
    text = f"{zlib.crc32(document.encode()):08x} {document}"
    file.execute("UPDATE meta SET value = ? WHERE name = 'notes'", (text,))
    file.execute("UPDATE backends SET notes = ?", (text,))


def _fits(value: object) -> bool:
    return not isinstance(value, int) or -(1 << 63) <= value < 1 << 64


def _config(file: sqlite3.Connection, changes: Changes) -> None:
    rewrite_config(file, lambda config: _changed(config, changes))


def _description(file: sqlite3.Connection, changes: Changes) -> None:
    names = ("format_version", "algorithm_version", "config_checksum", "config")
    for share, new in changes:
        name = names[int(share * len(names))]
        file.execute("UPDATE meta SET value = ? WHERE name = ?", (str(new), name))


def _backends(file: sqlite3.Connection, changes: Changes) -> None:
    """Replace parameters, kinds and names of attached backends."""
    for name, kind, params in file.execute("SELECT name, kind, params FROM backends").fetchall():
        columns = {"name": name, "kind": kind, "params": params}
        for share, new in changes:
            column = ("name", "kind", "params")[int(share * 3)]
            if column == "params":
                changed = _changed(orjson.loads(columns[column]), [(share * 3 % 1, new)])
                columns[column] = orjson.dumps(changed).decode()
            else:
                columns[column] = str(new)
        file.execute(
            "UPDATE OR REPLACE backends SET name = ?, kind = ?, params = ?, checksum = ? "
            "WHERE name = ?",
            (*columns.values(), backend_checksum(**columns), name),
        )


def _sequence(file: sqlite3.Connection, changes: Changes) -> None:
    for _, new in changes:
        value = str(new) if isinstance(new, list | dict) or not _in_sql(new) else new
        file.execute("UPDATE sqlite_sequence SET seq = ?", (value,))


def _in_sql(value: object) -> bool:
    return not isinstance(value, int) or -(1 << 63) <= value < 1 << 63


def _part_head(file: sqlite3.Connection, changes: Changes) -> None:
    """Replace what a part of links says of its shape, or its number, or cut it."""

    def change(data: bytearray) -> int | None:
        number = None
        for share, new in changes:
            what = int(share * 5)
            if what < 3:
                struct.pack_into("<I", data, 4 + 4 * what, int(new) % 2**32)
            elif what == 3:
                number = int(new) if int(new) % 2 else -int(new)
            else:
                del data[max(_HEAD.size, int(new) % len(data)) :]
        return number

    rewrite_links(file, change)


def _part_keys(file: sqlite3.Connection, changes: Changes) -> None:
    """Replace keys of rows, and keys that lists name."""

    def change(data: bytearray) -> None:
        words = (len(data) - _HEAD.size) // 4
        for share, new in changes:
            struct.pack_into("<I", data, _HEAD.size + 4 * int(share * words), int(new) % 2**32)

    rewrite_links(file, change)


def _wide_keys(file: sqlite3.Connection, changes: Changes) -> None:
    """Write a part with keys of 64 bits, signed."""

    def change(data: bytearray) -> None:
        keys = np.frombuffer(data[_HEAD.size :], "<u4").astype("<i8")
        for share, new in changes:
            keys[int(share * len(keys))] = int(new) - (1 << 31) if share < 0.5 else -int(new)
        struct.pack_into("<I", data, 4, 8)
        data[_HEAD.size :] = keys.tobytes()

    rewrite_links(file, change)


def _numbers_of_rows(file: sqlite3.Connection, changes: Changes) -> None:
    """Replace numbers of stored vectors, or whole vectors, and their lengths."""
    rows = file.execute("SELECT key, vector FROM items").fetchall()
    for share, new in changes:
        key, vector = rows[int(share * len(rows))]
        at = int(share * len(rows) * 7919) % max(1, len(vector) // 4)
        changed = bytearray(vector)
        struct.pack_into("<f", changed, 4 * at, new)
        if new == 1.0:
            changed += b"\x00\x00\x80\x3f"
        elif new == 0.0:
            del changed[4 * at :]
        rewrite_row(file, key, vector=bytes(changed))


PAYLOADS: Final = (
    b"", b"1", b"[]", b"null", b"{", b'{"a":1},{"b":2}', b'{"n":' + b"9" * 400 + b"}",
    b'{"n":12345678901234567890123}', b'{"n":NaN}', b'{"a":' + b"[" * 1100 + b"]" * 1100 + b"}",
    b'{"a":1}x', b'{"n":"\\ud800"}', b'{"n":[1,[2],{"n":3}]}',
)  # fmt: skip


def _columns_of_rows(file: sqlite3.Connection, changes: Changes) -> None:
    """Replace ids, payloads, codes and keys of rows."""
    for share, new in changes:
        rows = file.execute("SELECT key, codes FROM items").fetchall()
        key, codes = rows[int(share * len(rows))]
        what, which = int(new) % 6, int(new) // 6
        match what:
            case 0:
                rewrite_row(file, key, id=("", "\x00", "x" * 300, "é" * 255)[which % 4])
            case 1 | 2:
                rewrite_row(file, key, payload=PAYLOADS[which % len(PAYLOADS)])
            case 3:
                rewrite_row(file, key, codes=codes[: which % (len(codes) + 1)])
            case 4:
                rewrite_row(file, key, codes=bytes(int(new) % 256 for _ in codes))
            case 5:
                moved = (0, -1, -(1 << 63), (1 << 63) - 1, 1 << 62, 10**6)[which % 6]
                file.execute("UPDATE OR IGNORE items SET key = ? WHERE key = ?", (moved, key))


SCHEMAS: Final = (
    "CREATE TRIGGER t AFTER INSERT ON items BEGIN DELETE FROM items; END",
    "CREATE VIEW v AS SELECT 1",
    "CREATE TABLE other (a)",
    "CREATE INDEX i ON items (payload)",
    "CREATE UNIQUE INDEX i ON items (checksum)",
    "ALTER TABLE items ADD COLUMN more TEXT",
    "ALTER TABLE items ADD COLUMN more TEXT AS (hex(vector))",
    "ALTER TABLE links ADD COLUMN more INTEGER DEFAULT 5 CHECK (more > 5)",
    "ALTER TABLE backends RENAME COLUMN notes TO remarks",
    "DROP TABLE links",
    "DROP TABLE backends",
    "DROP TABLE meta",
    "DROP TABLE _sqlite_migrations",
    "DELETE FROM _sqlite_migrations",
    "DELETE FROM _sqlite_migrations WHERE name LIKE '0003%'",
    "DELETE FROM _sqlite_migrations WHERE name LIKE '0005%'",
    "INSERT INTO _sqlite_migrations (migration_set, name) VALUES ('collection', '9_x')",
    "UPDATE _sqlite_migrations SET name = NULL",
    "ALTER TABLE meta RENAME TO atem",
    "CREATE VIRTUAL TABLE f USING fts5(a)",
    "PRAGMA page_size = 4096",
    "PRAGMA page_size = 65536",
    "PRAGMA application_id = 5",
    "DELETE FROM meta WHERE name = 'config'",
    "DELETE FROM meta",
    "INSERT INTO meta (name, value) VALUES (NULL, NULL)",
    "UPDATE meta SET value = NULL",
    "UPDATE meta SET value = NULL WHERE name = 'notes'",
    "DELETE FROM items",
    "DELETE FROM items WHERE key % 5",
    "DELETE FROM sqlite_sequence",
    "INSERT INTO sqlite_sequence VALUES ('items', 'x')",
    "UPDATE links SET data = x''",
    "INSERT INTO links VALUES (9223372036854775807, x'00'), (-9223372036854775808, x'')",
    "UPDATE backends SET name = 'gcws'",
    "UPDATE backends SET notes = ''",
)  # fmt: skip


def _schema(file: sqlite3.Connection, changes: Changes) -> None:
    for share, _ in changes:
        statement = SCHEMAS[int(share * len(SCHEMAS))]
        try:
            file.execute(statement)
            if "page_size" in statement:
                file.execute("VACUUM")
        except sqlite3.Error:  # of several changes one may be in another's way
            continue


_EDITS: Final = st.tuples(
    st.sampled_from(["flip", "write", "zero", "cut", "copy", "insert"]),
    SHARES, st.binary(min_size=1, max_size=64),
)  # fmt: skip


def _changed_bytes(data: bytes, changes: Changes) -> bytes:
    out = bytearray(data)
    for where, (how, other, new) in changes:
        at = int(where * len(out))
        match how:
            case "flip" if out:
                out[at] ^= 1 << (new[0] % 8)
            case "write":
                out[at : at + len(new)] = new[: len(out) - at]
            case "zero":
                out[at : at + 512] = bytes(len(out[at : at + 512]))
            case "cut":
                del out[at:]
            case "copy":
                source = out[int(other * len(out)) :][: len(new) * 64]
                out[at : at + len(source)] = source[: len(out) - at]
            case "insert":
                out[at:at] = new
    return bytes(out)


TARGETS: Final[dict[str, tuple[Target, st.SearchStrategy[Any]]]] = {
    "notes": (_notes, VALUES),
    "whole notes": (_whole_notes, VALUES),
    "backend notes": (partial(_notes, table="backends"), VALUES),
    "config": (_config, VALUES),
    "description": (_description, VALUES),
    "backends": (_backends, VALUES),
    "sequence": (_sequence, VALUES),
    "head": (_part_head, NUMBERS),
    "links": (_part_keys, NUMBERS),
    "keys": (_wide_keys, NUMBERS),
    "vectors": (_numbers_of_rows, FLOATS),
    "columns": (_columns_of_rows, NUMBERS),
    "schema": (_schema, st.none()),
}


def _trials() -> st.SearchStrategy[Any]:
    """Return a strategy of a collection, a way in, what is changed, and how."""

    def changes(target: str) -> st.SearchStrategy[Any]:
        pairs = st.tuples(SHARES, _EDITS if target == BYTES else TARGETS[target][1])
        return st.tuples(st.just(target), st.lists(pairs, min_size=1, max_size=3))

    return st.tuples(
        st.sampled_from([*CONFIGS]),
        st.sampled_from(["open", "restore"]),
        st.sampled_from([*TARGETS, BYTES, BYTES]).flatmap(changes),
    )


TRIALS: Final = _trials()


def change(path: Path, target: str, changes: Changes) -> None:
    """Change values of a file, the checksums of all that is changed with them, or its bytes."""
    if target == BYTES:
        path.write_bytes(_changed_bytes(path.read_bytes(), changes))
        return
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("PRAGMA synchronous = OFF")
        file.execute("BEGIN" if target != "schema" else "SELECT 1")
        TARGETS[target][0](file, changes)
        if file.in_transaction:
            file.execute("COMMIT")


@dataclass(frozen=True)
class Bench:
    """A running catalog into which files are brought, beside a sound collection."""

    sound: Sound
    catalog: Catalog
    folder: Path

    @classmethod
    @contextmanager
    def opened(cls, sound: Sound, folder: Path) -> Iterator["Bench"]:
        with small_lists(), opened(folder) as catalog:
            put_items(catalog.create(BESIDE, CONFIGS["dense"])[0])
            (folder / "snapshots" / "tried").mkdir(parents=True)
            yield cls(sound, catalog, folder)

    def copied(self, name: str) -> Path:
        """Return a copy of a sound file, to be changed."""
        path = self.folder / "crafted.sqlite"
        shutil.copy(self.sound.file(name), path)
        return path

    @contextmanager
    def brought_in(self, crafted: Path, way: str) -> Iterator[StoredCollection]:
        """Restore a file, or open a folder that has it; what is beside it must be sound."""
        if way == "restore":
            snapshot = self.folder / "snapshots" / "tried" / "s.sqlite"
            digest = hashlib.sha256(crafted.read_bytes()).hexdigest()
            crafted.rename(snapshot)
            snapshot.with_name("s.sqlite.sha256").write_text(f"{digest}  s.sqlite\n")
            yield self.catalog.restore("tried", "s", replace=True)
            return
        folder = self.folder / "opened"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        crafted.rename(folder / "tried.sqlite")
        shutil.copy(self.sound.file("dense"), folder / f"{BESIDE}.sqlite")
        with opened(folder) as catalog:
            assert BESIDE in [line.name for line in catalog.list()]
            yield catalog.get("tried")

    def try_values(self, trial: Any) -> None:  # noqa: ANN401
        """Bring in a file some of whose values are others than were written."""
        name, way, (target, changes) = trial
        crafted = self.copied(name)
        change(crafted, target, changes)
        try:
            with self.brought_in(crafted, way) as stored:
                require_sound(stored)
                assert target != BYTES or shown(stored) == self.sound.items[name], changes
                require_writable(stored)
        except DamagedSnapshot:
            assert target not in DERIVED, (target, changes)
        except (DamagedFile, IncompatibleFile):
            assert target not in DERIVED, (target, changes)
            if way == "restore":  # it has taken another's place before it failed
                raise
        assert BESIDE in [line.name for line in self.catalog.list()]
        require_sound(self.catalog.get(BESIDE))


def require_sound(stored: StoredCollection) -> None:
    """Ask a collection for all that it shows; what it finds it must hold."""
    items = stored.page(limit=1000, with_vector=True).items
    held = {item.id for item in items}
    assert len(stored) == len(held)
    described = stored.describe()
    assert described.items == len(held)
    assert described.bytes_in_memory >= 0
    orjson.dumps([backend.stats for backend in described.backends])
    if not items:
        return
    vectors: list[Any] = [item.vector for item in items[:4]]
    queries = stored.space.from_items(
        [SparseVector(**each) if isinstance(each, dict) else each for each in vectors]
    )
    for backend in (None, *(each.name for each in described.backends)):
        for params in (
            SearchParams(limit=3),
            SearchParams(limit=40, recall=0.99),
            SearchParams(recall=1.0),
        ):
            for found in stored.search(queries, params, backend=backend):
                assert {*found.ids} <= held
                assert all(0 <= score <= 1 + 1e-6 for score in found.scores)
                assert params.recall < 1 or found.scores[0] > 1 - 1e-5  # itself, or its equal
    where = parse_filter({"must": {"key": "n", "range": {"gte": 0}}})
    for found in stored.search(queries, SearchParams(limit=5), where=where):
        assert {*found.ids} <= held


def require_writable(stored: StoredCollection) -> None:
    """Put an item, find it, and delete it again."""
    some = stored.page(limit=1, with_vector=True).items
    if some:
        vector: Any = some[0].vector
        sent = SparseVector(**vector) if isinstance(vector, dict) else vector
        stored.put(ItemBatch(["new"], stored.space.from_items([sent]), [None]))
        [found] = stored.search(stored.space.from_items([sent]), SearchParams(recall=1.0))
        assert found.scores[0] > 1 - 1e-5
        assert stored.delete(["new"]) == 1
