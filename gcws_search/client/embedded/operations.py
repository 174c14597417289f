"""Operations on a collection of this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import numpy as np

from gcws_search.client.errors import note_stored
from gcws_search.client.export import exported
from gcws_search.client.operations import Call, Mode, OnError, Plan, Progress
from gcws_search.client.results import (
    Added,
    BackendFigures,
    Compared,
    GivenIds,
    Hit,
    Hits,
    Item,
    ManyHits,
    Pair,
    Rejected,
    hits_of,
)
from gcws_search.formats.items import Items, items_of, require_ids, texts_of
from gcws_search.formats.payloads import filter_of, read_json
from gcws_search.formats.vectors import (
    DenseRows,
    Rows,
    SparseRows,
    bad_rows,
    is_id,
    row_of,
    rows_of,
)
from gcws_search.index.contracts.analysis import SHARES, Explained, ItemMap
from gcws_search.index.contracts.arrays import Float32s
from gcws_search.index.contracts.errors import (
    CollectionNotFound,
    DirectoryLocked,
    GcwsError,
    InvalidInput,
    InvalidParameter,
    InvalidVector,
    ItemExists,
)
from gcws_search.index.contracts.parameters import SearchParams

if TYPE_CHECKING:
    from gcws_search import index as ix

_Put = Callable[[Items], Added]

_BATCH_BYTES: Final = 32 << 20


class _Closed:
    """Stands for a collection that is closed: nothing is there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, word: str) -> Any:
        raise CollectionNotFound(self._name)

    def __len__(self) -> int:
        raise CollectionNotFound(self._name)


