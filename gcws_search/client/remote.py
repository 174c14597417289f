"""A collection of a server."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import orjson

from gcws_search.client.collection import Collection, Guarantee, Mode, OnError, Progress
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
from gcws_search.client.retries import Reply, Requester, Send, waiting
from gcws_search.formats import bodies
from gcws_search.formats.given import items_of, rows_of
from gcws_search.formats.items import require_ids, texts_of
from gcws_search.formats.payloads import filter_of, read_json
from gcws_search.formats.vectors import is_id, row_of
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
_NO_HEADERS: Final[Mapping[str, str]] = {}
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


class RemoteCollection(Collection):
    """A collection of a server; see `Collection` for its operations.

    Each is a coroutine that `waiting` turns into one that waits; `AsyncCollection` awaits it.
    """

    def __init__(self, name: str, config: CollectionConfig, server: Requester) -> None:
        self.name = name
        self.config = config
        self._server = server
        self._path = path_of(name)

    async def _ask(
        self,
        method: str,
        word: str,
        content: Any = None,
        headers: Mapping[str, str] = _NO_HEADERS,
        params: Mapping[str, str] = _NO_HEADERS,
        *,
        repeatable: bool = True,
    ) -> Reply:
        path = f"{self._path}/{word}" if word else self._path
        request = Send(method, path, content, headers, params, repeatable)
        return await self._server.ask(request, self.name)

    async def _post(self, word: str, document: Mapping[str, Any]) -> Any:
        body = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
        return read_json((await self._ask("POST", word, body, _JSON_HEADERS)).content)

    # Writing

    @waiting
    async def add(
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
    ) -> Added:
        items = await self._server.call(lambda: items_of(data, ids, payloads, id_start))
        if not len(items):
            return Added(0, 0)
        params: dict[str, str] = {"mode": mode, "on_error": on_error}
        if keep_payloads:
            require_ids(items)
            params["payloads"] = "keep"
        body = bodies.load_body(items, items.batches, progress)
        return await self.load(body, params, secrets.token_hex(16))

    async def load(
        self, body: bodies.LoadBody, params: Mapping[str, str], key: str | None = None
    ) -> Added:
        """Send a body of any length to the route ``load``.

        Parameters
        ----------
        params : mapping of str to str
            ``mode``, ``on_error``, ``payloads``, ``max_rejected``.
        key : str or None
            ``Idempotency-Key``, by which a load goes on where it broke off.
        """
        headers = {"Content-Type": body.content_type}
        if key is not None:
            headers["Idempotency-Key"] = key
        if body.bytes_ is not None:
            headers["Content-Length"] = str(body.bytes_)
        if body.id_start is not None:
            params = {**params, "id_start": str(body.id_start)}
        attempts = 0

        def pieces() -> Iterable[bodies.Piece]:
            nonlocal attempts
            attempts += 1
            return body.pieces()

        reply = await self._ask("POST", "load", pieces, headers, params, repeatable=key is not None)
        found = orjson.loads(reply.content)
        ids = GivenIds(**found["ids"]) if "ids" in found else None
        before = found.get("loaded_before") if attempts == 1 else None  # else by this very call
        rejected = [
            Rejected(each["row"], each["code"], each["detail"]) for each in found["rejected"]
        ]
        counts = found["inserted"], found["updated"]
        return Added(*counts, rejected, found["rejected_count"], ids, before)

    @waiting
    async def delete(
        self,
        ids: str | int | Iterable[str] | None = None,
        *,
        where: Mapping[str, Any] | None = None,
    ) -> int:
        document: dict[str, Any] = {}
        if ids is not None:
            document["ids"] = texts_of(ids)
        if where is not None:
            document["filter"] = filter_of(where)
        found = await self._post("items/delete", document)
        return int(found["deleted"])

    # Searching

    @waiting
    async def query(
        self,
        vector: Any = None,
        *,
        id: str | int | None = None,
        limit: int = 10,
        recall: float = 0.9,
        min_score: float = 0.0,
        where: Mapping[str, Any] | None = None,
        guarantee: Guarantee = "measured",
        backend: str | None = None,
        explain: bool = False,
    ) -> Hits:
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
        found = await self._post("query", document)
        hits = [Hit(each["id"], each["score"], each.get("payload")) for each in found["hits"]]
        return Hits(hits, found.get("explain"))

    @waiting
    async def query_many(
        self,
        vectors: Any,
        *,
        limit: int = 10,
        recall: float = 0.9,
        min_score: float = 0.0,
        where: Mapping[str, Any] | None = None,
        guarantee: Guarantee = "measured",
        backend: str | None = None,
        on_error: OnError = "stop",
    ) -> ManyHits:
        rows = await self._server.call(lambda: rows_of(vectors))
        asked: dict[str, Any] = {
            "limit": limit,
            "recall": recall,
            "min_score": min_score,
            "guarantee": guarantee,
            "with_payload": False,
        }
        if backend is not None:
            asked["backend"] = backend
        params = {name: str(value) for name, value in asked.items()} | {"with_payload": "false"}
        if on_error != "stop":
            params["on_error"] = on_error
        if where is not None:
            asked["filter"] = filter_of(where)
        step = max(1, min(_QUERY_BYTES // max(1, rows.row_bytes), _QUERY_HITS // max(1, limit)))
        found: list[dict[str, Any]] = []
        for first in range(0, len(rows), step):
            part = rows.part(slice(first, first + step))
            if where is None:
                kind, body = bodies.queries(part)
                headers = {"Content-Type": kind}
                reply = await self._ask("POST", "query/batch", body, headers, params)
                answer = orjson.loads(reply.content)
            else:
                queries = [{"vector": vector, **asked} for vector in part.json()]
                answer = await self._post("query/batch", {"queries": queries, "on_error": on_error})
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

    @waiting
    async def pairs(
        self, *, min_score: float, limit: int | None = None, recall: float = 0.9
    ) -> list[Pair]:
        body = orjson.dumps({"min_score": min_score, "limit": limit, "recall": recall})
        reply = await self._ask("POST", "pairs", body, _JSON_HEADERS)
        return [Pair(**orjson.loads(line)) for line in reply.content.splitlines()]

    @waiting
    async def explain(self, a: Any, b: Any, *, limit: int = SHARES) -> Explained:
        asked = {"a": _item_or_vector(a), "b": _item_or_vector(b), "limit": limit}
        found = await self._post("explain", asked)
        coordinates = [Share(**{"name": None} | each) for each in found.pop("coordinates")]
        return Explained(coordinates=coordinates, rest=Rest(**found.pop("rest")), **found)

    @waiting
    async def map(
        self,
        *,
        sample: int = 5000,
        landmarks: int = 256,
        seed: int = 0,
        where: Mapping[str, Any] | None = None,
        also: Iterable[Any] = (),
        key: str | None = None,
    ) -> ItemMap:
        asked: dict[str, Any] = {"sample": sample, "landmarks": landmarks, "seed": seed, "key": key}
        asked["also"] = [str(each) if is_id(each) else _json_vector(each) for each in also]
        if where is not None:
            asked["filter"] = filter_of(where)
        found = await self._post("map", asked)
        return ItemMap(found["ids"], _places(found), _places(found["also"]), found.get("values"))

    @waiting
    async def profile(self, *, sample: int = 1000, seed: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = await self._post("profile", {"sample": sample, "seed": seed})
        return found

    @waiting
    async def compare(
        self,
        queries: Any = None,
        *,
        sample: int = 100,
        limit: int = 10,
        recall: float = 0.9,
        backends: list[str] | None = None,
        seed: int = 0,
    ) -> Compared:
        asked: dict[str, Any] = {"limit": limit, "recall": recall, "seed": seed}
        if queries is None:
            asked["sample"] = sample
        else:
            asked["queries"] = [*rows_of(queries).json()]
        if backends is not None:
            asked["backends"] = backends
        found = await self._post("compare", asked)
        figures = [BackendFigures(**each) for each in found["backends"]]
        return Compared(figures, found["mean_similarity"])

    # Reading

    @waiting
    async def get(self, id: str | int) -> Item:
        reply = await self._ask("GET", f"items/{_segment(str(id))}")
        return Item(**read_json(reply.content))

    @waiting
    async def page(
        self, cursor: str | None = None, *, limit: int = 1000, with_vector: bool = True
    ) -> tuple[list[Item], str | None]:
        params = {"limit": str(limit), "with_vector": str(with_vector).lower()}
        if cursor is not None:
            params["cursor"] = cursor
        reply = await self._ask("GET", "items", params=params)
        found = read_json(reply.content)
        items = [Item(each["id"], each.get("vector"), each["payload"]) for each in found["items"]]
        return items, found["next_cursor"]

    @waiting
    async def names(
        self, prefix: str = "", *, limit: int = 20, indices: Iterable[int] | None = None
    ) -> dict[int, str]:
        if indices is None:
            params = {"limit": str(limit)} | ({"prefix": prefix} if prefix else {})
            return await self._names(params)
        wanted = sorted({*map(int, indices)})
        found: dict[int, str] = {}
        for first in range(0, len(wanted), _INDICES):
            some = ",".join(map(str, wanted[first : first + _INDICES]))
            found |= await self._names({"indices": some})
        return found

    async def _names(self, params: Mapping[str, str]) -> dict[int, str]:
        reply = await self._ask("GET", "names", params=params)
        return {each["index"]: each["name"] for each in orjson.loads(reply.content)["names"]}

    @waiting
    async def set_names(self, names: Iterable[str]) -> int:
        body = orjson.dumps({"names": [*names]})
        reply = await self._ask("PUT", "names", body, _JSON_HEADERS)
        return int(orjson.loads(reply.content)["count"])

    async def _describe(self) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads((await self._ask("GET", "")).content)
        return found

    @waiting
    async def count(self) -> int:
        return int((await self._describe())["items"])

    @waiting
    async def describe(self) -> dict[str, Any]:
        return await self._describe()


def _item_or_vector(what: Any) -> dict[str, Any]:
    return {"id": str(what)} if is_id(what) else {"vector": _json_vector(what)}


def _json_vector(vector: Any) -> Any:
    """Return one vector as orjson writes it; an array of float32 goes as it is."""
    if isinstance(vector, np.ndarray) and vector.ndim == 1 and vector.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(vector, np.float32)
    rows = row_of(vector)
    return rows.matrix()[0] if rows.dense is not None else next(rows.json())


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
