"""A collection of this process: in a file, or in memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from difflib import get_close_matches
from functools import partial
from itertools import repeat
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, Final, NoReturn
from weakref import WeakSet

import numpy as np
import orjson

from gcws_search import index as ix
from gcws_search.client.errors import note_stored
from gcws_search.client.results import (
    Added,
    AnyHit,
    Compared,
    Count,
    FoundGroups,
    FoundItems,
    GivenIds,
    Hit,
    Hits,
    Item,
    Joined,
    ManyHits,
    Pair,
    hit_of,
    hits_of,
    items_in_order,
    joined_of,
    rejected_of,
    with_fingerprint,
)
from gcws_search.formats.items import Items
from gcws_search.formats.payloads import metadata_text, read_json, write_json
from gcws_search.formats.vectors import (
    in_order,
    is_id,
    is_text,
    name_column,
    points_of,
    row_of,
    rows_of_texts,
)

MEMORY: Final = ":memory:"
_SUFFIX: Final = ".sqlite"
_BATCH_BYTES: Final = 32 << 20


def open_file(
    path: str | Path, config: ix.CollectionConfig | None, **options: Any
) -> EmbeddedCollection:
    """Return the collection of a file, or of ":memory:"; see `Collection.open`.

    ``options``: ``durability`` and ``threads``.
    """
    if str(path) == MEMORY:
        if config is None:
            raise ix.InvalidParameter(
                expected="dim, the number of coordinates, or None for an open space of sparse "
                "vectors; or text, for texts",
                got="none",
                loc=("dim",),
            )
        stored = ix.StoredCollection.in_memory("memory", config, threads=options["threads"])
        return EmbeddedCollection(stored, Path(MEMORY), lambda _: stored.close(dropped=True))
    file = Path(os.path.expanduser(path))  # `Path.expanduser` fails for ~name
    if os.path.islink(file):
        file = Path(os.path.realpath(file))  # this folder is locked; a loop of links stays a link
    if file.suffix != _SUFFIX:
        raise ix.InvalidParameter(
            expected=f"a path that ends in {_SUFFIX!r}, or {MEMORY!r}",
            got=repr(str(path)),
            loc=("path",),
        )
    if config is None and not file.exists():
        raise ix.CollectionNotFound(file.stem, _how_to_create(file))
    return OpenFolder.open(file.parent.resolve(), file.stem, config, **options)


def _how_to_create(file: Path) -> str:
    """Return the advice for a missing file."""
    others = [each.stem for each in file.parent.glob(f"*{_SUFFIX}")]
    meant = get_close_matches(file.stem, others, n=1)
    create = f"Collection.open({str(file)!r}, dim=…) creates it"
    return f"did you mean {meant[0]!r}? {create}" if meant else create


class OpenFolder:
    """The catalog of a folder, shared by all of its collections that are open in this process."""

    _open: ClassVar[dict[Path, OpenFolder]] = {}
    _lock: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        self.process = os.getpid()
        self.catalog = ix.Catalog.open(path, only=(), **options)
        self._users: dict[str, WeakSet[EmbeddedCollection]] = {}

    @classmethod
    def open(
        cls, path: Path, name: str, config: ix.CollectionConfig | None, **options: Any
    ) -> EmbeddedCollection:
        """Return a collection of a folder (resolved); create it if it is missing.

        All collections opened with one name share its file, so a notebook cell can run twice.
        """
        with cls._lock:
            folder = cls._open.get(path) or cls(path, **options)
            if folder.process != os.getpid():
                # SQLite counts inherited locks as this process's own, but a fork holds none.
                raise ix.DirectoryLocked.before_fork(path, folder.process)
            cls._open[path] = folder
            try:
                found = folder.catalog.read(name)
                if found is None and config is None:
                    raise ix.CollectionNotFound(name, _how_to_create(path / f"{name}{_SUFFIX}"))
                if found is None:
                    assert config is not None
                    found, _ = folder.catalog.create(name, config)
                elif config is not None and found.config != config:
                    if name not in folder._users:
                        folder.catalog.release(name)
                    raise ix.CollectionExists(name, found.config.difference(config))
                collection = EmbeddedCollection(found, path, folder.leave)
                folder._users.setdefault(name, WeakSet()).add(collection)
                return collection
            finally:
                folder._close_if_unused()

    def leave(self, collection: EmbeddedCollection) -> None:
        """Close a file with its last collection, and the folder with its last file."""
        with self._lock:
            users = self._users.get(collection.name)
            if users is None:
                return
            users.discard(collection)
            if not users:
                del self._users[collection.name]
                self.catalog.release(collection.name)
                self._close_if_unused()

    @classmethod
    def free_lock(cls) -> None:
        """Replace the lock in a forked process, where the thread that held it does not exist."""
        cls._lock = threading.RLock()

    def _close_if_unused(self) -> None:
        if not self._users:
            self._open.pop(self.path, None)
            self.catalog.close()


os.register_at_fork(after_in_child=OpenFolder.free_lock)


class EmbeddedCollection:
    """A collection of this process, as `Collection` uses it.

    A fork lacks the threads and locks of the collection, so it is refused there. ``close`` releases
    this user of the stored collection.
    """

    def __init__(
        self, stored: ix.StoredCollection, folder: Path, close: Callable[[EmbeddedCollection], None]
    ) -> None:
        self._stored: ix.StoredCollection | None = stored
        self._folder = folder
        self._process = os.getpid()
        self._close = close
        self.name = stored.name
        self.config = stored.config

    def __reduce__(self) -> NoReturn:
        """Raise InvalidParameter: a copy, for example for another process, could not work."""
        advice = "open it in the other process once it is closed here, or serve the folder"
        if self._folder == Path(MEMORY):
            advice = "add the items to one of a server, or of a file"
        raise ix.InvalidParameter(
            expected="a collection of a server, such as connect(url).collection(…), whose copies "
            "work in any process",
            got=f"{self.name!r} of {self._folder}, which is this process's alone; {advice}",
        )

    @property
    def index(self) -> ix.StoredCollection:
        if self._process != os.getpid():
            raise ix.DirectoryLocked.before_fork(self._folder, self._process)
        if self._stored is None:
            path = str(self._folder / f"{self.name}{_SUFFIX}")
            again = f"Collection.open({path!r}) opens it again"
            is_gone = self._folder == Path(MEMORY)
            raise ix.CollectionNotFound(
                self.name, f"it was closed, {'and its items are gone' if is_gone else again}"
            )
        return self._stored

    def close(self) -> None:
        """Close the file unless it is still used; idempotent. A forked process closes nothing."""
        if self._process == os.getpid():
            self._close(self)
            self._stored = None

    # Writing

    def add(
        self,
        read: Callable[[], tuple[Items, Mapping[int, ix.InvalidInput]]],
        mode: ix.Mode,
        on_error: str,
        progress: Callable[[int], None] | None,
        *,
        keep_payloads: bool,
    ) -> Added:
        if keep_payloads and self.config.text is not None:
            raise ix.InvalidParameter(
                expected="False: the payloads of this collection hold its texts",
                got="True",
                loc=("keep_payloads",),
            )

        def put(batch: Items, numbers: Sequence[int]) -> Added:
            index = self.index
            with index.names.reading():
                put = index.prepare(self._item_batch(batch), mode, keeps_payloads=keep_payloads)
                result = index.commit(put)
            given = None if result.ids is None else GivenIds(*result.ids)
            similar = [each._replace(row=numbers[each.row]) for each in result.similar]
            counts = result.inserted, result.updated
            return Added(
                *counts,
                ids=given,
                similar=similar,
                similar_count=len(similar),
                repeated_count=len(batch) - sum(counts) - len(similar),
            )

        (items, unreadable), done, first = read(), Added(0, 0), 0
        columns = items.rows.columns
        is_first = columns is not None and len(columns) == self.config.dim and not self.count(None)
        takes_names = is_first and not len(self.index.names)
        if takes_names:
            self.set_names(columns or (), replace=False)
        columns = None
        try:
            items = replace(items, rows=self.in_order(items.rows))
            columns = items.rows.columns
            for batch in items.batches(_BATCH_BYTES):
                try:
                    if on_error == "stop":
                        done += put(batch, range(first, first + len(batch)))
                    else:
                        done += self._put_good(put, batch, first, items)
                except ix.GcwsError as error:
                    stored = done.inserted + done.updated
                    if on_error == "stop" and isinstance(error, ix.InvalidInput | ix.ItemExists):
                        moved = _error_of_load(error, first, self.index.space.word, items.rows)
                        note_stored(moved, stored)
                        raise moved from None
                    note_stored(error, stored)
                    raise
                first += len(batch)
                if progress is not None:
                    progress(len(batch))
            if progress is not None and unreadable:
                progress(len(unreadable))
        finally:  # as in `RemoteCollection.settle_names`
            if takes_names:
                self.set_names((), replace=False)
            if is_first and columns is not None and self.count(None):
                self.set_names(columns, replace=False)
        return done.with_unreadable(unreadable)

    def in_order(self, rows: ix.InputVectors) -> ix.InputVectors:
        """Return a matrix of named columns in the order of the coordinates."""
        if rows.columns is None:
            return rows
        dim = self.config.dim
        return in_order(rows, {} if dim is None else dict(self.index.names.of(range(dim))), dim)

    def _put_good(
        self, put: Callable[[Items, Sequence[int]], Added], batch: Items, first: int, items: Items
    ) -> Added:
        """Store the valid items of a batch; its first item has the number ``first``."""
        index, done = self.index, Added(0, 0)
        numbers = batch.numbers or range(first, first + len(batch))
        bad: dict[int, ix.InvalidInput | ix.ItemExists] = {}
        while good := [row for row in range(len(batch)) if row not in bad]:
            some = batch.part(good) if bad else batch
            try:
                done = put(some, [numbers[row] for row in good])
                break
            except ix.InvalidInput:

                def check(rows: slice, some: Items = some) -> None:
                    index.prepare(self._item_batch(some.part(rows)))

                found = ix.bad_rows(len(some), check, ix.InvalidInput)
                if not found:
                    raise
                bad |= {good[row]: error.at(good[row], skip=1) for row, error in found.items()}
            except ix.ItemExists as error:
                taken = ix.taken_rows(some.texts() or (), error, index.get)
                bad |= {
                    good[row]: ix.ItemExists(item_id, good[row]) for row, item_id in taken.items()
                }
        word = index.space.word
        rejected = [
            rejected_of(_error_of_load(error, first, word, items.rows), numbers[row])
            for row, error in sorted(bad.items())
        ]
        return done + Added(0, 0, rejected, len(rejected))

    def _item_batch(self, batch: Items) -> ix.ItemBatch:
        index = self.index
        ids: Sequence[str | None] = batch.texts() or [None] * len(batch)
        vectors = batch.rows.check(index.space, index.names.reserve)
        payloads = [*(batch.payloads or [None] * len(batch))]
        for row, text in enumerate(batch.rows.texts or ()):
            try:
                payloads[row] = ix.with_text(payloads[row], text)
            except ix.InvalidInput as error:
                raise error.at(row) from None
        given = enumerate(batch.expires or ())
        now = index.clock()
        expires = [None if at is None else ix.expiry_ms(at, row, now=now) for row, at in given]
        return ix.ItemBatch(ids, vectors, payloads, batch.if_versions or (), expires)

    def put(self, read: Callable[[], Items], mode: ix.Mode) -> Added:
        """Store items, all or none."""
        items = read()
        if not len(items):
            return Added(0, 0)
        try:
            with self.index.names.reading():
                result = self.index.put(self._item_batch(items), mode)
        except (ix.InvalidInput, ix.ItemExists) as error:
            raise _error_of_load(error, 0, self.index.space.word, items.rows) from None
        return Added(result.inserted, result.updated)

    def delete(
        self, ids: list[str] | None, where: Mapping[str, Any] | None, if_version: int | None
    ) -> Count:
        chosen = _chosen_items(ids, where)
        return self._count(self.index.delete(chosen, if_version=if_version), chosen)

    def set_payload(
        self,
        ids: list[str] | None,
        where: Mapping[str, Any] | None,
        payload: bytes | None,
        merge: bool,
        if_version: int | None,
    ) -> Count:
        change = ix.PayloadChange(payload, merge)
        chosen = _chosen_items(ids, where)
        updated = self.index.change_payloads(change, chosen, if_version=if_version)
        return self._count(updated, chosen)

    # Searching

    def query(self, vector: Any, asked: Mapping[str, Any], *, distance: bool) -> Hits:
        """Return the hits of one query, by a vector or by the options."""
        id, text = asked.get("id"), asked.get("text")
        group_by, offset, backend = asked.get("group_by"), asked["offset"], asked.get("backend")
        given = ix.require_one(vector=vector, id=id, text=text)
        if group_by is not None and offset:
            raise ix.InvalidParameter(expected="no pages of groups", got="one", loc=("offset",))
        params, kind = _search_params(asked)
        condition, began = _filter(asked.get("filter")), perf_counter()

        def search(params: ix.SearchParams, where: ix.Filter | None = condition) -> ix.QueryResult:
            if id is None:
                return self._search(rows, params, where, backend)[0][0]
            found = self.index.search_around([str(id)], params, where=where, backend=backend)
            return found[0]

        try:
            rows = ix.InputVectors()
            if id is None:
                rows = self.in_order(row_of(vector)) if text is None else rows_of_texts([text])
            if group_by is None:
                found = self._page(search, params, offset) if offset else search(params)
            else:
                found = _groups(search, params, condition, group_by, asked["group_size"])
                condition = ix.with_key(condition, group_by)
        except ix.InvalidVector as error:
            raise error.at(given, skip=1) from None
        seconds = perf_counter() - began
        columns = zip(found.ids, found.scores, repeat(None))
        hits: list[AnyHit] = [*map(_new_hit, columns)]
        for place, payload in enumerate(found.payloads or ()):
            if payload is not None:
                hits[place] = hit_of(*hits[place][:2], *self._shown(payload))
        hints: Sequence[str] = ()  # on names, and on a filter without hits
        if rows.names or (condition is not None and not hits):
            hints = ix.name_hints(self.index.names, rows.names) if rows.names else []
            if condition is not None and not hits:
                hints = [*hints, *self._hints(condition)]
        cost = None
        if asked["explain"] and found.explanation is not None:
            cost = found.explanation._replace(seconds=seconds)._asdict()
            del cost["measured_recall"]  # only servers make audits
        return Hits(hits, cost, hints).rescore(kind, distance=distance)

    def _page(
        self,
        search: Callable[[ix.SearchParams], ix.QueryResult],
        params: ix.SearchParams,
        offset: int,
    ) -> ix.QueryResult:
        """Return the hits of a ranking after the skipped ones."""
        first, *deeper = ix.page_searches(params, offset, offset + params.limit + len(self.index))
        found = search(first)
        for more in deeper:
            found = ix.continue_ranking(found, search(more), more.limit)
        page = ix.cut_page(found, offset, params.limit)
        if not page.ids:
            return replace(page, payloads=[])
        items = self.index.page(limit=len(page.ids), cursor=None, ids=page.ids).items
        payloads = {item.id: item.payload for item in items}
        return replace(page, payloads=[payloads.get(each) for each in page.ids])

    def query_many(
        self,
        read: Callable[
            [], tuple[ix.InputVectors, Sequence[int] | None, Mapping[int, ix.InvalidInput]]
        ],
        asked: Mapping[str, Any],
        on_error: str,
        *,
        with_payload: bool,
        distance: bool,
    ) -> ManyHits:
        params, kind = _search_params(asked)
        condition = _filter(asked.get("filter"))
        with _naming_argument("queries"):
            rows, _, refused = read()
            rows, limit = self.in_order(rows), params.limit
            found = self._bad_queries(rows) if on_error == "skip" else {}
            places = [row for row in range(len(rows) + len(refused)) if row not in refused]
            bad: dict[int, ix.InvalidInput] = {**refused}
            bad |= {places[row]: _with_column(error.at(row), rows) for row, error in found.items()}
            rejected = [rejected_of(bad[row], row, "query") for row in sorted(bad)]
            if found:
                rows = rows.part(np.setdiff1d(np.arange(len(rows)), [*found]))
            if not len(rows):
                payloads: list[Any] | None = [] if with_payload else None
                texts = payloads if self.config.text else None
                return hits_of([], limit, payloads, texts).spread(rejected)
            try:
                results = self._search(rows, params, condition, asked.get("backend"))
            except ix.InvalidVector as error:
                raise _with_column(error, rows) from None
            arrays = self._arrays_with_payloads if with_payload else _arrays
            many = arrays(results, limit)
            hints = [hint for some in ix.hints_on_rows(self.index.names, rows) for hint in some]
            if condition is not None and not np.isfinite(many.scores).any():
                hints += self.index.hints(condition)
            many = replace(many, hints=[*dict.fromkeys(hints)])
            return many.rescore(kind, distance=distance).spread(rejected)

    def _arrays_with_payloads(self, parts: Sequence[ix.QueryResults], limit: int) -> ManyHits:
        found = [each for part in parts for each in part]
        shown = [[self._shown(each) for each in one.payloads or ()] for one in found]
        payloads = [[payload for payload, _ in one] for one in shown]
        texts = [[text for _, text in one] for one in shown] if self.config.text else None
        return hits_of([(each.ids, each.scores) for each in found], limit, payloads, texts)

    def _shown(self, payload: bytes | None) -> tuple[dict[str, Any] | None, str | None]:
        """Return the payload and the text of a stored payload, as callers get them."""
        found = None if payload is None else read_json(payload)
        if found is None or self.config.text is None:
            return found, None
        text = found.pop("text", None)
        return found or None, text

    def _bad_queries(self, rows: ix.InputVectors) -> dict[int, ix.InvalidInput]:
        def check(some: slice) -> None:
            for part in self._parts(rows.part(some)):
                if isinstance(part, ix.RawBatch):
                    self.index.space.prepare(part)

        found = ix.bad_rows(len(rows), check, ix.InvalidInput)
        return {row: error.at(skip=1) for row, error in found.items()}

    def _search(
        self,
        rows: ix.InputVectors,
        params: ix.SearchParams,
        where: ix.Filter | None,
        backend: str | None,
    ) -> list[ix.QueryResults]:
        """Return the results of all queries; of each alone if it is searched alone."""
        index = self.index
        found: list[ix.QueryResults] = []
        for row, query in enumerate(self._parts(rows)):
            try:
                found.append(index.search(query, params, where=where, backend=backend))
            except ix.InvalidVector as error:
                raise (error.at(row, skip=1) if self._is_each_alone(rows) else error) from None
        return found

    def _is_each_alone(self, rows: ix.InputVectors) -> bool:
        """Whether queries are searched one by one: those by name in a space of fixed dim."""
        return rows.names is not None and self.config.dim is not None

    def _parts(self, rows: ix.InputVectors) -> list[ix.RawBatch | ix.SparseVector]:
        index = self.index
        space, names = index.space, index.names
        if rows.names is None or not self._is_each_alone(rows):
            return [rows.check(space, lambda words: names.find(words)[0])]
        each = rows.one_by_one(space, lambda words: names.find(words, beyond_dim=True)[0])
        return [query for query, _ in each]

    def pairs(self, asked: Mapping[str, Any]) -> list[Pair]:
        options = dict(asked)
        kind: ix.ScoreKind = options.pop("score", "gmm")
        options["min_score"] = ix.least_ranked(kind, asked["min_score"])
        params = asdict(ix.PairParams(**options))
        found = self.index.pairs(**params, ranking=ix.ranking_of(kind))
        return [Pair(a, b, ix.score_of(kind, score)) for a, b, score in found]

    def join(
        self, read: Callable[[], Items], asked: Mapping[str, Any], *, distance: bool
    ) -> Joined:
        """Return the hits of vectors, from the row after ``after`` on."""
        hits = self._joined(asked)
        items, index, first = read(), self.index, asked.get("after", -1) + 1
        with _naming_argument("data"):
            rows = self.in_order(items.rows)
            if first:
                rows = rows.part(slice(first, None))
            try:
                vectors = rows.check(index.space, lambda words: index.names.find(words)[0])
                parts = [
                    Joined(first + part.rows, None, part.to, part.scores) for part in hits(vectors)
                ]
            except ix.InvalidVector as error:
                named = _with_column(error, rows)
                named.move_row(first.__add__)
                raise named from None
        return self._hits_of_join(parts, asked, distance=distance).named(items.texts())

    def join_collection(self, other: Any, asked: Mapping[str, Any], *, distance: bool) -> Joined:
        """Return the hits of another collection's items, optionally only of those after one."""
        index, stored = self.index, other.index
        ix.require_joinable(index.config, stored.config)
        hits = self._joined(asked)
        cursor = stored.cursor_behind(str(asked["after"])) if "after" in asked else None
        parts = list[Joined]()
        for ids, rows in ix.stored_vectors(stored, cursor):
            for part in hits(rows.check(index.space, lambda words: index.names.find(words)[0])):
                named = [ids[row] for row in part.rows.tolist()]
                parts.append(Joined(None, named, part.to, part.scores))
        return self._hits_of_join(parts, asked, distance=distance)

    def _hits_of_join(
        self, parts: Sequence[Joined], asked: Mapping[str, Any], *, distance: bool
    ) -> Joined:
        found = joined_of(parts)
        if not len(found):
            found = replace(found, hints=self._hints(_filter(asked.get("filter"))))
        return found.rescore(asked.get("score", "gmm"), distance=distance)

    def _hints(self, where: ix.Filter | None, key: str | None = None) -> list[str]:
        """Return hints on a payload key, then on keys and values of a filter, that no item has."""
        conditions = [None if key is None else ix.with_key(None, key), where]
        return [hint for each in conditions if each is not None for hint in self.index.hints(each)]

    def _joined(self, asked: Mapping[str, Any]) -> Callable[[ix.RawBatch], Iterator[ix.JoinedRows]]:
        kind, least = asked.get("score", "gmm"), asked.get("min_score")
        params = ix.JoinParams(
            min_score=None if least is None else ix.least_ranked(kind, least),
            limit=asked.get("limit"),
            recall=asked["recall"],
            ranking=ix.ranking_of(kind),
        )
        return self.index.join(params, _filter(asked.get("filter")))

    def groups(self, asked: Mapping[str, Any]) -> FoundGroups:
        kind: ix.ScoreKind = asked.get("score", "gmm")
        options = {word: asked[word] for word in ("recall", "mode", "keep")}
        params = ix.GroupParams(min_score=ix.least_ranked(kind, asked["min_score"]), **options)
        ranking, where = ix.ranking_of(kind), _filter(asked.get("filter"))
        found = self.index.groups(params, where, ranking=ranking)
        groups = (
            ix.Group(
                each.representative,
                [(member, ix.score_of(kind, score)) for member, score in each.members],
                ix.score_of(kind, each.weakest),
            )
            for each in found
        )
        return FoundGroups(groups, self._hints(None if found else where, params.key))

    def map(self, asked: Mapping[str, Any], also: Iterable[Any]) -> ix.ItemMap:
        options = dict(asked)
        where = _filter(options.pop("filter", None))
        points = [self.point(each) for each in also]
        params = ix.MapParams(**options)
        found = self.index.map_items(params, where, points)
        is_shown = any(each is not None for each in found.values or ())
        hints = self._hints(None if found.ids else where, None if is_shown else params.key)
        return replace(found, hints=hints)

    def explain(self, a: Any, b: Any, limit: int) -> ix.Explained:
        return self.index.explain(self.point(a), self.point(b), limit=limit)

    def profile(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return self.index.profile(**asked)

    def curve(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return self.index.curve(**asked).to_dict()

    def audits(self) -> dict[str, Any]:
        return self.index.audited().to_dict()

    def loads(self) -> list[dict[str, Any]]:
        return []

    def attach(self, params: ix.BackendParams, name: str | None) -> dict[str, Any]:
        return asdict(self.index.attach(params, name))

    def detach(self, name: str) -> None:
        self.index.detach(name)

    def compare(self, asked: Mapping[str, Any], queries: Any) -> Compared:
        params = ix.SearchParams(limit=asked["limit"], recall=asked["recall"])
        sample, seed, backends = asked.get("sample", 0), asked["seed"], asked.get("backends")
        with _naming_argument("queries"):
            parts = None if queries is None else self._parts(self.in_order(points_of(queries)))
            found = self.index.compare(parts, params, sample=sample, seed=seed, backends=backends)
        return Compared(found.backends, found.similarities.tolist())

    # Reading

    def page(
        self, cursor: str | None, limit: int, with_vector: bool
    ) -> tuple[list[Item], str | None]:
        found = self.index.page(limit=limit, cursor=cursor, with_vector=with_vector)
        return [*map(self.item_of, found.items)], found.next_cursor

    def find(self, text: str, limit: int) -> FoundItems:
        found = self.index.find(text, limit)
        return FoundItems([*map(self.item_of, found.items)], found.complete)

    def get(self, item_id: str) -> Item:
        return self.item_of(self.index.get(item_id))

    def get_many(self, ids: list[str], with_vector: bool) -> list[Item]:
        if not ids:
            return []
        page = self.index.page(limit=len(ids), with_vector=with_vector, ids=ids)
        return items_in_order(ids, map(self.item_of, page.items))

    def item_of(self, stored: ix.StoredItem) -> Item:
        """Return an item of the index in the form for callers."""
        shown = self._shown(stored.payload)
        expires = None
        if stored.expires is not None:
            expires = ix.expiry_text(stored.expires)
        vector = _as_sent(stored.vector)
        return Item(stored.id, vector, *shown, version=stored.version, expires=expires)

    def point(self, what: Any) -> str | ix.OneVector:
        """Return an id, a vector or a text as the index expects it."""
        if is_text(what):
            return rows_of_texts([what["text"]]).first()
        if is_id(what):
            return str(what)
        self.index.space.refuse_vectors()
        return self.in_order(row_of(what)).first()

    def names(self, prefix: str, limit: int, indices: Sequence[int] | None) -> dict[int, str]:
        if indices is not None:
            return dict(self.index.names.of(indices))
        return dict(self.index.find_names(prefix, limit))

    def set_names(self, names: Sequence[str], *, replace: bool = True) -> int:
        self.index.set_names(names, replace=replace)
        return len(self.index.names)

    def fit(self, weights: tuple[float, ...] | ix.WeightKind | None) -> dict[str, Any]:
        found = asdict(self.index.fit(weights))
        self.config = self.index.config
        return found

    def count(self, where: Mapping[str, Any] | None) -> Count:
        condition = _filter(where)
        return self._count(self.index.count(condition), condition)

    def _count(self, number: int, chosen: ix.Filter | list[str] | None) -> Count:
        if number or not isinstance(chosen, ix.Filter):
            return Count(number)
        return Count(0, self._hints(chosen))

    def set_metadata(self, metadata: Mapping[str, Any] | None) -> None:
        """Replace the metadata except a fingerprint."""
        text = metadata_text(metadata)
        if text is not None:
            before = self.describe()["metadata"]
            text = write_json(with_fingerprint(read_json(text), before))
        self.index.replace_metadata(text)

    def describe(self) -> dict[str, Any]:
        found = self.index.describe()
        metadata = None if found.metadata is None else read_json(found.metadata)
        return found.to_dict() | {"metadata": metadata}


def _as_sent(vector: Any) -> Any:
    """Return a vector with the shortest numbers that are equal in float32: 0.1 as 0.1."""
    if isinstance(vector, dict):
        return vector | {"values": _as_sent(vector["values"])}
    if vector is None:
        return None
    text = orjson.dumps(np.array(vector, np.float32), option=orjson.OPT_SERIALIZE_NUMPY)
    return orjson.loads(text)


def _groups(
    search: Callable[[ix.SearchParams, ix.Filter | None], ix.QueryResult],
    params: ix.SearchParams,
    where: ix.Filter | None,
    key: str,
    size: int,
) -> ix.QueryResult:
    steps = ix.search_groups(key, params.limit, size, where)
    passing, limit = next(steps)
    first: ix.QueryResult | None = None
    while True:
        result = search(replace(params, limit=limit), passing)
        first = first or result
        try:
            passing, limit = steps.send(result)
        except StopIteration as end:
            ids, scores, payloads = ([hit[part] for hit in end.value] for part in range(3))
            return replace(first, ids=ids, scores=scores, payloads=payloads)


_new_hit: Final[Callable[[Iterable[Any]], Hit]] = partial(tuple.__new__, Hit)
"""Makes a hit of three fields; `Hit` calls a function of Python, and takes thrice as long."""


def _search_params(asked: Mapping[str, Any]) -> tuple[ix.SearchParams, ix.ScoreKind]:
    """Return the index's parameters for the options of a query, and the kind of its scores."""
    kind: ix.ScoreKind = asked.get("score", "gmm")
    params = ix.SearchParams(
        limit=asked["limit"],
        recall=asked["recall"],
        min_score=ix.least_ranked(kind, asked["min_score"]),
        guarantee=asked["guarantee"],
        ranking=ix.ranking_of(kind),
    )
    return params, kind


def _filter(where: Mapping[str, Any] | None) -> ix.Filter | None:
    return None if where is None else ix.parse_filter(where)


def _chosen_items(ids: list[str] | None, where: Mapping[str, Any] | None) -> ix.Filter | list[str]:
    ix.require_one(ids=ids, where=where)
    if ids is not None:
        return ids
    found = _filter(where)
    assert found is not None
    found.require_conditions()
    return found


def _arrays(parts: Sequence[ix.QueryResults], limit: int) -> ManyHits:
    """Return the hits of all queries as arrays, ties by id."""
    if len(parts) != 1 or not parts[0].found.sizes.any():
        return hits_of([(each.ids, each.scores) for part in parts for each in part], limit)
    [found] = parts
    raw = found.found
    width = min(limit, int(raw.sizes.max()))
    rows, scores = raw.rows[:, :width], np.array(raw.scores[:, :width], np.float64)
    ids = found.view.ids
    absent = np.arange(width) >= raw.sizes[:, None]
    is_full = not absent.any()
    names = np.full(rows.size, None, object)
    if is_full:
        names[:] = ids.of(rows.ravel())
    else:
        present = ~absent.ravel()
        names[present] = ids.of(rows.ravel()[present])
        scores[absent] = np.nan
    table = names.reshape(rows.shape)
    tied = (scores[:, 1:] == scores[:, :-1]).any(axis=1)
    beyond = {*np.flatnonzero(raw.sizes > limit).tolist(), *raw.wider}
    for query in {*np.flatnonzero(tied).tolist()} - beyond:
        size = raw.sizes[query]
        ranked = sorted(zip((-scores[query, :size]).tolist(), table[query, :size], strict=True))
        table[query, :size] = [item_id for _, item_id in ranked]
    for query in beyond:
        one = found[query]
        table[query, : len(one.ids)] = one.ids
        scores[query, : len(one.ids)] = one.scores
    return ManyHits(table, scores)


def _error_of_load(
    error: ix.InvalidInput | ix.ItemExists, first: int, word: str, rows: ix.InputVectors
) -> ix.InvalidInput | ix.ItemExists:
    """Return an error of a batch with its row number in the whole load."""
    if isinstance(error, ix.ItemExists):
        return ix.ItemExists(error.item_id, first + error.row)
    at = next((at for at, part in enumerate(error.loc) if isinstance(part, int)), None)
    if at is None:
        return error
    inner = (word,) if isinstance(error, ix.InvalidVector) else ()
    moved = error.at("rows", first + int(error.loc[at]), *inner, skip=at + 1)
    return name_column(moved, rows)


def _with_column(error: ix.InvalidInput, rows: ix.InputVectors) -> ix.InvalidInput:
    """Return an error at ``(row, place)`` with the name of its column, or as one of a vector."""
    found = name_column(error, rows)
    if found is error and len(error.loc) > 1 and isinstance(error.loc[1], int):
        return error.at(error.loc[0], "vector", skip=1)
    return found


@contextmanager
def _naming_argument(name: str) -> Iterator[None]:
    try:
        yield
    except ix.InvalidVector as error:
        raise error.at(name) from None