class EmbeddedOperations:
    """Operations on a collection of this process.

    A fork of it has neither the threads nor the locks of the collection, so it is refused there.

    Parameters
    ----------
    collection : gcws_search.index.Collection
    folder : Path
        Where its file lies.
    close : callable
        Takes these operations, which do not use the collection any more.
    """

    def __init__(
        self,
        collection: ix.StoredCollection,
        folder: Path,
        close: Callable[[EmbeddedOperations], None],
    ) -> None:
        self._opened = collection
        self._folder = folder
        self._process = os.getpid()
        self._close = close
        self.name = collection.name
        self.config = collection.config

    @property
    def _collection(self) -> ix.StoredCollection:
        if self._process != os.getpid():
            raise DirectoryLocked.before_fork(self._folder, self._process)
        return self._opened

    @property
    def index(self) -> ix.StoredCollection:
        """The collection of the index, for what only that can do."""
        return self._collection

    def close(self) -> None:
        """Close the file, unless others use it; once is enough. A forked process closes nothing."""
        if self._process == os.getpid():
            self._close(self)
            self._opened = cast("ix.StoredCollection", _Closed(self.name))

    # Writing

    def add(  # noqa: D102, PLR0913  # as `Operations` says; so are those below
        self,
        data: Any,
        *,
        ids: Any = None,
        payloads: Any = None,
        mode: Mode = "upsert",
        on_error: OnError = "stop",
        id_start: int | None = None,
        keep_payloads: bool = False,
        progress: Progress | None = None,
    ) -> Plan[Added]:
        items: Items = yield Call(lambda: items_of(data, ids, payloads, id_start))
        if keep_payloads and len(items):
            require_ids(items)
        done = Added(0, 0)
        first = 0
        put = partial(self._put, mode, keep_payloads)
        add = partial(self._put_all if on_error == "stop" else self._put_good, put)
        for batch in items.batches(_BATCH_BYTES):
            try:
                done += yield Call(partial(add, batch, first))
            except GcwsError as error:
                stored = done.inserted + done.updated
                note_stored(error, stored)
                raise
            first += len(batch)
            if progress is not None:
                progress(len(batch))
        return done

    def _put(self, mode: Mode, keep_payloads: bool, batch: Items) -> Added:
        """Store a batch."""
        checked = self._checked(batch)
        put = self._collection.prepare(checked, mode, keeps_payloads=keep_payloads)
        result = self._collection.commit(put)
        ids = None if result.ids is None else GivenIds(*result.ids)
        return Added(result.inserted, result.updated, ids=ids)

    @staticmethod
    def _put_all(put: _Put, batch: Items, first: int) -> Added:
        """Store a batch whose first row has the number ``first``."""
        try:
            return put(batch)
        except (InvalidInput, ItemExists) as error:
            raise _moved(error, first) from None

    def _put_good(self, put: _Put, batch: Items, first: int) -> Added:
        """Store those items of a batch that can be stored."""
        with suppress(InvalidInput, ItemExists):
            return put(batch)
        bad: dict[int, InvalidInput | ItemExists] = {
            row: _at_row(error, row)
            for row, error in bad_rows(len(batch), partial(self._prepare, batch)).items()
        }
        good = [row for row in range(len(batch)) if row not in bad]
        done = Added(0, 0)
        while good:
            try:
                done = put(batch.take(good))
            except ItemExists as error:
                row = good.pop(error.row)
                bad[row] = ItemExists(error.item_id, row)
            else:
                break
        rejected = [
            Rejected(first + row, _code(bad[row]), str(_moved(bad[row], first)))
            for row in sorted(bad)
        ]
        return done + Added(0, 0, rejected, len(rejected))

    def _prepare(self, batch: Items, rows: slice) -> None:
        """Raise InvalidInput where a row of a batch is no item."""
        self._collection.prepare(self._checked(batch.part(rows.start, rows.stop)))

    def _checked(self, batch: Items) -> ix.ItemBatch:
        from gcws_search.index import ItemBatch  # noqa: PLC0415

        payloads = batch.payloads or [None] * len(batch)
        ids: Sequence[str | None] = batch.texts() or [None] * len(batch)
        return ItemBatch(ids, self._raw(batch.rows, storing=True), [*payloads])

    def _raw(self, rows: Rows, *, storing: bool = False) -> ix.RawBatch:
        """Return vectors as the index takes them; names that are new are reserved for items."""
        names = self._collection.names
        find = names.reserve if storing else lambda words: names.find(words)[0]
        return rows.check(self._collection.space, find)

    def delete(  # noqa: D102
        self,
        ids: str | int | Iterable[str] | None = None,
        *,
        where: Mapping[str, Any] | None = None,
    ) -> Plan[int]:
        if (ids is None) == (where is None):
            got = "neither" if ids is None else "both"
            raise InvalidParameter(expected="one of 'ids' and 'where'", got=got)
        if ids is not None:
            names = texts_of(ids)
            deleted: int = yield Call(lambda: self._collection.delete(names))
            return deleted
        found = self._filter(where)
        assert found is not None
        found.require_conditions()
        count: int = yield Call(lambda: self._collection.delete_where(found))
        return count

    # Searching

    def query(  # noqa: D102, PLR0913
        self,
        vector: Any = None,
        *,
        id: str | int | None = None,
        limit: int = 10,
        recall: float = 0.9,
        min_score: float = 0.0,
        where: Mapping[str, Any] | None = None,
        guarantee: Literal["measured", "proven"] = "measured",
        backend: str | None = None,
        explain: bool = False,
    ) -> Plan[Hits]:
        if (vector is None) == (id is None):
            got = "neither" if vector is None else "both"
            raise InvalidParameter(expected="one of 'vector' and 'id'", got=got)
        params = SearchParams(limit=limit, recall=recall, min_score=min_score, guarantee=guarantee)
        condition = self._filter(where)

        def search() -> ix.QueryResult:
            if id is not None:
                around = partial(self._collection.search_around, str(id), params)
                return around(where=condition, backend=backend)
            return self._found(row_of(vector), params, condition, backend)[0]

        found: ix.QueryResult = yield Call(_located(search, "vector"))
        hits = [
            Hit(item_id, score, None if payload is None else read_json(payload))
            for item_id, score, payload in zip(found.ids, found.scores, found.payloads, strict=True)
        ]
        return Hits(hits, asdict(found.explanation) if explain else None)

    def query_many(  # noqa: D102, PLR0913
        self,
        vectors: Any,
        *,
        limit: int = 10,
        recall: float = 0.9,
        min_score: float = 0.0,
        where: Mapping[str, Any] | None = None,
        guarantee: Literal["measured", "proven"] = "measured",
        backend: str | None = None,
        on_error: OnError = "stop",
    ) -> Plan[ManyHits]:
        params = SearchParams(limit=limit, recall=recall, min_score=min_score, guarantee=guarantee)
        condition = self._filter(where)

        def search() -> ManyHits:
            rows = rows_of(vectors)
            bad: dict[int, InvalidInput] = {}
            if on_error == "skip":
                bad = self._bad_queries(rows)
                rows = rows.part(
                    np.array([row for row in range(len(rows)) if row not in bad], np.int64)
                )
            rejected = [
                Rejected(row, _code(bad[row]), str(bad[row].at("queries"))) for row in sorted(bad)
            ]
            if not len(rows):
                return hits_of([], limit).spread(rejected)
            found = self._found(rows, params, condition, backend)
            return _arrays(found, limit).spread(rejected)

        many: ManyHits = yield Call(_located(search, "queries"))
        return many

    def _bad_queries(self, rows: Rows) -> dict[int, InvalidInput]:
        """Return the vectors that cannot be searched for."""
        from gcws_search.index import RawBatch  # noqa: PLC0415

        def check(some: slice) -> None:
            for part in self._parts(rows.part(some)):
                if isinstance(part, RawBatch):
                    self._collection.space.prepare(part)

        return {row: _at_row(error, row) for row, error in bad_rows(len(rows), check).items()}

    def _found(
        self, rows: Rows, params: SearchParams, where: ix.Filter | None, backend: str | None
    ) -> Sequence[ix.QueryResult]:
        """Return the result of each query."""
        if not self._is_each_alone(rows):
            return self._collection.search(self._raw(rows), params, where=where, backend=backend)
        from gcws_search.index import RawBatch  # noqa: PLC0415

        found: list[ix.QueryResult] = []
        for place, query in enumerate(self._parts(rows)):
            try:
                if isinstance(query, RawBatch):
                    found += self._collection.search(query, params, where=where, backend=backend)
                else:
                    found.append(
                        self._collection.search_with_unknown(
                            query, params, where=where, backend=backend
                        )
                    )
            except InvalidVector as error:
                error.loc = (place, *error.loc[1:])
                raise
        return found

    def _is_each_alone(self, rows: Rows) -> bool:
        """Whether queries are searched one by one: by name where dim is fixed."""
        is_named = isinstance(rows, SparseRows) and rows.names is not None
        return is_named and self.config.dim is not None

    def _parts(self, rows: Rows) -> list[ix.RawBatch | ix.SparseVector]:
        """Return queries as they are searched."""
        if not self._is_each_alone(rows):
            return [self._raw(rows)]
        assert isinstance(rows, SparseRows)
        collection = self._collection
        each = rows.one_by_one(
            collection.space, lambda words: collection.names.find(words, beyond_dim=True)[0]
        )
        return [query for query, _ in each]

    def pairs(  # noqa: D102
        self, *, min_score: float, limit: int | None = None, recall: float = 0.9
    ) -> Plan[list[Pair]]:
        for name, value in (("min_score", min_score), ("recall", recall)):
            if not 0 < value <= 1:
                raise InvalidParameter(expected="a number in (0, 1]", got=repr(value), loc=(name,))
        found = yield Call(
            lambda: self._collection.pairs(min_score=min_score, limit=limit, recall=recall)
        )
        return [Pair(*each) for each in found]

    def explain(self, a: Any, b: Any, *, limit: int = SHARES) -> Plan[Explained]:  # noqa: D102
        def explain() -> Explained:
            return self._collection.explain(_item_or_vector(a), _item_or_vector(b), limit=limit)

        explained: Explained = yield Call(explain)
        return explained

    def map(  # noqa: D102
        self,
        *,
        sample: int = 5000,
        landmarks: int = 256,
        seed: int = 0,
        where: Mapping[str, Any] | None = None,
        also: Iterable[Any] = (),
        key: str | None = None,
    ) -> Plan[ItemMap]:
        from gcws_search.index import MapParams, map_items  # noqa: PLC0415

        params = MapParams(sample=sample, landmarks=landmarks, seed=seed, key=key)
        condition = self._filter(where)

        def show() -> ItemMap:
            others = [_item_or_vector(each) for each in also]
            return map_items(self._collection.memory, params, where=condition, also=others)

        shown: ItemMap = yield Call(show)
        return shown

    def profile(  # noqa: D102
        self, *, sample: int = 1000, seed: int = 0
    ) -> Plan[dict[str, Any]]:
        def look() -> dict[str, Any]:
            from gcws_search.index import profile  # noqa: PLC0415

            return profile(self._collection.memory, sample=sample, seed=seed).to_dict()

        looked: dict[str, Any] = yield Call(look)
        return looked

    def compare(  # noqa: D102
        self,
        queries: Any = None,
        *,
        sample: int = 100,
        limit: int = 10,
        recall: float = 0.9,
        backends: list[str] | None = None,
        seed: int = 0,
    ) -> Plan[Compared]:
        params = SearchParams(limit=limit, recall=recall)

        def compare() -> Compared:
            parts = None if queries is None else self._parts(rows_of(queries))
            found = self._collection.compare(
                parts, params, sample=sample, seed=seed, backends=backends
            )
            figures = [BackendFigures(**asdict(each)) for each in found.backends]
            return Compared(figures, found.similarities.tolist())

        compared: Compared = yield Call(_located(compare, "queries"))
        return compared

    def _filter(self, where: Mapping[str, Any] | None) -> ix.Filter | None:
        if where is None:
            return None
        from gcws_search.index import parse_filter  # noqa: PLC0415

        return parse_filter(filter_of(where))

    # Reading

    def get(self, id: str | int) -> Plan[Item]:  # noqa: D102
        return _item((yield Call(lambda: self._collection.get(str(id)))))

    def page(  # noqa: D102
        self, cursor: str | None = None, *, limit: int = 1000, with_vector: bool = True
    ) -> Plan[tuple[list[Item], str | None]]:
        found: ix.Page = yield Call(
            lambda: self._collection.page(limit=limit, cursor=cursor, with_vector=with_vector)
        )
        return [*map(_item, found.items)], found.next_cursor

    def export(  # noqa: D102
        self, path: str | Path, *, progress: Progress | None = None
    ) -> Plan[int]:
        return (yield from exported(self, str(path), progress))

    def names(  # noqa: D102
        self, prefix: str = "", *, limit: int = 20, indices: Iterable[int] | None = None
    ) -> Plan[dict[int, str]]:
        if indices is not None:
            return dict(self._collection.names.of([*map(int, indices)]))
        if limit < 1:
            raise InvalidParameter(expected="at least 1", got=str(limit), loc=("limit",))
        return dict((yield Call(lambda: self._collection.find_names(prefix, limit))))

    def set_names(self, names: Iterable[str]) -> Plan[int]:  # noqa: D102
        given = [*names]
        yield Call(lambda: self._collection.set_names(given))
        return len(given)

    def count(self) -> Plan[int]:  # noqa: D102
        yield from ()
        return len(self._collection)

    def describe(self) -> Plan[dict[str, Any]]:  # noqa: D102
        found = asdict((yield Call(self._collection.describe)))
        del found["config"]
        return {"name": found.pop("name"), **self.config.to_dict(), **found}


