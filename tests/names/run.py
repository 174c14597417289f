"""Rounds of operations that begin together on one name, and what each must leave."""

from __future__ import annotations

import random
import sqlite3
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import orjson

from gcws_search.index.collection.check import findings_of
from gcws_search.index.collection.reclaim import vacuum_directory
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.errors import GcwsError
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    ExactParams,
    GcwsParams,
    SearchParams,
)
from gcws_search.index.storage.snapshots import sha256_of
from tests.names.states import Contents, Done, Items, Operation, State, possible
from tests.support.index.items import DIM, opened_catalog, put, vector
from tests.support.index.policies import FEW_ROWS

NAME: Final = "things"
CONFIG: Final = CollectionConfig(dim=DIM, backend=GcwsParams(bands=2))
ROUNDS_A_START: Final = 12
"""On average."""
_SNAPSHOTS: Final = ("s", "t")
_BACKENDS: Final = ("first", "second")
_SECONDS: Final = 120
_SMALL: Final = 20
_LARGE: Final = 2000
_KINDS: Final = {
    "create": 6, "drop": 4, "restore": 6, "snapshot": 5, "upload": 3, "remove": 3, "put": 8,
    "load": 4, "delete": 3, "attach": 3, "detach": 3, "query": 4, "settle": 2, "close": 0.7,
}  # fmt: skip


class Differs(AssertionError):
    """Memory, a file or an answer is not what operations were told."""


class Rounds:
    """Catalogs of one directory, one after the other, each used by several threads at once.

    ``folder``: Empty. ``rows``: items of a large load.
    """

    def __init__(self, folder: Path, seed: int, rows: int) -> None:
        self._directory = folder / "data"
        self._random = random.Random(seed)
        self._rows = rows
        self._version = 0
        self.counts = Counter[str]()
        self.restarts = 0
        self._files = [self._made(folder / f"file-{number}", number) for number in range(2)]
        self._catalog = opened_catalog(self._directory, FEW_ROWS, durability="normal")
        self._interval = sys.getswitchinterval()
        self.state = State()

    def _made(self, folder: Path, number: int) -> tuple[bytes, Contents]:
        """Return a file to send, and what it holds."""
        with closing(opened_catalog(folder, FEW_ROWS)) as catalog:
            stored = catalog.create(NAME, CONFIG)[0]
            items = self._drawn(self._rows if number else 3)
            put(stored, dict(items))
            if number:
                stored.attach(ExactParams(), "first")
            content = catalog.snapshot(NAME).path.read_bytes()
        return content, Contents(items, frozenset(["first"] if number else []))

    def _drawn(self, most: int) -> Items:
        self._version += 1
        numbers = self._random.sample(range(2 * most), self._random.randint(1, most))
        return frozenset((f"i{number}", float(self._version % 1000 + 1)) for number in numbers)

    def _operation(self) -> Operation:
        [kind] = self._random.choices(list(_KINDS), list(_KINDS.values()))
        name, puts, contents = "", tuple[Items, ...](), None
        match kind:
            case "restore" | "snapshot" | "remove" | "upload":
                name = self._random.choice(_SNAPSHOTS)
            case "attach" | "detach":
                name = self._random.choice(_BACKENDS)
            case "put" | "delete":
                puts = (self._drawn(20),)
            case "load":
                puts = tuple(self._drawn(self._rows) for _ in range(3))
        if kind == "upload":
            _, contents = self._random.choice(self._files)
        return Operation(kind, name, puts, contents, replace=self._random.random() < 2 / 3)

    def run(self, count: int) -> None:
        for _ in range(count):
            sys.setswitchinterval(self._random.choice([0.005, 0.0005, 0.00002]))
            self._round()
            if self._random.random() < 1 / ROUNDS_A_START:
                self._restart()
        self._restart()

    def _round(self) -> None:
        plans = [
            [self._operation() for _ in range(self._random.choice([1, 1, 2, 3]))]
            for _ in range(self._random.choice([1, 2, 2, 3, 3]))
        ]
        threads = self._done(plans)
        for thread in threads:
            for done in thread:
                self.counts[f"{done.operation.kind} {done.outcome}"] += 1
        if any(operation.kind == "close" for plan in plans for operation in plan):
            self._reopen()
        found = self._observed()
        states = possible(self.state, threads)
        if found not in states:
            raise Differs("before", self.state, "done", threads, "possible", states, "now", found)
        self.state = found

    def _done(self, plans: Sequence[Sequence[Operation]]) -> list[list[Done]]:
        """Do what is planned, each plan in a thread of its own, all at once."""
        together = threading.Barrier(len(plans))
        threads: list[list[Done]] = [[] for _ in plans]
        errors: list[BaseException] = []

        def run(plan: Sequence[Operation], ended: list[Done]) -> None:
            together.wait(_SECONDS)
            try:
                for operation in plan:
                    ended.append(self._tried(operation))
            except BaseException as error:
                error.add_note(repr(plan))
                errors.append(error)

        running = [
            threading.Thread(target=run, args=each) for each in zip(plans, threads, strict=True)
        ]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join(_SECONDS)
            if thread.is_alive():
                raise Differs("an operation does not end", plans, threads)
        if errors:
            raise Differs("an error of no known class", plans, threads) from errors[0]
        return threads

    def _tried(self, operation: Operation) -> Done:
        acknowledged: list[Items] = []
        try:
            outcome, seen = self._do(operation, acknowledged)
        except GcwsError as error:
            outcome, seen = type(error).__name__, None
        return Done(operation, outcome, len(acknowledged), seen)

    def _do(self, operation: Operation, acknowledged: list[Items]) -> tuple[str, Any]:
        catalog, name = self._catalog, operation.name
        match operation.kind:
            case "create":
                _, is_new = catalog.create(NAME, CONFIG)
                return ("done" if is_new else "there"), None
            case "close":
                catalog.close()
            case "drop":
                catalog.drop(NAME)
            case "restore":
                catalog.restore(NAME, name, replace=operation.replace)
            case "snapshot":
                catalog.snapshot(NAME, name)
            case "remove":
                catalog.snapshots.remove(NAME, name)
            case "upload":
                self._upload(operation)
            case _:
                return "done", self._use(catalog.get(NAME), operation, acknowledged)
        return "done", None

    def _upload(self, operation: Operation) -> None:
        [content] = [content for content, contents in self._files if contents == operation.contents]
        incoming = self._catalog.snapshots.incoming(NAME, operation.name)
        try:
            incoming.write(content)
            incoming.finish(None)
        finally:
            incoming.discard()

    @staticmethod
    def _use(
        stored: StoredCollection, operation: Operation, acknowledged: list[Items]
    ) -> Items | None:
        match operation.kind:
            case "put" | "load":
                for items in operation.puts:
                    put(stored, dict(items))
                    acknowledged.append(items)
            case "delete":
                stored.delete([item_id for items in operation.puts for item_id, _ in items])
            case "attach":
                stored.attach(ExactParams(), operation.name)
            case "detach":
                stored.detach(operation.name)
            case "settle":
                stored.finish_background_work()
            case "query":
                return _found(stored)
        return None

    # What there is

    def _observed(self) -> State:
        """Return what memory holds, after comparing it with the files."""
        left = [path.name for path in self._directory.rglob(".*")]
        _expect(not left, "left behind", left)
        collection = None
        if NAME in self._catalog:
            collection = self._compared(self._catalog.get(NAME))
        else:
            files = [path.name for path in self._directory.glob(f"{NAME}.sqlite*")]
            _expect(not files, "files of no collection", files)
        snapshots = self._catalog.snapshots.list(NAME)
        for snapshot in snapshots:
            _expect(sha256_of(snapshot.path) == snapshot.sha256, "another checksum", snapshot)
        return State(
            collection,
            frozenset((each.name, _contents_of(each.path, "immutable=1")) for each in snapshots),
        )

    def _compared(self, stored: StoredCollection) -> Contents:
        described = stored.describe()
        backends = frozenset(each.name for each in described.backends[1:])
        _expect(all(each.status == "ready" for each in described.backends), described)
        memory = Contents(_found(stored), backends)
        _expect(described.items == len(memory.items), "another count", described, memory)
        paged = frozenset(
            (item.id, orjson.loads(item.payload or b"")["x"])
            for item in stored.page(limit=1 << 20, with_vector=True).items
        )
        _expect(paged == memory.items, "pages differ", paged, memory)
        path = self._directory / f"{NAME}.sqlite"
        file = _contents_of(path, "mode=ro")
        _expect(file == memory, "the file differs", file, memory)
        findings = findings_of(path, NAME)
        _expect(not findings, "damaged", findings)
        return memory

    # Starting anew

    def _restart(self) -> None:
        """Close and open the directory; sometimes its files are written anew between."""
        self._catalog.close()
        if self._random.random() < 1 / 2:
            for vacuumed in vacuum_directory(self._directory):
                _expect(vacuumed.error is None, vacuumed)
        self._reopen()
        found = self._observed()
        _expect(found == self.state, "differs after a start", found, self.state)

    def _reopen(self) -> None:
        self._catalog.close()
        self._catalog = opened_catalog(self._directory, FEW_ROWS, durability="normal")
        self.restarts += 1

    def close(self) -> None:
        sys.setswitchinterval(self._interval)
        self._catalog.close()


