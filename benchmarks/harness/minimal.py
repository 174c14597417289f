"""A minimal HTTP server for queries: ``python -m benchmarks.harness.minimal``.

It serves the collections of the folder ``GCWS_DATA_DIR`` with uvicorn and orjson. The queries of
one turn of the event loop are searched together. Only the vector's length is checked.
"""

import asyncio
import os
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import uvicorn

from gcws_search import index as ix

LIMIT: Final = 10
JSON: Final = (b"content-type", b"application/json")


class Application:
    """ASGI: a POST to ``/v1/collections/NAME/query`` is searched, anything else is answered 200."""

    def __init__(self, catalog: ix.Catalog) -> None:
        self.catalog = catalog
        self.params = ix.SearchParams(limit=LIMIT)
        self.waiting: list[tuple[str, list[float], asyncio.Future[bytes]]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
        """Answer one request."""
        body, message = b"", await receive()
        while message.get("more_body"):
            body, message = body + message["body"], await receive()
        answer = b"{}"
        if scope["method"] == "POST":
            loop = asyncio.get_running_loop()
            if not self.waiting:
                loop.call_soon(self.search)
            vector, future = orjson.loads(body + message["body"])["vector"], loop.create_future()
            self.waiting.append((scope["path"].split("/")[3], vector, future))
            answer = await future
        headers = [JSON, (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def search(self) -> None:
        """Search for all that wait; all are of one collection."""
        waiting, self.waiting = self.waiting, []
        collection = self.catalog.get(waiting[0][0])
        vectors = np.array([vector for _, vector, _ in waiting], np.float32)
        found = collection.search(collection.space.from_dense(vectors), self.params)
        for (_, _, future), hits in zip(waiting, found, strict=True):
            pairs = zip(hits.ids, hits.scores, strict=True)
            shown = [{"id": item_id, "score": score} for item_id, score in pairs]
            if not future.done():
                future.set_result(orjson.dumps({"hits": shown}))


def main() -> None:
    """Open the folder and serve it."""
    ix.compile_kernels()
    catalog = ix.Catalog.open(Path(os.environ["GCWS_DATA_DIR"]))
    catalog.load()
    uvicorn.run(
        Application(catalog),
        host=os.environ["GCWS_HOST"],
        port=int(os.environ["GCWS_PORT"]),
        lifespan="off",
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