def _item_or_vector(what: Any) -> str | Float32s | ix.SparseVector | ix.NamedVector:
    """Return an id or a vector as the index explains it."""
    from gcws_search.index import NamedVector, SparseVector  # noqa: PLC0415

    if is_id(what):
        return str(what)
    row = row_of(what)
    if isinstance(row, DenseRows):
        dense: Float32s = row.matrix()[0]
        return dense
    if row.names is not None:
        return NamedVector([row.names[code] for code in row.indices.tolist()], row.values)
    return SparseVector(row.indices, row.values)


def _item(stored: ix.StoredItem) -> Item:
    payload = None if stored.payload is None else read_json(stored.payload)
    return Item(stored.id, stored.vector, payload)


def _arrays(found: Sequence[ix.QueryResult], limit: int) -> ManyHits:
    """Return the hits of all queries as arrays; ties are told apart by id, as one query's are."""
    from gcws_search.index import QueryResults  # noqa: PLC0415

    if not isinstance(found, QueryResults):
        return hits_of([(each.ids, each.scores) for each in found], limit)
    raw = found.found
    width = min(limit, raw.rows.shape[1])
    rows, scores = raw.rows[:, :width], np.array(raw.scores[:, :width], np.float64)
    ids = found.view.ids
    absent = np.arange(width) >= raw.sizes[:, None]
    is_full = not absent.any()
    names = np.full(rows.size, None, object)
    if is_full:
        names[:] = [ids[row] for row in rows.ravel().tolist()]
    else:
        present = ~absent.ravel()
        names[present] = [ids[row] for row in rows.ravel()[present].tolist()]
        scores[absent] = np.nan
    table = names.reshape(rows.shape)
    tied = (scores[:, 1:] == scores[:, :-1]).any(axis=1)
    for query in {*np.flatnonzero(tied).tolist(), *raw.wider}:
        one = found[query]
        table[query, : len(one.ids)] = one.ids
        scores[query, : len(one.ids)] = one.scores
    return ManyHits(table, scores)


