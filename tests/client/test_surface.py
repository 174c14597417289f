"""What HTTP can do, Python and the command line can, too: or a list says why not."""

import json
from collections.abc import Iterator
from typing import Final

import pytest

from gcws_search.client.collection import AsyncCollection, Collection
from gcws_search.client.connection import AsyncServer, AsyncServerSnapshots, Server, ServerSnapshots
from gcws_search.commands.app import COMMANDS
from tests.support.paths import REPOSITORY

_COLLECTION: Final = "/v1/collections/{name}"

COLLECTION: Final = {
    "POST /query": "query",
    "POST /count": "count",
    "POST /query/batch": "query_many",
    "PUT /items": "add",
    "GET /items": "page",
    "PATCH /items": "set_payload",
    "PATCH /items/{item_id}": "set_payload",
    "POST /items/delete": "delete",
    "DELETE /items/{item_id}": "delete",
    "GET /items/{item_id}": "get",
    "POST /load": "add",
    "GET ": "describe",
    "POST /transform/fit": "fit",
    "GET /names": "names",
    "PUT /names": "set_names",
    "POST /compare": "compare",
    "POST /explain": "explain",
    "POST /pairs": "pairs",
    "POST /groups": "groups",
    "POST /join": "join",
    "POST /map": "map",
    "POST /profile": "profile",
    "GET /recall": "audits",
    "GET /curve": "curve",
    "GET /loads": "loads",
    "PATCH ": "set_metadata",
    "POST /backends": "attach",
    "DELETE /backends/{backend}": "detach",
}
"""Operations of a collection, and the method of `Collection` and `AsyncCollection`.

Each has a body here and one for a server: `Collection._do` takes both.
"""

SERVER: Final = {
    "GET /v1/collections": "collections",
    f"PUT {_COLLECTION}": "collection",
    f"DELETE {_COLLECTION}": "drop",
    "GET /healthz": "health",
}
"""Operations of a server, and the method of `Server` and `AsyncServer`: a file needs none."""

SNAPSHOTS: Final = {
    "GET /snapshots": "list",
    "POST /snapshots": "create",
    "GET /snapshots/{snapshot}": "download",
    "PUT /snapshots/{snapshot}": "upload",
    "DELETE /snapshots/{snapshot}": "delete",
    "POST /snapshots/{snapshot}/restore": "restore",
}
"""Operations on backups, and the method of `ServerSnapshots` and `AsyncServerSnapshots`."""

COMMAND: Final = {
    "POST /query": "query",
    "POST /count": "count",
    "PUT /items": "load",
    "GET /items": "export",
    "PATCH /items": "payload",
    "PATCH /items/{item_id}": "payload",
    "POST /items/delete": "delete",
    "DELETE /items/{item_id}": "delete",
    "GET /items/{item_id}": "get",
    "POST /load": "load",
    "POST /v1/preview": "load",
    "GET ": "collections",
    "PUT ": "create",
    "POST /transform/fit": "fit",
    "DELETE ": "collections",
    "GET /names": "names",
    "PUT /names": "names",
    "POST /compare": "compare",
    "POST /explain": "explain",
    "POST /pairs": "pairs",
    "POST /groups": "groups",
    "POST /join": "join",
    "GET /v1/collections": "collections",
    "GET /healthz": "health",
    "GET /readyz": "health",
    "PATCH ": "collections",
    "GET /recall": "recall",
    "POST /backends": "backends",
    "DELETE /backends/{backend}": "backends",
    **dict.fromkeys(SNAPSHOTS, "snapshot"),
}

_PROBE: Final = "answers what supervises the process"
_ABOUT: Final = "tells people where things are; the version is the program's own"
NOT_IN_PYTHON: Final = {
    "GET /livez": _PROBE,
    "GET /readyz": "a client waits for a server that starts by itself",
    "GET /metrics": "is read by Prometheus",
    "GET /metrics/targets": "is read by Prometheus",
    "GET /v1": _ABOUT,
    "POST /v1/preview": "a program has a frame, and knows its columns; `load` shows it of a file",
    "POST /v1/similarity": "`gcws_search.similarity` computes it without a server",
    "POST /sketch": "`Collection.index.sketch` makes signatures of a file's; a search needs none",
}
NOT_A_COMMAND: Final = {
    "GET /livez": _PROBE,
    "GET /metrics": "is read by Prometheus",
    "GET /metrics/targets": "is read by Prometheus; people have `cluster status`",
    "GET /v1": _ABOUT,
    "POST /query/batch": "arrays of queries are a program's",
    "POST /v1/similarity": "two vectors do not fit into a line; `explain` compares items",
    "POST /sketch": "signatures are a program's",
    "POST /map": "the page draws it",
    "POST /profile": "the page draws it",
    "GET /curve": "the page draws it",
    "GET /loads": "the page shows them; `load` tells of its own",
}


def operations() -> Iterator[str]:
    """Yield each operation of the API as its method and path, below a collection without it."""
    for path, methods in json.loads((REPOSITORY / "openapi.json").read_text())["paths"].items():
        for method in methods:
            yield f"{method.upper()} {path}"


def short(operation: str) -> str:
    return operation.replace(_COLLECTION, "", 1)


OPERATIONS: Final = [*operations()]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_is_in_python_or_in_a_list_of_reasons(operation: str) -> None:
    word = short(operation)
    found = [
        *((kind, COLLECTION.get(word)) for kind in (Collection, AsyncCollection)),
        *((kind, SERVER.get(operation)) for kind in (Server, AsyncServer)),
        *((kind, SNAPSHOTS.get(word)) for kind in (ServerSnapshots, AsyncServerSnapshots)),
    ]
    named = [(kind, name) for kind, name in found if name is not None]
    assert bool(named) != (word in NOT_IN_PYTHON), operation
    for kind, name in named:
        assert callable(getattr(kind, name, None)), (operation, kind)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_operation_is_a_command_or_in_a_list_of_reasons(operation: str) -> None:
    word = short(operation)
    name = COMMAND.get(word)
    assert (name is not None) != (word in NOT_A_COMMAND), operation
    assert name is None or name in COMMANDS


def test_what_a_collection_can_do_is_awaited_too() -> None:
    public = {name for name in vars(Collection) if not name.startswith("_")}
    assert public - {*vars(AsyncCollection)} == {"index"}, "what the index alone can do is not"


def test_the_lists_of_reasons_name_operations_that_there_are() -> None:
    known = {*map(short, OPERATIONS)}
    assert {*NOT_IN_PYTHON, *NOT_A_COMMAND} <= known
