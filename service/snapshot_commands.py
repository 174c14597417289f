"""``gcws-search snapshot …``: snapshots of a server that runs, here or elsewhere."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final
from urllib.parse import quote

import httpx
import typer

from gcws_search.index import GcwsError, check_name

_SQLITE: Final = "application/vnd.sqlite3"
_PIECE_BYTES: Final = 1 << 20
_UNFINISHED: Final = ".part"
_HINTS: Final = {"collection_exists": "; --replace replaces it"}
"""What to do about a problem, by its code."""

cli = typer.Typer()
snapshots = typer.Typer(
    name="snapshot",
    help="Make, list, move and restore snapshots of a running server.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

cli.add_typer(snapshots)

Collection = Annotated[str, typer.Argument(help="Name of the collection.")]
Snapshot = Annotated[str, typer.Argument(help="Name of the snapshot.")]
Url = Annotated[str, typer.Option("--url", envvar="GCWS_URL", help="Where the server is.")]
Key = Annotated[str | None, typer.Option("--api-key", envvar="GCWS_API_KEY", help="Its key.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_LOCAL: Final = "http://127.0.0.1:8000"


@snapshots.command("create")
def create(
    collection: Collection,
    *,
    keep: Annotated[
        int | None,
        typer.Option("--keep", min=1, help="Then remove all but this many, the latest."),
    ] = None,
    as_json: AsJson = False,
    url: Url = _LOCAL,
    key: Key = None,
) -> None:
    """Make a snapshot, and print its name."""
    with _client(url, key) as client:
        snapshot = _asked(client, "POST", _path(collection)).json()
        _print(snapshot, as_json)
        if keep is None:
            return
        others = [each for each in _listed(client, collection) if each["name"] != snapshot["name"]]
        others.sort(key=lambda each: (each["created"], each["name"]), reverse=True)
        for each in others[keep - 1 :]:
            _asked(client, "DELETE", _path(collection, each["name"]))


@snapshots.command("list")
def show(
    collection: Collection, *, as_json: AsJson = False, url: Url = _LOCAL, key: Key = None
) -> None:
    """List the snapshots of a collection: name, bytes, SHA-256, time."""
    with _client(url, key) as client:
        found = _listed(client, collection)
    if as_json:
        typer.echo(json.dumps({"snapshots": found}))
        return
    for snapshot in found:
        _print(snapshot, as_json)
    if not found:
        typer.echo(
            f"no snapshots of {collection}; `gcws-search snapshot create {collection}` makes one",
            err=True,
        )


@snapshots.command("download")
def download(
    collection: Collection,
    snapshot: Snapshot,
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write.")],
    url: Url = _LOCAL,
    key: Key = None,
) -> None:
    """Download a snapshot; the file appears when its SHA-256 is right."""
    part = output.with_name(output.name + _UNFINISHED)
    with _client(url, key) as client, client.stream("GET", _path(collection, snapshot)) as answer:
        if answer.is_error:
            answer.read()
            _refuse(answer)
        sha = hashlib.sha256()
        try:
            with part.open("wb") as file:
                for piece in answer.iter_bytes(_PIECE_BYTES):
                    sha.update(piece)
                    file.write(piece)
            if answer.headers["etag"].strip('"') != sha.hexdigest():
                _fail("what arrived is not what was sent; nothing is kept")
            part.replace(output)
        finally:
            part.unlink(missing_ok=True)


@snapshots.command("upload")
def upload(
    collection: Collection,
    snapshot: Snapshot,
    file: Annotated[Path, typer.Argument(help="File to send.", exists=True, dir_okay=False)],
    *,
    as_json: AsJson = False,
    url: Url = _LOCAL,
    key: Key = None,
) -> None:
    """Upload a snapshot under a name; the server compares its SHA-256."""
    with file.open("rb") as content, _client(url, key) as client:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
        content.seek(0)
        headers = {"Content-Type": _SQLITE, "Content-Length": str(file.stat().st_size)}
        answer = _asked(
            client,
            "PUT",
            f"{_path(collection, snapshot)}?sha256={digest}",
            content=_pieces(content),
            headers=headers,
        )
        _print(answer.json(), as_json)


@snapshots.command("restore")
def restore(
    collection: Collection,
    snapshot: Snapshot,
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a collection that exists.")
    ] = False,
    as_json: AsJson = False,
    url: Url = _LOCAL,
    key: Key = None,
) -> None:
    """Make the collection from a snapshot."""
    path = f"{_path(collection, snapshot)}/restore?replace={str(replace).lower()}"
    with _client(url, key) as client:
        items = _asked(client, "POST", path).json()["items"]
    if as_json:
        typer.echo(json.dumps({"collection": collection, "items": items}))
    else:
        typer.echo(f"{collection}: {items} items")


@snapshots.command("delete")
def delete(collection: Collection, snapshot: Snapshot, url: Url = _LOCAL, key: Key = None) -> None:
    """Remove a snapshot."""
    with _client(url, key) as client:
        _asked(client, "DELETE", _path(collection, snapshot))


@contextmanager
def _client(url: str, key: str | None) -> Iterator[httpx.Client]:
    headers = {} if key is None else {"X-API-Key": key}
    try:
        # Snapshots and restores take as long as they take.
        with httpx.Client(base_url=url, headers=headers, timeout=None) as client:
            yield client
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        _fail(f"{url}: {error}")


def _path(*names: str) -> str:
    for name in names:
        if "/" in name:  # a server would take it for another path
            try:
                check_name(name)
            except GcwsError as error:
                _fail(str(error))
    collection, *rest = (quote(name, safe="") for name in names)
    return "/".join(["/v1/collections", collection, "snapshots", *rest])


def _listed(client: httpx.Client, collection: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _asked(client, "GET", _path(collection)).json()["snapshots"]
    return found


def _asked(client: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response:  # noqa: ANN401
    answer = client.request(method, path, **more)
    if answer.is_error:
        _refuse(answer)
    return answer


def _refuse(answer: httpx.Response) -> None:
    try:
        problem = answer.json()
        _fail(f"{problem['detail']}{_HINTS.get(problem.get('code'), '')}")
    except (ValueError, KeyError, TypeError):
        _fail(f"the server answered with {answer.status_code}")


def _fail(message: str) -> None:
    typer.echo(f"gcws-search: {message}", err=True)
    raise typer.Exit(1)


def _print(snapshot: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(snapshot))
        return
    typer.echo("  ".join(str(snapshot[key]) for key in ("name", "bytes", "sha256", "created")))


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_PIECE_BYTES):
        yield piece