def _expect(holds: object, *told: object) -> None:
    if not holds:
        raise Differs(*told)


def _found(stored: StoredCollection) -> Items:
    """Return all items as a search finds them."""
    query = stored.space.from_items([vector(1.0)])
    [result] = stored.search(query, SearchParams(limit=1 << 20, recall=1.0))
    shown = zip(result.ids, result.payloads or (), strict=True)
    return frozenset((item_id, orjson.loads(payload or b"")["x"]) for item_id, payload in shown)


def _contents_of(path: Path, how: str) -> Contents:
    """Return what a file holds, after looking for damage."""
    with closing(sqlite3.connect(f"{path.as_uri()}?{how}", uri=True)) as connection:
        [[verdict]] = connection.execute("PRAGMA integrity_check").fetchall()
        _expect(verdict == "ok", path, verdict)
        rows = connection.execute("SELECT id, payload FROM items").fetchall()
        backends = connection.execute("SELECT name FROM backends").fetchall()
    items = frozenset((item_id, orjson.loads(payload)["x"]) for item_id, payload in rows)
    return Contents(items, frozenset(name for [name] in backends))


def live(seed: int, count: int) -> Counter[str]:
    """Return how often each operation ended how."""
    rows = _LARGE if seed % 3 == 0 else _SMALL
    with tempfile.TemporaryDirectory() as name, closing(Rounds(Path(name), seed, rows)) as made:
        try:
            made.run(count)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        return made.counts + Counter(restart=made.restarts)