def _at_row(error: InvalidInput, row: int) -> InvalidInput:
    """Return an error of the only row of a part as one of row ``row``."""
    return type(error)(expected=error.expected, got=error.got, loc=(row, *error.loc[1:]))


def _row_of(error: Exception) -> int | None:
    """Return the number of the row that an error is about, in its batch."""
    if isinstance(error, ItemExists):
        return error.row
    loc = error.loc if isinstance(error, InvalidInput) else ()
    return next((part for part in loc if isinstance(part, int)), None)


def _moved(error: InvalidInput | ItemExists, first: int) -> InvalidInput | ItemExists:
    """Return an error of a batch as one of the whole: its row counts from the first batch on."""
    if isinstance(error, ItemExists):
        return ItemExists(error.item_id, first + error.row)
    row = _row_of(error)
    if row is None:
        return error
    at = error.loc.index(row)
    inner = error.loc[at + 1 :]
    word = ("vector",) if isinstance(error, InvalidVector) else ()
    return type(error)(
        expected=error.expected, got=error.got, loc=("rows", first + row, *word, *inner)
    )


def _code(error: Exception) -> str:
    from gcws_search.client.errors import CLASSES  # noqa: PLC0415

    return next((code for code, cls in CLASSES.items() if cls is type(error)), "invalid_input")


def _located(work: Callable[[], Any], name: str) -> Callable[[], Any]:
    """Return work whose errors of vectors say which argument they are about."""

    def located() -> Any:
        try:
            return work()
        except InvalidVector as error:
            loc = error.loc[1:] if name == "vector" else error.loc
            raise type(error)(expected=error.expected, got=error.got, loc=(name, *loc)) from None

    return located
