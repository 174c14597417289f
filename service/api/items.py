"""Items: store, show, page through, delete."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final

from fastapi import Query, Response
from pydantic import BaseModel, Field

from gcws_search import index as ix
from gcws_search.service.api import requests
from gcws_search.service.api.query import SHARE, hints_json
from gcws_search.service.http import (
    CollectionOf,
    JsonResponse,
    ServiceOf,
    json_router,
    may_read,
    may_write,
)
from gcws_search.service.limits import (
    AnswerBytes,
    id_in_url,
    require_at_most,
    require_short_id,
    require_short_payload,
)
from gcws_search.service.models import (
    MAX_VERSION,
    Body,
    Document,
    FilterDocument,
    FirstErrorOnly,
    Id,
    PointBody,
    PutItemBody,
    examples,
)
from gcws_search.service.responses import (
    READ_PROBLEMS,
    WRITE_PROBLEMS,
    ids_json,
    payload_json,
    shows,
    vector_json,
)
from gcws_search.service.settings import Settings

_MAX_GROUPED: Final = 16
"""Puts of at most this many items are committed with those of other requests."""
_VECTORS_AT_ONCE: Final = 64
reading = json_router("/v1/collections/{name}/items", "items", may_read, READ_PROBLEMS)
writing = json_router("/v1/collections/{name}/items", "items", may_write, WRITE_PROBLEMS)


class PutOptions(BaseModel):
    """What becomes of items that are there, and of those like others."""

    mode: ix.PutMode = Field(
        default="upsert",
        description="`upsert` replaces the vector and the payload of an existing id; `insert` "
        "refuses it; `unless_similar` skips every item that scores `min_score` or "
        "more with a stored one, or with an earlier one of the same request. The "
        "answer lists the skipped items as `similar`; that of a load, the first "
        "`max_rejected` of them.",
    )
    min_score: float | None = Field(
        default=None,
        description="With `unless_similar`: the score from which an item is skipped, in (0, 1].",
        json_schema_extra=SHARE,
    )
    recall: float | None = Field(
        default=None,
        description="With `unless_similar`: expected share of such items that is found among "
        "those stored before, in (0, 1]; 1 finds all, null is 0.9.",
        json_schema_extra=SHARE,
    )


class PutItemsBody(PutOptions, Body):
    """Items to store, all or nothing."""

    instead = "POST …/load takes items of any number"
    limited: ClassVar = {"items": "max_items_per_request"}
    model_config = examples(
        {
            "items": [
                {"id": "a", "vector": [0.1, -2, 0, 3], "payload": {"label": 3}},
                {"id": 7, "vector": {"indices": [1, 3], "values": [-2, 2.5]}},
            ]
        },
        {"items": [{"id": "b", "vector": [1, 0, 0, 1]}], "mode": "insert"},
        {"items": [{"id": "b", "vector": [1, 0, 0, 2], "if_version": 1}]},
        {"items": [{"id": "d", "vector": [1, 0, 0, 3], "expires": "2127-01-01T00:00:00Z"}]},
        {
            "items": [{"id": "c", "vector": [1, 0, 0, 1.1]}],
            "mode": "unless_similar",
            "min_score": 0.8,
        },
    )

    items: Annotated[list[PutItemBody], FirstErrorOnly()] = Field(
        description="The items; if an id is repeated the last one counts, where `mode` permits it."
    )


class DeleteItemsBody(Body):
    """Items to delete, by their ids or by a filter."""

    limited: ClassVar = {"ids": "max_items_per_request"}
    model_config = examples(
        {"ids": ["a", 7]}, {"filter": {"must": [{"key": "label", "match": {"value": 3}}]}}
    )

    ids: Annotated[list[Id], FirstErrorOnly()] | None = Field(
        default=None, description="Ids; unknown ones are ignored."
    )
    filter: FilterDocument | None = Field(
        default=None, description="Every item that matches; instead of `ids`."
    )


class PayloadChangeBody(Body):
    """What becomes of payloads."""

    payload: Document | None = Field(
        description="A JSON object; null, with `merge` false, removes the payload."
    )
    merge: bool = Field(
        default=True,
        description="Merge its top-level keys into the payload: they replace existing keys, "
        "other keys stay, and null sets a key to null. False replaces the payload.",
    )

    def change(self, limits: Settings) -> ix.PayloadChange:
        """Return the change as a type of the index."""
        require_short_payload(self.payload, limits, "payload")
        return ix.PayloadChange(self.payload, self.merge, limits.max_payload_bytes)


class PayloadBody(PayloadChangeBody):
    """A change to the payload of an item."""

    model_config = examples(
        {"payload": {"label": 4, "checked": True}},
        {"payload": {"label": 4}, "merge": False, "if_version": 1},
        {"payload": None, "merge": False},
    )

    if_version: int | None = Field(
        default=None,
        ge=1,
        le=MAX_VERSION,
        description="Change it only if the item has this version; else 409.",
    )


class PayloadsBody(DeleteItemsBody, PayloadChangeBody):
    """A change to the payloads of items, by their ids or by a filter."""

    model_config = examples(
        {
            "filter": {"must": [{"key": "label", "match": {"value": 3}}]},
            "payload": {"checked": True},
        },
        {"ids": ["a", 7], "payload": {"label": 4}, "merge": False},
    )


class PageParams(BaseModel):
    """Which page of items."""

    limit: int = Field(default=100, ge=1, description="Maximum number of items of the page.")
    cursor: str | None = Field(default=None, description="`next_cursor` of the previous page.")
    with_vector: bool = Field(default=False, description="Return vectors too.")
    filter: str | None = Field(
        default=None,
        description="Only items that match: a filter as in a query, its JSON text percent-encoded.",
    )
    ids: list[str] | None = Field(
        default=None,
        description="Only these items, instead of `filter`: `ids=a,b`, or `ids=a&ids=b`. If the "
        "parameter is repeated, commas are part of ids. Unknown ids are ignored.",
    )
    q: str | None = Field(
        default=None,
        min_length=1,
        description="Only items whose ids begin with this text, then those whose ids or payloads "
        "contain it, ignoring case; instead of `cursor`, `filter` and `ids`.",
    )


def _item(
    item: ix.StoredItem, collection: ix.StoredCollection, *, with_vector: bool
) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": item.id}
    if with_vector:
        shown["vector"] = vector_json(item.vector)
    shown |= payload_json(item.payload, has_text=collection.config.text is not None)
    shown["version"] = item.version
    if item.expires is not None:
        shown["expires"] = ix.expiry_text(item.expires)
    return shown


@writing.put("", responses=shows("WriteAnswer"))
async def put_items(service: ServiceOf, collection: CollectionOf, body: PutItemsBody) -> Response:
    """Store items, all or nothing; the answer means they are on disk.

    Items without ids get the next free numbers.
    """

    def read() -> tuple[ix.ItemBatch, ix.Mode]:
        return read_items(body.items, collection, service.settings), mode

    def put() -> ix.WriteResult:
        with collection.names.reading():
            return collection.put(*read())

    mode: ix.Mode = "upsert"
    if body.mode != "upsert" or (body.min_score, body.recall) != (None, None):
        mode = ix.put_mode(body.mode, body.min_score, body.recall)
    if not body.items:
        return JsonResponse({"inserted": 0, "updated": 0})
    if isinstance(mode, ix.UnlessSimilar):
        service.startup.require_kernels()
    service.room.require()
    try:
        if len(body.items) <= _MAX_GROUPED:
            result = await service.awaited.put(collection, read)
        else:
            result = await service.workers.writes.run(put)
    except ix.InvalidVector as error:
        if error.loc[:1] == ("items",):
            raise
        word = collection.space.word
        raise requests.within(error, "items", word) from None  # error of the transform
    except ix.InvalidParameter as error:
        raise (error.at("items") if isinstance(error.loc[0], int) else error) from None
    told: dict[str, Any] = {"inserted": result.inserted, "updated": result.updated}
    if result.ids is not None:
        told["ids"] = ids_json(result.ids)
    if isinstance(mode, ix.UnlessSimilar):
        told["similar"] = [each._asdict() for each in result.similar]
    return JsonResponse(told)


@writing.post("/delete", responses=shows("DeleteAnswer"))
async def delete_items(
    service: ServiceOf, collection: CollectionOf, body: DeleteItemsBody
) -> Response:
    """Delete items by their ids, or all that match a filter."""
    chosen = _chosen_items(body, service.settings)

    def work() -> Response:
        return _number_json("deleted", collection.delete(chosen), collection, chosen)

    return await service.workers.writes.run(work)


@writing.patch("", responses=shows("UpdateAnswer"))
async def change_payloads(
    service: ServiceOf, collection: CollectionOf, body: PayloadsBody
) -> Response:
    """Merge keys into the payloads of items, or replace these; vectors stay as they are."""
    change, chosen = body.change(service.settings), _chosen_items(body, service.settings)
    service.room.require()

    def work() -> Response:
        updated = collection.change_payloads(change, chosen)
        return _number_json("updated", updated, collection, chosen)

    return await service.workers.writes.run(work)


@reading.get("", responses=shows("PageAnswer"))
async def page_items(
    service: ServiceOf, collection: CollectionOf, params: Annotated[PageParams, Query()]
) -> Response:
    """Show a page of items in a stable order: of all, that pass a filter, by ids, or by a text."""
    limit = service.settings.max_page_limit
    require_at_most(params.limit, limit, "limit")
    if params.q is not None:
        size = AnswerBytes(service.settings.max_answer_bytes)
        return await service.workers.searches.run(_find_items, collection, params, params.q, size)
    if params.filter is not None and params.ids is not None:
        raise ix.InvalidParameter(expected="one of 'filter' and 'ids'", got="both")
    where = requests.condition_in_url(params.filter, service.settings)
    ids = _page_ids(params, limit)

    def work() -> Response:
        size = AnswerBytes(service.settings.max_answer_bytes)
        shown: list[dict[str, Any]] = []
        cursor, step = params.cursor, _VECTORS_AT_ONCE if params.with_vector else params.limit
        while True:
            page = collection.page(
                limit=min(step, params.limit - len(shown)),
                cursor=cursor,
                with_vector=params.with_vector,
                where=where,
                ids=ids,
            )
            size.add_hits([one.id for one in page.items], [one.payload for one in page.items])
            size.add_vectors([item.vector for item in page.items])
            shown += [
                _item(item, collection, with_vector=params.with_vector) for item in page.items
            ]
            cursor = page.next_cursor
            if cursor is None or len(shown) == params.limit:
                is_first = params.cursor is None and not shown
                more = hints_json(where, collection.hints) if is_first else {}
                return JsonResponse({"items": shown, "next_cursor": cursor, **more})

    return await service.workers.searches.run(work)


def _find_items(
    collection: ix.StoredCollection, params: PageParams, text: str, size: AnswerBytes
) -> Response:
    for name in ("cursor", "filter", "ids"):
        if getattr(params, name) is not None:
            raise ix.InvalidParameter(expected=f"one of 'q' and {name!r}", got="both")
    found = collection.find(text, params.limit)
    items = found.items
    size.add_hits([one.id for one in items], [one.payload for one in items])
    if params.with_vector:
        named: dict[str, ix.StoredItem] = {}
        for first in range(0, len(items), _VECTORS_AT_ONCE):
            ids = [one.id for one in items[first : first + _VECTORS_AT_ONCE]]
            page = collection.page(
                limit=len(ids), cursor=None, with_vector=True, where=None, ids=ids
            )
            size.add_vectors([one.vector for one in page.items])
            named |= {one.id: one for one in page.items}
        items = [named[one.id] for one in items if one.id in named]  # without items deleted since
    shown = [_item(one, collection, with_vector=params.with_vector) for one in items]
    return JsonResponse({"items": shown, "next_cursor": None, "complete": found.complete})


@reading.get("/{item_id:any_text}", responses=shows("ItemAnswer"))
async def show_item(service: ServiceOf, collection: CollectionOf, item_id: str) -> Response:
    """Show one item as it was sent."""
    item = await service.workers.searches.run(collection.get, id_in_url(item_id))
    return JsonResponse(_item(item, collection, with_vector=True))


@writing.patch("/{item_id:any_text}", responses=shows("UpdateAnswer"))
async def change_payload(
    service: ServiceOf, collection: CollectionOf, item_id: str, body: PayloadBody
) -> Response:
    """Merge keys into the payload of an item, or replace it; its vector stays as it is."""
    text, change = id_in_url(item_id), body.change(service.settings)
    service.room.require()
    if not await service.awaited.change_payload(collection, text, change, body.if_version):
        raise ix.ItemNotFound(text)
    return JsonResponse({"updated": 1})


@writing.delete("/{item_id:any_text}", status_code=204)
async def delete_item(
    service: ServiceOf,
    collection: CollectionOf,
    item_id: str,
    if_version: Annotated[
        int | None,
        Query(ge=1, le=MAX_VERSION, description="Delete it only if it has this version; else 409."),
    ] = None,
) -> Response:
    """Delete one item."""
    text = id_in_url(item_id)

    def work() -> int:
        return collection.delete([text], if_version=if_version)

    if not await service.workers.writes.run(work):
        raise ix.ItemNotFound(text)
    return Response(status_code=204)


# Conversion of bodies and parameters to types of the index


def _chosen_items(body: DeleteItemsBody, limits: Settings) -> ix.Filter | Sequence[str]:
    ix.require_one(ids=body.ids, filter=body.filter)
    if body.ids is not None:
        return list(map(str, body.ids))
    where = requests.condition(body.filter, limits)
    assert where is not None
    where.require_conditions()
    return where


def _number_json(
    word: str, number: int, collection: ix.StoredCollection, chosen: ix.Filter | Sequence[str]
) -> Response:
    """Return the number of items that existed; with hints if none passed a filter."""
    where = chosen if isinstance(chosen, ix.Filter) and not number else None
    return JsonResponse({word: number, **hints_json(where, collection.hints)})


def read_items(
    raw: Sequence[PutItemBody], collection: ix.StoredCollection, limits: Settings
) -> ix.ItemBatch:
    """Return items as types of the index."""
    ids: list[str | None] = []
    payloads: list[bytes | None] = []
    given: list[PointBody] = []
    wanted: list[int | None] = []
    expires: list[int | None] = []
    for row, item in enumerate(raw):
        item_id = None if item.id is None else str(item.id)
        if item_id is not None and len(item_id) > limits.max_id_length:
            require_short_id(item_id, limits, "items", row, "id")
        point: PointBody = item.vector
        payload = item.payload
        if point is None or item.text is not None:
            try:
                point, payload = item.point(), item.stored_payload()
            except ix.InvalidInput as error:
                raise error.at("items", row) from None
        given.append(point)
        if payload is not None and len(payload) > limits.max_payload_bytes:
            require_short_payload(payload, limits, "items", row, "payload")
        ids.append(item_id)
        payloads.append(payload)
        wanted.append(item.if_version)
        at = item.expires
        if at is not None:
            at = ix.expiry_ms(at, "items", row, now=collection.clock())
        expires.append(at)
    place = "items", collection.space.word
    vectors = requests.vectors(given, collection, collection.names.reserve, limits, *place)
    if wanted.count(None) == len(wanted):
        wanted = []
    if expires.count(None) == len(expires):
        expires = []
    return ix.ItemBatch(ids, vectors, payloads, wanted, expires)


def _page_ids(params: PageParams, count: int) -> list[str] | None:
    """Return the ids of a page: a single value is a list with commas, repeated values are ids."""
    if params.ids is None:
        return None
    words = params.ids[0].split(",") if len(params.ids) == 1 else params.ids
    require_at_most(len(words), count, "ids")
    return [id_in_url(word, "ids") for word in words]
