"""A collection of a server, as `Collection` uses it: sends requests and reads answers."""

from __future__ import annotations

import re
import secrets
from base64 import b64encode
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar
from urllib.parse import quote

import numpy as np
import orjson

from gcws_search import index as ix
from gcws_search.client.errors import error_of
from gcws_search.client.results import (
    Added,
    Compared,
    Count,
    FoundGroups,
    FoundItems,
    GivenIds,
    Hits,
    Item,
    Joined,
    ManyHits,
    Pair,
    Rejected,
    hit_of,
    hits_of,
    items_in_order,
    joined_of,
    rejected_of,
    with_fingerprint,
)
from gcws_search.formats.items import (
    Items,
    LoadBody,
    Piece,
    documents,
    is_unicode,
    load_body,
    queries,
)
from gcws_search.formats.payloads import metadata_text, read_json, write_json
from gcws_search.formats.vectors import (
    in_order,
    is_id,
    is_text,
    name_column,
    points_of,
    row_of,
    split_column,
)

if TYPE_CHECKING:
    from gcws_search.client.connection import Requester
    from gcws_search.client.wire import Answer

R = TypeVar("R")
Naming = Literal["no names", "names", "own names"]
"""Of a first load: rows have no names; they go by those that there were; it gave these itself."""
JSON_HEADERS: Final = {"Content-Type": "application/json"}
_QUERY_BYTES: Final = 8 << 20
"""Bytes of the queries of one request."""
_PLACE: Final = re.compile(r"^(query|row|item) \d+")
"""How what is wrong with one of several queries, or rows, begins."""
_INDICES: Final = 4000
"""Coordinates that fit into one address."""
_PAGE_IDS: Final = 1000
_ADDRESS_BYTES: Final = 16_000
"""Ids that are asked for together, and how long they are in the address."""
_FILTER_BYTES: Final = 60_000
"""Bytes of a filter that fit into an address; a server takes heads of 64 KiB."""
_JOINED_LINES: Final = 10_000
"""Lines of a join that are read together."""
_QUERY_HITS: Final = 1_000_000
"""Hits that one answer holds."""
_PER_REQUEST: Final = 100_000
"""Queries, or ids of a change, that a server takes in one request."""


