"""A collection of a server."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

import numpy as np
import orjson

from gcws_search.client.export import exported
from gcws_search.client.operations import Call, Mode, OnError, Piece, Plan, Progress, Reply, Send
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
from gcws_search.client.retries import RetryPolicy, answered
from gcws_search.formats import bodies
from gcws_search.formats.items import Items, items_of, require_ids, texts_of
from gcws_search.formats.payloads import filter_of, read_json
from gcws_search.formats.vectors import DenseRows, Rows, is_id, row_of, rows_of
from gcws_search.index.contracts.analysis import (
    NO_NEIGHBOUR,
    SHARES,
    Explained,
    ItemMap,
    Places,
    Rest,
    Share,
)
from gcws_search.index.contracts.parameters import CollectionConfig

_JSON_HEADERS: Final = {"Content-Type": bodies.JSON}
_ARROW_HEADERS: Final = {"Content-Type": bodies.ARROW}
_NPY_HEADERS: Final = {"Content-Type": bodies.NPY}
_QUERY_BYTES: Final = 8 << 20
"""Bytes of the queries of one request."""
_INDICES: Final = 4000
"""Coordinates that fit into one address."""
_QUERY_HITS: Final = 1_000_000
"""Hits that one answer holds."""


def path_of(name: str, *rest: str) -> str:
    """Return the path of a collection, or of something in it.

    Raises
    ------
    InvalidParameter
        No collection can have such a name; a server would take it for another path.
    """
    if "/" in name:
        from gcws_search.index import check_name  # noqa: PLC0415  # it loads the storage

        check_name(name)
    return "/".join(["/v1/collections", *map(_segment, (name, *rest))])


def _segment(text: str) -> str:
    """Return a text as one segment of a path; dots alone would be folded away."""
    quoted = quote(text, safe="")
    return quoted.replace(".", "%2E") if quoted in {".", ".."} else quoted


class RemoteOperations:
    """Operations as requests to a server.

    Parameters
    ----------
    name : str
    config : CollectionConfig
    policy : RetryPolicy
    """

    def __init__(self, name: str, config: CollectionConfig, policy: RetryPolicy) -> None:
        self.name = name
        self.config = config
        self._policy = policy
        words = (
            "", "query", "query/batch", "load", "items", "items/delete", "pairs", "compare",
            "explain", "map", "names", "profile",
        )  # fmt: skip
        self._paths = {
            word: path_of(name, *word.split("/")) if word else path_of(name) for word in words
        }

    def _ask(self, request: Send) -> Plan[Reply]:
        return (yield from answered(request, self._policy, self.name))

    def _post(self, word: str, document: Mapping[str, Any]) -> Plan[Any]:
        body = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
        reply = yield from self._ask(Send("POST", self._paths[word], body, _JSON_HEADERS))
        return read_json(reply.content)

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
        if not len(items):
            return Added(0, 0)
        params: dict[str, str] = {"mode": mode, "on_error": on_error}
        if keep_payloads:
            require_ids(items)
            params["payloads"] = "keep"
        headers = {"Idempotency-Key": secrets.token_hex(16)}
        rows = items.rows
        is_plain = isinstance(items.ids, range | None) and items.payloads is None
        if is_plain and isinstance(rows, DenseRows) and rows.array.shape[1]:
            if items.ids is not None:
                params["id_start"] = str(items.ids[0])
            headers |= _NPY_HEADERS | {"Content-Length": str(bodies.npy_bytes(rows))}
            return (yield from self.load(lambda: _told(rows, progress), headers, params))
        headers["Content-Type"] = bodies.ARROW
        return (
            yield from self.load(
                lambda: bodies.arrow(_each_told(items.batches(), progress)), headers, params
            )
        )

    def load(
        self,
        content: Any,
        headers: Mapping[str, str],
        params: Mapping[str, str],
    ) -> Plan[Added]:
        """Send a body of any length to the route ``load``.

        Parameters
        ----------
        content : callable
            Returns the pieces of the body; called again where the connection broke.
        headers : mapping of str to str
            ``Content-Type``, and ``Idempotency-Key``, by which a load goes on where it broke off.
        params : mapping of str to str
            ``mode``, ``on_error``, ``id_start``, ``payloads``.
        """
        is_repeatable = "Idempotency-Key" in headers
        attempts = 0

        def counted() -> Iterable[Piece]:
            nonlocal attempts
            attempts += 1
            pieces: Iterable[Piece] = content()
            return pieces

        request = Send(
            "POST", self._paths["load"], counted, headers, params, repeatable=is_repeatable
        )
        reply = yield from self._ask(request)
        found = orjson.loads(reply.content)
        ids = GivenIds(**found["ids"]) if "ids" in found else None
        before = found.get("loaded_before") if attempts == 1 else None  # else by this very call
        rejected = [
            Rejected(each["row"], each["code"], each["detail"]) for each in found["rejected"]
        ]
        counts = found["inserted"], found["updated"]
        return Added(*counts, rejected, found["rejected_count"], ids, before)

    def delete(  # noqa: D102
        self,
        ids: str | int | Iterable[str] | None = None,
        *,
        where: Mapping[str, Any] | None = None,
    ) -> Plan[int]:
        document: dict[str, Any] = {}
        if ids is not None:
            document["ids"] = texts_of(ids)
        if where is not None:
            document["filter"] = filter_of(where)
        found = yield from self._post("items/delete", document)
        return int(found["deleted"])

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
        document: dict[str, Any] = {"limit": limit, "recall": recall}
        if vector is not None:
            document["vector"] = _json_vector(vector)
        if id is not None:
            document["id"] = id
        if min_score:
            document["min_score"] = min_score
        if where is not None:
            document["filter"] = filter_of(where)
        if guarantee != "measured":
            document["guarantee"] = guarantee
        if backend is not None:
            document["backend"] = backend
        if explain:
            document["explain"] = True
        found = yield from self._post("query", document)
        hits = [Hit(each["id"], each["score"], each.get("payload")) for each in found["hits"]]
        return Hits(hits, found.get("explain"))

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
        rows: Rows = yield Call(lambda: rows_of(vectors))
        asked: dict[str, Any] = {
            "limit": limit,
            "recall": recall,
            "min_score": min_score,
            "guarantee": guarantee,
            "with_payload": False,
        }
        if backend is not None:
            asked["backend"] = backend
        step = max(1, min(_QUERY_BYTES // max(1, rows.row_bytes), _QUERY_HITS // max(1, limit)))
        found: list[dict[str, Any]] = []
        for first in range(0, len(rows), step):
            part = rows.part(slice(first, first + step))
            if where is None:
                more = {} if on_error == "stop" else {"on_error": on_error}
                found += yield from self._matrix(part, asked | more)
            else:
                each = asked | ({} if where is None else {"filter": filter_of(where)})
                queries = [{"vector": vector, **each} for vector in part.json()]
                body = {"queries": queries, "on_error": on_error}
                answer = yield from self._post("query/batch", body)
                found += answer["results"]
        lists = [
            ([hit["id"] for hit in each["hits"]], [hit["score"] for hit in each["hits"]])
            for each in found
            if "error" not in each
        ]
        rejected = [
            Rejected(row, each["error"]["code"], each["error"]["detail"])
            for row, each in enumerate(found)
            if "error" in each
        ]
        return hits_of(lists, limit).spread(rejected)

    def _matrix(self, rows: Rows, asked: Mapping[str, Any]) -> Plan[list[dict[str, Any]]]:
        """Ask for the hits of many vectors that ask for the same."""
        headers = _NPY_HEADERS if isinstance(rows, DenseRows) else _ARROW_HEADERS
        params = {name: str(value).lower() for name, value in asked.items() if name != "backend"}
        if "backend" in asked:
            params["backend"] = asked["backend"]
        body = bodies.queries(rows)
        request = Send("POST", self._paths["query/batch"], body, headers, params)
        reply = yield from self._ask(request)
        results: list[dict[str, Any]] = orjson.loads(reply.content)["results"]
        return results

    def pairs(  # noqa: D102
        self, *, min_score: float, limit: int | None = None, recall: float = 0.9
    ) -> Plan[list[Pair]]:
        body = orjson.dumps({"min_score": min_score, "limit": limit, "recall": recall})
        reply = yield from self._ask(Send("POST", self._paths["pairs"], body, _JSON_HEADERS))
        return [Pair(**orjson.loads(line)) for line in reply.content.splitlines()]

    def explain(self, a: Any, b: Any, *, limit: int = SHARES) -> Plan[Explained]:  # noqa: D102
        asked = {"a": _item_or_vector(a), "b": _item_or_vector(b), "limit": limit}
        found = yield from self._post("explain", asked)
        coordinates = [Share(**{"name": None} | each) for each in found.pop("coordinates")]
        return Explained(coordinates=coordinates, rest=Rest(**found.pop("rest")), **found)

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
        asked: dict[str, Any] = {"sample": sample, "landmarks": landmarks, "seed": seed, "key": key}
        asked["also"] = [str(each) if is_id(each) else _json_vector(each) for each in also]
        if where is not None:
            asked["filter"] = filter_of(where)
        found = yield from self._post("map", asked)
        return ItemMap(found["ids"], _places(found), _places(found["also"]), found.get("values"))

    def profile(  # noqa: D102
        self, *, sample: int = 1000, seed: int = 0
    ) -> Plan[dict[str, Any]]:
        found: dict[str, Any] = yield from self._post("profile", {"sample": sample, "seed": seed})
        return found

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
        asked: dict[str, Any] = {"limit": limit, "recall": recall, "seed": seed}
        if queries is None:
            asked["sample"] = sample
        else:
            asked["queries"] = [*rows_of(queries).json()]
        if backends is not None:
            asked["backends"] = backends
        found = yield from self._post("compare", asked)
        figures = [BackendFigures(**each) for each in found["backends"]]
        return Compared(figures, found["mean_similarity"])

    # Reading

    def get(self, id: str | int) -> Plan[Item]:  # noqa: D102
        reply = yield from self._ask(Send("GET", path_of(self.name, "items", str(id))))
        return Item(**read_json(reply.content))

    def page(  # noqa: D102
        self, cursor: str | None = None, *, limit: int = 1000, with_vector: bool = True
    ) -> Plan[tuple[list[Item], str | None]]:
        params = {"limit": str(limit), "with_vector": str(with_vector).lower()}
        if cursor is not None:
            params["cursor"] = cursor
        reply = yield from self._ask(Send("GET", self._paths["items"], params=params))
        found = read_json(reply.content)
        items = [Item(each["id"], each.get("vector"), each["payload"]) for each in found["items"]]
        return items, found["next_cursor"]

    def export(  # noqa: D102
        self, path: str | Path, *, progress: Progress | None = None
    ) -> Plan[int]:
        return (yield from exported(self, str(path), progress))

    def names(  # noqa: D102
        self, prefix: str = "", *, limit: int = 20, indices: Iterable[int] | None = None
    ) -> Plan[dict[int, str]]:
        if indices is None:
            params = {"limit": str(limit)} | ({"prefix": prefix} if prefix else {})
            return (yield from self._names(params))
        wanted = sorted({*map(int, indices)})
        found: dict[int, str] = {}
        for first in range(0, len(wanted), _INDICES):
            some = ",".join(map(str, wanted[first : first + _INDICES]))
            found |= yield from self._names({"indices": some})
        return found

    def _names(self, params: Mapping[str, str]) -> Plan[dict[int, str]]:
        reply = yield from self._ask(Send("GET", self._paths["names"], params=params))
        return {each["index"]: each["name"] for each in orjson.loads(reply.content)["names"]}

    def set_names(self, names: Iterable[str]) -> Plan[int]:  # noqa: D102
        body = orjson.dumps({"names": [*names]})
        reply = yield from self._ask(Send("PUT", self._paths["names"], body, _JSON_HEADERS))
        return int(orjson.loads(reply.content)["count"])

    def count(self) -> Plan[int]:  # noqa: D102
        found = yield from self.describe()
        return int(found["items"])

    def describe(self) -> Plan[dict[str, Any]]:  # noqa: D102
        reply = yield from self._ask(Send("GET", self._paths[""]))
        found: dict[str, Any] = orjson.loads(reply.content)
        return found


def _item_or_vector(what: Any) -> dict[str, Any]:
    return {"id": str(what)} if is_id(what) else {"vector": _json_vector(what)}


def _json_vector(vector: Any) -> Any:
    """Return one vector as orjson writes it; an array of float32 goes as it is."""
    if isinstance(vector, np.ndarray) and vector.ndim == 1 and vector.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(vector, np.float32)
    rows = row_of(vector)
    return rows.matrix()[0] if isinstance(rows, DenseRows) else next(rows.json())


def _told(rows: DenseRows, progress: Progress | None) -> Iterator[Piece]:
    """Yield the pieces of an `.npy` body, and tell how many rows each holds."""
    for piece in bodies.npy(rows):
        yield piece
        if progress is not None and isinstance(piece, memoryview):
            progress(len(piece) // rows.row_bytes)


def _each_told(batches: Iterable[Items], progress: Progress | None) -> Iterator[Items]:
    for batch in batches:
        yield batch
        if progress is not None:
            progress(len(batch))


def _places(columns: dict[str, Any]) -> Places:
    """Return the places of a map by its columns."""
    xy = np.array([columns["x"], columns["y"]], np.float64).T
    lists, numbers = columns["neighbours"], columns["scores"]
    width = max(map(len, lists), default=0)
    neighbours, scores = np.full((len(xy), width), NO_NEIGHBOUR), np.zeros((len(xy), width))
    for row, (found, values) in enumerate(zip(lists, numbers, strict=True)):
        neighbours[row, : len(found)] = found
        scores[row, : len(found)] = values
    return Places(xy, neighbours, scores)
