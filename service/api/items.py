"""Items: store, show, page through, delete."""

from typing import Annotated, Any, Final

from fastapi import Query, Request, Response

from gcws_search import index as ix
from gcws_search.service.api import requests
from gcws_search.service.api.bodies import DeleteItemsBody, PageParams, PutItemsBody
from gcws_search.service.http import json_router, may_read, may_write, service_of
from gcws_search.service.limits import AnswerBytes, id_in_url, require_at_most
from gcws_search.service.responses import (
    READ_PROBLEMS,
    WRITE_PROBLEMS,
    JsonResponse,
    ids_json,
    payload_json,
    shows,
    vector_json,
)

_MAX_GROUPED: Final = 16
"""Puts of at most this many items are committed with those of other requests."""
_VECTORS_AT_ONCE: Final = 64
reading = json_router("/v1/collections/{name}/items", "items", may_read, READ_PROBLEMS)
writing = json_router("/v1/collections/{name}/items", "items", may_write, WRITE_PROBLEMS)


def _item(item: ix.StoredItem, *, with_vector: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": item.id}
    if with_vector:
        shown["vector"] = vector_json(item.vector)
    shown["payload"] = payload_json(item.payload)
    return shown


@writing.put("", responses=shows("WriteAnswer"))
async def put_items(request: Request, name: str, body: PutItemsBody) -> Response:
    """Store items, all or nothing; the answer means they are on disk.

    Items without ids are given the next numbers not taken.
    """
    service = service_of(request)
    collection = service.collection(name)

    def read() -> ix.ItemBatch:
        return requests.items(body.items, collection, service.settings)

    if not body.items:
        return JsonResponse({"inserted": 0, "updated": 0})
    service.room.require()
    try:
        if len(body.items) <= _MAX_GROUPED:
            result = await service.puts.put(collection, read, body.mode)
        else:
            result = await service.workers.writes.run(lambda: collection.put(read(), body.mode))
    except ix.InvalidVector as error:
        if error.loc[:1] == ("items",):
            raise
        raise requests.within(error, "items", "vector") from None  # found by the transform
    told: dict[str, Any] = {"inserted": result.inserted, "updated": result.updated}
    if result.ids is not None:
        told["ids"] = ids_json(result.ids)
    return JsonResponse(told)


@writing.post("/delete", responses=shows("DeleteAnswer"))
async def delete_items(request: Request, name: str, body: DeleteItemsBody) -> Response:
    """Delete items by their ids, or all that a filter permits."""
    service = service_of(request)
    collection = service.collection(name)
    if (body.ids is None) == (body.filter is None):
        got = "neither" if body.ids is None else "both"
        raise ix.InvalidParameter(expected="one of 'ids' and 'filter'", got=got)
    if body.ids is not None:
        deleted = await service.workers.writes.run(collection.delete, list(map(str, body.ids)))
        return JsonResponse({"deleted": deleted})
    where, _ = requests.condition(body.filter, service.settings)
    if where is not None:
        where.require_conditions()
    deleted = await service.workers.writes.run(collection.delete_where, where)
    return JsonResponse({"deleted": deleted})


@reading.get("", responses=shows("PageAnswer"))
async def page_items(
    request: Request, name: str, params: Annotated[PageParams, Query()]
) -> Response:
    """Show a page of items in a stable order: of all, of those that pass a filter, or of some."""
    service = service_of(request)
    limit = service.settings.max_page_limit
    require_at_most(params.limit, limit, "limit")
    collection = service.collection(name)
    where, ids = requests.page_filter(params, service.settings), requests.page_ids(params, limit)

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
            shown += [_item(item, with_vector=params.with_vector) for item in page.items]
            cursor = page.next_cursor
            if cursor is None or len(shown) == params.limit:
                return JsonResponse({"items": shown, "next_cursor": cursor})

    return await service.workers.searches.run(work)


@reading.get("/{item_id:any_text}", responses=shows("ItemAnswer"))
async def show_item(request: Request, name: str, item_id: str) -> Response:
    """Show one item as it was sent."""
    service = service_of(request)
    collection = service.collection(name)
    item = await service.workers.searches.run(collection.get, id_in_url(item_id))
    return JsonResponse(_item(item, with_vector=True))


@writing.delete("/{item_id:any_text}", status_code=204)
async def delete_item(request: Request, name: str, item_id: str) -> Response:
    """Delete one item."""
    service = service_of(request)
    collection = service.collection(name)
    text = id_in_url(item_id)
    if not await service.workers.writes.run(collection.delete, [text]):
        raise ix.ItemNotFound(text)
    return Response(status_code=204)
