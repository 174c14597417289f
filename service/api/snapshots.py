"""Snapshots: make, list, download, upload, restore, remove."""

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Annotated, Any, BinaryIO, Final

from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse

from gcws_search import index as ix
from gcws_search.service.api.collections import collection_json
from gcws_search.service.errors import BodyTooLarge
from gcws_search.service.http import (
    JsonResponse,
    ServiceOf,
    body_pieces,
    json_router,
    may_read,
    may_write,
    refuse_announced,
    require_media_type,
    require_plain,
)
from gcws_search.service.responses import BINARY, READ_PROBLEMS, SQLITE, WRITE_PROBLEMS, shows

reading = json_router("/v1/collections/{name}/snapshots", "snapshots", may_read, READ_PROBLEMS)
writing = json_router("/v1/collections/{name}/snapshots", "snapshots", may_write, WRITE_PROBLEMS)

_PIECE_BYTES: Final = 1 << 20


def _snapshot_json(snapshot: ix.Snapshot) -> dict[str, Any]:
    return {
        "name": snapshot.name,
        "bytes": snapshot.bytes_,
        "sha256": snapshot.sha256,
        "created": snapshot.created,
    }


@writing.post("", status_code=201, responses=shows("SnapshotAnswer", 201))
async def create_snapshot(service: ServiceOf, name: str) -> Response:
    """Make a snapshot of a collection at one moment, while queries and writes continue.

    It outlives the collection, and keeps items that are deleted later.
    """
    service.room.require()
    snapshot = await service.workers.files.run(service.catalog.snapshot, name)
    return JsonResponse(_snapshot_json(snapshot), 201)


@reading.get("", responses=shows("SnapshotList"))
async def list_snapshots(service: ServiceOf, name: str) -> Response:
    """List a collection's snapshots by name, also after it has been dropped."""
    found = await service.workers.searches.run(service.catalog.snapshots.list, name)
    return JsonResponse({"snapshots": [*map(_snapshot_json, found)]})


@reading.get("/{snapshot}", response_class=Response)
async def download_snapshot(service: ServiceOf, name: str, snapshot: str) -> Response:
    """Download a snapshot; `Repr-Digest` (RFC 9530) and `ETag` have its SHA-256."""
    found, file = await service.workers.searches.run(service.catalog.snapshots.open, name, snapshot)
    digest = base64.b64encode(bytes.fromhex(found.sha256)).decode()
    headers = {
        "Content-Length": str(found.bytes_),
        "Content-Disposition": f'attachment; filename="{found.path.name}"',
        "ETag": f'"{found.sha256}"',
        "Repr-Digest": f"sha-256=:{digest}:",
    }
    return StreamingResponse(_pieces(file), headers=headers, media_type=SQLITE)


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    try:
        while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
            yield piece
    finally:
        file.close()


@writing.put("/{snapshot}", status_code=201, responses=shows("SnapshotAnswer", 201))
async def upload_snapshot(
    request: Request,
    service: ServiceOf,
    name: str,
    snapshot: str,
    sha256: Annotated[
        str | None,
        Query(
            pattern="^[0-9A-Fa-f]{64}$",
            description="Expected SHA-256 of the file, 64 hexadecimal digits.",
        ),
    ] = None,
) -> Response:
    """Upload a snapshot; neither it nor its collection needs to exist here.

    Its rows are checked when it is restored.
    """
    require_media_type(request, SQLITE, BINARY)
    require_plain(request)
    service.room.require()
    limit = service.settings.max_snapshot_bytes
    if limit is not None:
        refuse_announced(request, limit)
    work = service.workers.writes.run
    incoming = await work(service.catalog.snapshots.incoming, name, snapshot)
    try:
        async for piece in _gather(request, limit):
            await work(incoming.write, piece)
        finished = await service.workers.files.run(incoming.finish, sha256)
    finally:
        incoming.discard()
    return JsonResponse(_snapshot_json(finished), 201)


async def _gather(request: Request, limit: int | None) -> AsyncIterator[bytes]:
    """Yield the body in pieces large enough to pass to a thread."""
    waiting, received = bytearray(), 0
    async for chunk in body_pieces(request):
        received += len(chunk)
        if limit is not None and received > limit:
            raise BodyTooLarge(limit)
        waiting += chunk
        if len(waiting) >= _PIECE_BYTES:
            yield bytes(waiting)
            waiting.clear()
    yield bytes(waiting)


@writing.post("/{snapshot}/restore", responses=shows("CollectionAnswer"))
async def restore_snapshot(
    service: ServiceOf,
    name: str,
    snapshot: str,
    replace: Annotated[
        bool, Query(description="Whether an existing collection of this name is replaced.")
    ] = False,
) -> Response:
    """Restore the collection from a snapshot; all rows are checked first.

    A collection of this name is replaced only with `replace=true`, and stays if anything fails.
    """

    def restore() -> dict[str, Any]:
        service.room.require()
        restored = service.catalog.restore(
            name, snapshot, replace=replace, admit=service.require_place
        )
        return collection_json(restored)

    return JsonResponse(await service.workers.files.run(restore))


@writing.delete("/{snapshot}", status_code=204)
async def remove_snapshot(service: ServiceOf, name: str, snapshot: str) -> Response:
    """Remove a snapshot."""
    await service.workers.writes.run(service.catalog.snapshots.remove, name, snapshot)
    return Response(status_code=204)