def run(coroutine: Coroutine[Any, Any, R]) -> R:
    """Return the result of a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: R = end.value
        return result
    raise AssertionError("a requester that blocks was suspended")


def path_of(name: str, *rest: str) -> str:
    """Return the path of a collection, or of a resource in it."""
    for each in (name, *rest):
        if "/" in each:  # a server would route it elsewhere
            ix.check_name(each)
    return "/".join(["/v1/collections", *map(segment, (name, *rest))])


def segment(text: str) -> str:
    """Return a text as one segment of a path; a segment of dots would be resolved.

    An unpaired surrogate is sent as a question mark, which no name contains.
    """
    quoted = quote(text, safe="", errors="replace")
    return quoted.replace(".", "%2E") if quoted in {".", ".."} else quoted


def item_path(item_id: str | int) -> str:
    """Return the path of an item; without an id it would be the path of all items."""
    if not str(item_id) or not is_unicode(str(item_id)):
        raise ix.ItemNotFound(str(item_id))
    return f"items/{segment(str(item_id))}"


class RemoteCollection:
    """Sends requests about one collection of a server.

    Its methods are coroutines. For a `Server` they block and never suspend.
    """

    def __init__(self, name: str, config: ix.CollectionConfig, server: Requester) -> None:
        self.name = name
        self.config = config
        self.server = server
        self._path = path_of(name)

    async def ask(
        self,
        method: str,
        word: str,
        content: Any = None,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        *,
        repeatable: bool = True,
    ) -> Answer:
        """Send a request about the collection, or about ``word`` in it."""
        path = f"{self._path}/{word}" if word else self._path
        return await self.server.ask(
            method, path, content, headers, params, repeatable=repeatable, collection=self.name
        )

    async def fetch(
        self, word: str, result: Callable[[Any], R], params: Mapping[str, Any] | None = None
    ) -> R:
        """Return ``result`` of the JSON at a path of the collection."""
        return result(read_json((await self.ask("GET", word, params=params)).content))

    async def send(
        self,
        word: str,
        document: Mapping[str, Any],
        result: Callable[[Any], R],
        *,
        method: str = "POST",
        repeatable: bool = True,
    ) -> R:
        """Send JSON, and return ``result`` of the JSON answer."""
        try:
            body = write_json(document)
        except TypeError as error:
            expected = "values that JSON holds"
            raise ix.InvalidParameter(expected=expected, got=str(error)) from None
        reply = await self.ask(method, word, body, JSON_HEADERS, repeatable=repeatable)
        return result(read_json(reply.content))

    async def fit(self, weights: tuple[float, ...] | ix.WeightKind | None) -> dict[str, Any]:
        found: dict[str, Any] = await self.send("transform/fit", present(weights=weights), dict)
        if weights is not None:
            transform = replace(self.config.transform, weights=weights)
            self.config = replace(self.config, transform=transform)
        return found

    async def add(
        self,
        read: Callable[[], tuple[Items, Mapping[int, ix.InvalidInput]]],
        mode: ix.Mode,
        on_error: str,
        progress: Callable[[int], None] | None,
        *,
        keep_payloads: bool,
    ) -> Added:
        """Store items by one load with its own key, which resumes after a lost connection."""
        params = {"on_error": on_error} | ({"payloads": "keep"} if keep_payloads else {})
        if isinstance(mode, ix.UnlessSimilar):
            params |= {"mode": "unless_similar"}
            params |= {word: str(value) for word, value in asdict(mode).items()}
        else:
            params |= {"mode": mode}
        items, unreadable = await self.server.call(read)
        if progress is not None and unreadable:
            progress(len(unreadable))
        if not len(items):
            return Added(0, 0).with_unreadable(unreadable)
        naming = await self.take_names(items.rows.columns)
        columns: list[str] | None = None
        try:
            items = replace(items, rows=await self.in_order(items.rows))
            columns = items.rows.columns
            body = load_body(items, progress)
            added = await self.load(body, params, secrets.token_hex(16))
            numbers = items.numbers or range(len(items))
            rejected = [
                Rejected(numbers[row], code, _words_of(detail, numbers[row], columns))
                for row, code, detail in added.rejected
            ]
            similar = [each._replace(row=numbers[each.row]) for each in added.similar]
            return replace(added, rejected=rejected, similar=similar).with_unreadable(unreadable)
        except ix.InvalidInput as error:
            raise name_column(error, items.rows) from None
        finally:
            await self.settle_names(columns, naming)

    async def take_names(self, columns: list[str] | None) -> Naming:
        """Set names of columns if the collection has neither items nor names; return its state.

        After the load, call `settle_names`.
        """
        if columns is None or len(columns) != self.config.dim:
            return "no names"
        has_names = bool(await self.names("", 1, None))
        if await self._count():
            return "no names"
        if has_names:
            return "names"
        await self.set_names(columns, replace=False)  # another client may have set names first
        is_own = await self.names_by_coordinate() == dict(enumerate(columns))
        return "own names" if is_own else "names"

    async def settle_names(self, columns: list[str] | None, naming: Naming) -> None:
        """Remove these names if no row was stored; otherwise check that all exist.

        columns: names by coordinate, by which rows were stored. Another client whose first rows
        were refused may have removed equal names of its own in between.
        """
        if naming == "own names":
            await self.set_names([], replace=False)  # only if there are no items
        if naming != "no names" and columns is not None and await self._count():
            await self.set_names(columns, replace=False)

    async def _count(self) -> int:
        return await self.send("count", {}, lambda found: int(found["count"]))

    async def in_order(self, rows: ix.InputVectors) -> ix.InputVectors:
        """Return a matrix of named columns in the order of the coordinates."""
        if rows.columns is None:
            return rows
        return in_order(rows, await self.names_by_coordinate(), self.config.dim)

    async def names_by_coordinate(self) -> dict[int, str]:
        """Return the names of all coordinates of a fixed dim; none for an open space."""
        if self.config.dim is None:
            return {}
        found = await self.fetch("names", dict, {"limit": str(_INDICES)})
        if len(found["names"]) < found["count"]:
            return await self.names("", 1, range(self.config.dim))
        return {each["index"]: each["name"] for each in found["names"]}

    async def vector(self, vector: Any) -> Any:
        """Return one vector as JSON; see `_json_vectors`."""
        if type(vector) is np.ndarray and vector.ndim == 1 and vector.dtype.kind == "f":
            with np.errstate(over="ignore"):
                return _base64(vector)
        return next(_json_vectors(await self.in_order(row_of(vector))))

    async def query(self, vector: Any, asked: Mapping[str, Any], *, distance: bool) -> Hits:
        """Return the hits of one query, by a vector or by the options."""
        point = {} if vector is None else {"vector": await self.vector(vector)}
        found = await self.send("query", {**asked, **point}, dict)
        hits = [
            hit_of(each["id"], each["score"], each.get("payload"), each.get("text"))
            for each in found["hits"]
        ]
        shown = Hits(hits, found.get("explain"), found.get("hints", ()))
        return shown.rescore("gmm", distance=distance)

    async def explain(self, a: Any, b: Any, limit: int) -> ix.Explained:
        points = {word: await self.point(what) for word, what in (("a", a), ("b", b))}
        found = await self.send("explain", {**points, "limit": limit}, dict)
        coordinates = [ix.Share(**{"name": None} | each) for each in found.pop("coordinates")]
        contained, rest = ix.Contained(**found.pop("contained")), ix.Rest(**found.pop("rest"))
        return ix.Explained(contained=contained, coordinates=coordinates, rest=rest, **found)

    async def point(self, what: Any) -> dict[str, Any]:
        """Return an id, a vector or a text in the API's form for explanations."""
        if is_text(what):
            return dict(what)
        return {"id": str(what)} if is_id(what) else {"vector": await self.vector(what)}

    async def map(self, asked: Mapping[str, Any], also: Iterable[Any]) -> ix.ItemMap:
        points = [
            str(each) if is_id(each) else each if is_text(each) else await self.vector(each)
            for each in also
        ]
        found = await self.send("map", {**asked, "also": points}, dict)
        islands = found.get("islands")
        if islands is not None:
            islands = [ix.Island(**each) for each in islands]
        sample, others = _places(found), _places(found["also"])
        values, hints = found.get("values"), found.get("hints", ())
        return ix.ItemMap(found["ids"], sample, others, values, islands, hints)

    async def compare(self, asked: Mapping[str, Any], queries: Any) -> Compared:
        if queries is not None:
            rows, texts = await self.in_order(found := points_of(queries)), found.texts
            points = _json_vectors(rows) if texts is None else ({"text": text} for text in texts)
            asked = {**asked, "queries": [*points]}
        answer = await self.send("compare", asked, dict)
        backends = [ix.BackendComparison(**each) for each in answer["backends"]]
        return Compared(backends, answer["mean_similarity"])

    async def put(self, read: Callable[[], Items], mode: ix.Mode) -> Added:
        """Store items over their expected versions by one request, all or none."""
        items = await self.server.call(read)
        if not len(items):
            return Added(0, 0)
        points = items.rows.texts or _json_vectors(items.rows)
        body = {"items": [*documents(items, points)], "mode": mode}

        def counts(found: Any) -> Added:
            return Added(found["inserted"], found["updated"])

        return await self.send("items", body, counts, method="PUT", repeatable=False)

    async def delete(
        self, ids: list[str] | None, where: Mapping[str, Any] | None, if_version: int | None
    ) -> Count:
        if if_version is None or ids is None:
            return await self._change("items/delete", "deleted", ids, present(filter=where))
        params = {"if_version": str(if_version)}
        await self.ask("DELETE", item_path(ids[0]), params=params, repeatable=False)
        return Count(1)

    async def set_payload(
        self,
        ids: list[str] | None,
        where: Mapping[str, Any] | None,
        payload: bytes | None,
        merge: bool,
        if_version: int | None,
    ) -> Count:
        word, document = "items", present(filter=where, if_version=if_version)
        document |= {"merge": merge, "payload": None if payload is None else read_json(payload)}
        if if_version is not None and ids is not None:
            word, ids = item_path(ids[0]), None
        how: dict[str, Any] = {"method": "PATCH", "repeatable": if_version is None}
        return await self._change(word, "updated", ids, document, **how)

    async def _change(
        self, path: str, word: str, ids: list[str] | None, document: Mapping[str, Any], **how: Any
    ) -> Count:
        """Send a change of items, some of the ids at a time; return the sum of ``word``."""
        parts: list[dict[str, Any]] = [{}]
        if ids is not None:
            wanted = [*dict.fromkeys(ids)]
            firsts = range(0, max(1, len(wanted)), _PER_REQUEST)
            parts = [{"ids": wanted[first : first + _PER_REQUEST]} for first in firsts]
        count = partial(_count_of, word)
        counts = [await self.send(path, {**document, **part}, count, **how) for part in parts]
        return counts[0] if len(counts) == 1 else Count(sum(counts))

    async def load(
        self, body: LoadBody, params: Mapping[str, str], key: str | None = None
    ) -> Added:
        """Send a body of any length to the route ``load``; with a key, retries resume it.

        ``params``: ``mode``, ``on_error``, ``payloads``, ``max_rejected``.
        """
        headers = {"Content-Type": body.content_type}
        if key is not None:
            headers["Idempotency-Key"] = key
        if body.bytes_ is not None:
            headers["Content-Length"] = str(body.bytes_)
        if body.id_start is not None:
            params = {**params, "id_start": str(body.id_start)}
        attempts = 0

        def pieces() -> Iterable[Piece]:
            nonlocal attempts
            attempts += 1
            return body.pieces()

        reply = await self.ask("POST", "load", pieces, headers, params, repeatable=key is not None)
        found = orjson.loads(reply.content)
        return Added(
            found["inserted"],
            found["updated"],
            [Rejected(**each) for each in found["rejected"]],
            found["rejected_count"],
            GivenIds(**found["ids"]) if "ids" in found else None,
            found.get("loaded_before") if attempts == 1 else None,  # else by this call
            [ix.SimilarItem(**each) for each in found.get("similar", ())],
            found.get("similar_count", 0),
            found.get("repeated_count", 0),
        )

    async def query_many(
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
        """Return the hits of queries with equal options; a request has some megabytes of them."""
        rows, _, refused = await self.server.call(read)
        rows, limit = await self.in_order(rows), asked["limit"]
        params = {name: str(value) for name, value in asked.items()}
        params["with_payload"] = str(with_payload).lower()
        if on_error != "stop":
            params["on_error"] = on_error
        each_bytes = rows.row_bytes + len(write_json(asked.get("filter")))
        step = max(1, min(_QUERY_BYTES // each_bytes, _QUERY_HITS // limit, _PER_REQUEST))
        found: list[dict[str, Any]] = []
        for first in range(0, len(rows), step):
            part = rows.part(slice(first, first + step))
            texts = part.texts
            with _naming_rows("queries", part, first):
                if "filter" not in asked and texts is None:
                    kind, body = queries(part)
                    headers = {"Content-Type": kind}
                    reply = await self.ask("POST", "query/batch", body, headers, params)
                    answer = read_json(reply.content)
                else:
                    same = {**asked, "with_payload": with_payload}
                    each = (
                        [{"vector": vector, **same} for vector in _json_vectors(part)]
                        if texts is None
                        else [{"text": text, **same} for text in texts]
                    )
                    document = {"queries": each, "on_error": on_error}
                    answer = await self.send("query/batch", document, dict)
            found += answer["results"]
        answers = [each["hits"] for each in found if "error" not in each]
        lists = [([hit["id"] for hit in hits], [hit["score"] for hit in hits]) for hits in answers]
        payloads = [[hit["payload"] for hit in hits] for hits in answers] if with_payload else None
        places = [row for row in range(len(rows) + len(refused)) if row not in refused]
        rejected = [
            Rejected(
                row, each["error"]["code"], _words_of(each["error"]["detail"], row, rows.columns)
            )
            for row, each in zip(places, found, strict=True)
            if "error" in each
        ]
        rejected += [rejected_of(error, row, "query") for row, error in refused.items()]
        rejected.sort(key=lambda each: each.row)
        hints = dict.fromkeys(hint for each in found for hint in each.get("hints", ()))
        shown = None
        if with_payload and self.config.text is not None:
            shown = [[hit["text"] for hit in hits] for hits in answers]
        hits = replace(hits_of(lists, limit, payloads, shown), hints=[*hints])
        many = hits.rescore("gmm", distance=distance)
        return many.spread(rejected)

    async def set_metadata(self, metadata: Mapping[str, Any] | None) -> None:
        """Replace the metadata except a fingerprint."""
        text = metadata_text(metadata)
        document = None if text is None else read_json(text)
        if document is not None:
            document = with_fingerprint(document, (await self.fetch("", dict))["metadata"])
        await self.send("", {"metadata": document}, dict, method="PATCH")

    async def describe(self) -> dict[str, Any]:
        return await self.fetch("", dict)

    async def count(self, where: Mapping[str, Any] | None) -> Count:
        return await self.send("count", present(filter=where), partial(_count_of, "count"))

    async def curve(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return await self.fetch("curve", dict, asked)

    async def audits(self) -> dict[str, Any]:
        return await self.fetch("recall", dict)

    async def loads(self) -> list[dict[str, Any]]:
        return await self.fetch("loads", itemgetter("loads"))

    async def profile(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return await self.send("profile", asked, dict)

    async def attach(self, params: ix.BackendParams, name: str | None) -> dict[str, Any]:
        document = ix.backend_document(params) | present(name=name)
        # Without a name, a retry would attach it again under another name.
        return await self.send("backends", document, dict, repeatable=name is not None)

    async def detach(self, name: str) -> None:
        await self.ask("DELETE", f"backends/{segment(name)}")

    async def pairs(self, document: Mapping[str, Any]) -> list[Pair]:
        reply = await self.ask("POST", "pairs", write_json(document), JSON_HEADERS)
        return [Pair(**orjson.loads(line)) for line in reply.content.splitlines()]

    async def join(
        self, read: Callable[[], Items], asked: Mapping[str, Any], *, distance: bool
    ) -> Joined:
        """Return the hits of vectors, which are sent as one stream."""
        params = {name: str(value) for name, value in asked.items()}
        if "filter" in asked:
            params["filter"] = write_json(asked["filter"]).decode()
        items = await self.server.call(read)
        rows = await self.in_order(items.rows)
        with _naming_rows("data", rows):
            found, _ = await self.join_body(load_body(Items(None, rows), None), params)
        return found.named(items.texts()).rescore("gmm", distance=distance)

    async def join_body(self, body: LoadBody, params: Mapping[str, str]) -> tuple[Joined, int]:
        """Return the hits of the vectors of a body, and the number of vectors."""
        headers, size = {"Content-Type": body.content_type}, len(quote(params.get("filter", "")))
        if size > _FILTER_BYTES:
            expected = f"at most {_FILTER_BYTES} bytes in the address of a join of vectors"
            raise ix.InvalidFilter(expected=expected, got=str(size), loc=("filter",))
        reply = await self.ask("POST", "join", body.pieces, headers, params)
        return joined_lines(reply.content, self.name)

    async def join_collection(
        self, other: Any, asked: Mapping[str, Any], *, distance: bool
    ) -> Joined:
        """Return the hits of the items of another collection of the same server."""
        body = write_json({**asked, "collection": other.name})
        reply = await self.ask("POST", "join", body, JSON_HEADERS)
        found = replace(joined_lines(reply.content, self.name)[0], rows=None)
        return found.rescore("gmm", distance=distance)

    async def groups(self, document: Mapping[str, Any]) -> FoundGroups:
        reply = await self.ask("POST", "groups", write_json(document), JSON_HEADERS)
        *found, last = map(orjson.loads, reply.content.splitlines())
        groups = (
            ix.Group(
                each["representative"],
                [(member["id"], member["score"]) for member in each["members"]],
                each["weakest"],
            )
            for each in found
        )
        return FoundGroups(groups, last.get("hints", ()))

    async def page(
        self, cursor: str | None, limit: int, with_vector: bool
    ) -> tuple[list[Item], str | None]:
        params = {"limit": str(limit), "with_vector": str(with_vector).lower()}
        found = await self.fetch("items", dict, params | present(cursor=cursor))
        return items_of_page(found), found["next_cursor"]

    async def find(self, text: str, limit: int) -> FoundItems:
        params = {"q": text, "limit": limit}
        return await self.fetch(
            "items", lambda found: FoundItems(items_of_page(found), found["complete"]), params
        )

    async def get(self, item_id: str) -> Item:
        return await self.fetch(item_path(item_id), lambda found: Item(**found))

    async def get_many(self, ids: list[str], with_vector: bool) -> list[Item]:
        wanted, found = [*dict.fromkeys(ids)], list[Item]()
        while wanted:
            lengths = accumulate(len(segment(each)) + len("&ids=") for each in wanted[:_PAGE_IDS])
            count = max(1, sum(length <= _ADDRESS_BYTES for length in lengths))
            some, wanted = wanted[:count], wanted[count:]
            # Repeated values are ids; a single value would be a list with commas.
            values = some if len(some) > 1 else some * 2
            params = {"ids": values, "limit": len(values), "with_vector": str(with_vector).lower()}
            found += await self.fetch("items", items_of_page, params)
        return items_in_order(ids, found)

    async def set_names(self, names: list[str], *, replace: bool = True) -> int:
        body: dict[str, Any] = {"names": names} if replace else {"names": names, "replace": False}
        return await self.send("names", body, lambda found: int(found["count"]), method="PUT")

    async def names(self, prefix: str, limit: int, indices: Iterable[int] | None) -> dict[int, str]:
        if indices is None:
            asked = [{"limit": str(limit)} | ({"prefix": prefix} if prefix else {})]
        else:
            wanted = sorted({*indices})
            runs = (wanted[first : first + _INDICES] for first in range(0, len(wanted), _INDICES))
            asked = [{"indices": ",".join(map(str, run))} for run in runs]
        found: dict[int, str] = {}
        for params in asked:
            names = await self.fetch("names", itemgetter("names"), params)
            found |= {each["index"]: each["name"] for each in names}
        return found


def joined_lines(content: bytes, collection: str) -> tuple[Joined, int]:
    """Return the hits in an answer of the route ``join``, and the number of vectors joined.

    Raises the error at its end.
    """
    *lines, last = content.splitlines()
    end = orjson.loads(last)
    if "error" in end:
        raise error_of(end["error"].get("status", 500), end["error"], collection=collection)
    parts = []
    for first in range(0, len(lines), _JOINED_LINES):
        hits = [*map(orjson.loads, lines[first : first + _JOINED_LINES])]
        ids = [hit["id"] for hit in hits if "id" in hit]
        parts.append(
            Joined(
                np.array([hit.get("row", 0) for hit in hits], np.int64),
                ids if len(ids) == len(hits) else None,
                [hit["to"] for hit in hits],
                np.array([hit["score"] for hit in hits], np.float64),
            )
        )
    return replace(joined_of(parts), hints=end.get("hints", ())), end["rows"]


def items_of_page(found: dict[str, Any]) -> list[Item]:
    """Return the items in an answer of the route ``items``."""
    return [Item(**{"vector": None} | each) for each in found["items"]]


def _json_vectors(rows: ix.InputVectors) -> Iterator[Any]:
    """Yield vectors as JSON; dense ones as base64, which also encodes NaN and infinities."""
    return rows.json() if rows.dense is None else map(_base64, rows.matrix())


def _base64(row: np.ndarray[Any, Any]) -> dict[str, str]:
    return {"base64": b64encode(row.astype("<f4").tobytes()).decode()}


def _words_of(detail: str, row: int, columns: Sequence[str] | None) -> str:
    """Return the error text for a row of a request, adapted to the caller's data."""
    text, name = split_column(detail, columns)
    return _PLACE.sub(rf"\1 {row}", detail if name is None else f"{text} (in {name})")


@contextmanager
def _naming_rows(name: str, rows: ix.InputVectors, first: int = 0) -> Iterator[None]:
    """Add the argument, its row and its column to errors about rows of a request."""
    try:
        yield
    except ix.InvalidInput as error:
        match name_column(error, rows):
            case ix.InvalidInput(loc=("queries" | "rows", int(row), *_)) as named:
                raise named.at(name, first + row, skip=2) from None
        raise


def present(**given: Any) -> dict[str, Any]:
    """Return the options that are not None."""
    return {name: value for name, value in given.items() if value is not None}


def _count_of(word: str, found: Any) -> Count:
    return Count(found[word], found.get("hints", ()))


def _places(columns: dict[str, Any]) -> ix.Places:
    xy = np.array([columns["x"], columns["y"]], np.float64).T
    lists, numbers = columns["neighbours"], columns["scores"]
    width = max(map(len, lists), default=0)
    neighbours, scores = np.full((len(xy), width), ix.NO_NEIGHBOUR), np.zeros((len(xy), width))
    for row, (found, values) in enumerate(zip(lists, numbers, strict=True)):
        neighbours[row, : len(found)] = found
        scores[row, : len(found)] = values
    return ix.Places(xy, neighbours, scores)
