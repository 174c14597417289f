"""Commands about a server, and about files without a running server."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gcws_search.commands.options import (
    FAILED,
    Json,
    Name,
    Yes,
    ask,
    asking,
    bar,
    fail,
    failures,
    family,
    in_words,
    object_from,
    report,
    require_output,
    space_words,
    tell,
    tell_rows,
    usage,
    whole_number,
)
from gcws_search.index import quantity
from gcws_search.version import program_version

if TYPE_CHECKING:
    from gcws_search.client.connection import Server, ServerSnapshots
    from gcws_search.client.snapshot_store import SnapshotStore

cli = family()

_SECONDS: Final = 2.0
"""Within the time that a container's health check has."""


@asking(cli, "collections", epilog="Example: gcws-search collections mnist")
def collections(
    server: Server,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Show this collection.")
    ] = None,
    *,
    drop: Annotated[
        str | None, typer.Option("--drop", metavar="NAME", help="Drop a collection and its file.")
    ] = None,
    metadata: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Replace the metadata of NAME; null removes it."),
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """List all collections, show one, change its metadata, or drop it (asks first)."""
    document = object_from(metadata, "--metadata")
    if metadata is not None and name is None:
        usage("--metadata: expected the NAME of a collection, got none")
    if drop is not None:
        if not yes:
            items = quantity(len(server.collection(drop)), "item")
            ask(f"Drop {drop!r} with {items}?")
        server.drop(drop)
        tell(as_json, {"dropped": drop}, f"{drop}: dropped")
    elif name is not None:
        collection = server.collection(name)
        if metadata is not None:
            collection.set_metadata(document)
        described = collection.describe()
        tell(as_json, described, *_lines(described))
    else:
        none = "no collections; `gcws-search load FILE --into NAME` makes one"
        columns = ["name", "items", "dim", "backends", "bytes"]
        tell_rows(as_json, server.collections(), columns, none)


def _lines(described: dict[str, Any]) -> list[str]:
    """Return a description of a collection, one fact per line."""
    found, text = described, described.get("text")
    changes = [
        f"{word} {f'{len(value):,} numbers' if isinstance(value, list) else value}"
        for word, value in found["transform"].items()
        if value not in (None, "none", 1) and word != "weights"
    ]
    weights = found.get("weights")
    if weights:
        of = f"learned from {quantity(weights['items'], 'item')}"
        of = of if weights["learned"] else "not learned yet"
        changes.append(f"weights {weights['kind']}, {of}")
    backend = found["backend"]
    params = (f"{word.replace('_', ' ')} {in_words('', value)}"
              for word, value in backend["params"].items() if value is not None)  # fmt: skip
    facts = {
        "items": f"{found['items']:,}, {space_words(found['dim'], text and text['tokens'])}",
        "vectors": "in a file that is mapped" if found["bytes_mapped"] else "in memory",
        "transform": ", ".join(changes) or "none",
        "names": f"{found['names']:,} coordinates have one" if found["names"] else "none",
        "search": f"{backend['kind']}: {', '.join(params)}",
        "others": ", ".join(each["name"] for each in found["backends"] if not each["primary"]),
        "size": f"{in_words('bytes', found['bytes_on_disk'])} on disk, "
        f"{in_words('bytes', found['bytes_in_memory'])} in memory",
        "expire": f"after {found['ttl']:,g} s" if found.get("ttl") else "",
        "metadata": in_words("", found["metadata"]),
    }
    return [found["name"], *(f"  {word:10} {told}" for word, told in facts.items() if told)]


@asking(cli, "names", epilog="Example: gcws-search names functions --prefix path")
def names(
    server: Server,
    name: Name,
    *,
    prefix: Annotated[str, typer.Option(help="Only names with this prefix.")] = "",
    limit: Annotated[
        int, typer.Option(parser=whole_number(), help="Maximum number of names.")
    ] = 20,
    set_: Annotated[
        Path | None,
        typer.Option(
            "--set", help="Set the names from a file with one name a line, in order.", exists=True
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the names of coordinates, or set those of a collection of fixed dim."""
    collection = server.collection(name)
    if set_ is not None:
        from gcws_search.formats.files import InputFile, naming_damage  # noqa: PLC0415

        with naming_damage(str(set_), "text"), closing(InputFile(set_, format_="text")) as file:
            count = collection.set_names(line.decode().rstrip("\r\n") for line in file.lines())
        tell(as_json, {"count": count}, f"{name}: {quantity(count, 'name')}")
        return
    rows = [
        {"index": index, "name": each}
        for index, each in collection.names(prefix, limit=limit).items()
    ]
    none = f"{name}: no coordinate has a name" + (f" that begins with {prefix!r}" if prefix else "")
    if not prefix and collection.config.dim is not None:
        none += "; --set FILE names them"
    tell_rows(as_json, rows, ["index", "name"], none)


@asking(cli, "export", epilog="Example: gcws-search export mnist -o mnist.parquet")
def export(
    server: Server,
    name: Name,
    *,
    output: Annotated[
        str, typer.Option("-o", "--output", help="File to write: .ndjson, .jsonl or .parquet.")
    ],
    as_json: Json = False,
) -> None:
    """Write all items of a collection to a file that `load` can read."""
    require_output(output, (".ndjson", ".jsonl", ".parquet"))
    collection = server.collection(name)
    with bar(f"{name}", total=len(collection)) as progress:
        count = collection.export(output, progress=progress.rows)
    tell(as_json, {"exported": count, "file": output}, f"{output}: {quantity(count, 'item')}")


@cli.command("health")
def health(
    *,
    as_json: Json = False,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            envvar="GCWS_URL",
            help="Address of the server; default GCWS_PORT of this machine.",
        ),
    ] = None,
) -> None:
    """Show whether a server is ready; exit with 1 if it is not, or does not answer."""
    address = url or f"http://127.0.0.1:{os.environ.get('GCWS_PORT') or 8000}"
    is_ready, answer = _readiness(address)
    told = str(answer["phase"])
    if answer.get("total") and not is_ready:
        told += f", {answer.get('loaded', 0):,} of {answer['total']:,}"
        if (left := answer.get("seconds_left")) is not None:
            told += f", about {left:.0f} s more"
    tell(as_json, {"url": address, **answer}, f"{address}: {told}")
    if not is_ready:
        raise typer.Exit(FAILED)


def _readiness(url: str) -> tuple[bool, dict[str, Any]]:
    """Return whether a server is ready, and its progress; no key is needed.

    A container asks every few seconds, so imports must cost less than the request.
    """
    from http import HTTPStatus  # noqa: PLC0415
    from http.client import HTTPConnection, HTTPException, HTTPSConnection  # noqa: PLC0415
    from urllib.parse import urlsplit  # noqa: PLC0415

    try:
        parts = urlsplit(url)
        kind = {"http": HTTPConnection, "https": HTTPSConnection}[parts.scheme]
        connection = kind(parts.hostname or "", parts.port, timeout=_SECONDS)
    except (ValueError, KeyError):
        fail(f"expected the address of a server, as http://127.0.0.1:8000, got {url!r}")
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/readyz")
        reply = connection.getresponse()
        document = json.loads(reply.read())
        if reply.status in (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE) and "phase" in document:
            return reply.status == HTTPStatus.OK, document
        cause = f"status {reply.status}"
    except OSError as error:
        cause = error.strerror or str(error)
    except (HTTPException, ValueError, TypeError):
        cause = "no answer of one"
    finally:
        connection.close()
    fail(f"expected a server at {url}, got {cause}; `gcws-search serve` starts one")


@cli.command("version")
def version(*, as_json: Json = False) -> None:
    """Print the version."""
    found = program_version()
    tell(as_json, {"version": found}, found)


snapshots = typer.Typer(
    name="snapshot",
    help="Make, list, move and restore snapshots of a running server.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

cli.add_typer(snapshots)

Collection = Annotated[str, typer.Argument(help="Name of the collection.")]
Snapshot = Annotated[str, typer.Argument(help="Name of the snapshot.")]
Store = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="ADDRESS", help="In this object store (s3://bucket/prefix) or folder."
    ),
]


@asking(snapshots, "create")
def create(
    server: Server,
    collection: Collection,
    *,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="ADDRESS",
            help="Then copy it to an object store (s3://bucket/prefix) or folder.",
        ),
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep",
            parser=whole_number(1),
            help="Then keep only this many of the latest, on the server and in --to.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a snapshot, and print its name.

    With --to, a snapshot appears in the store once its upload is complete.
    """
    on_server = server.snapshots(collection)
    places: list[Any] = [on_server]
    if to is not None:
        places.append(_snapshots(server, collection, to))
        places[-1].list()  # fails before anything is created if the store does not answer
    snapshot = on_server.create()
    if to is not None:
        on_server.copy_to(snapshot["name"], to)
    tell(as_json, snapshot, _line(snapshot))
    for place in places if keep is not None else ():
        others = [each for each in place.list() if each["name"] != snapshot["name"]]
        others.sort(key=lambda each: (each["created"], each["name"]), reverse=True)
        for each in others[(keep or 1) - 1 :]:
            place.delete(each["name"])


@asking(snapshots, "list")
def show(
    server: Server, collection: Collection, *, from_: Store = None, as_json: Json = False
) -> None:
    """List the snapshots of a collection: name, bytes, SHA-256, time."""
    listed = _snapshots(server, collection, from_).list()
    where, more = ("", "") if from_ is None else (" there", " --to ADDRESS")
    make = f"gcws-search snapshot create {collection}{more}"
    none = f"no snapshots of {collection}{where}; `{make}` makes one"
    tell_rows(as_json, listed, ["name", "bytes", "created", "sha256"], none)


def _snapshots(
    server: Server, collection: str, store: str | None
) -> ServerSnapshots | SnapshotStore:
    if store is None:
        return server.snapshots(collection)
    from gcws_search.client.snapshot_store import SnapshotStore  # noqa: PLC0415

    return SnapshotStore(store, collection)


@asking(snapshots, "download")
def download(
    server: Server,
    collection: Collection,
    snapshot: Snapshot,
    *,
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write.")],
    as_json: Json = False,
) -> None:
    """Download a snapshot; the file appears after its SHA-256 is verified."""
    require_output(output)
    server.snapshots(collection).download(snapshot, output)
    nbytes = output.stat().st_size
    answer = {"file": str(output), "bytes": nbytes}
    tell(as_json, answer, f"{output}: {in_words('bytes', nbytes)}")


@asking(snapshots, "upload")
def upload(
    server: Server,
    collection: Collection,
    snapshot: Snapshot,
    file: Annotated[Path, typer.Argument(help="File to upload.", exists=True, dir_okay=False)],
    *,
    as_json: Json = False,
) -> None:
    """Upload a snapshot under a name; the server compares its SHA-256."""
    stored = server.snapshots(collection).upload(snapshot, file)
    tell(as_json, stored, _line(stored))


@asking(snapshots, "restore")
def restore(
    server: Server,
    collection: Collection,
    snapshot: Snapshot,
    *,
    from_: Store = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an existing collection.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Restore the collection from a snapshot.

    With --from it is first sent to the server, which compares its SHA-256.
    """
    from gcws_search.index import CollectionExists  # noqa: PLC0415

    on_server = server.snapshots(collection)
    if from_ is not None:
        on_server.copy_from(snapshot, from_)
    try:
        items = on_server.restore(snapshot, replace=replace)["items"]
    except CollectionExists as error:
        fail(f"{error}; --replace replaces it")
    answer = {"collection": collection, "items": items}
    tell(as_json, answer, f"{collection}: {quantity(items, 'item')}")


@asking(snapshots, "delete")
def delete(
    server: Server,
    collection: Collection,
    snapshot: Snapshot,
    *,
    from_: Store = None,
    as_json: Json = False,
) -> None:
    """Remove a snapshot."""
    _snapshots(server, collection, from_).delete(snapshot)
    tell(as_json, {"deleted": snapshot}, f"{snapshot}: deleted")


def _line(snapshot: dict[str, Any]) -> str:
    return "  ".join(in_words(key, snapshot[key]) for key in ("name", "bytes", "created", "sha256"))


Folder = Annotated[
    Path, typer.Argument(envvar="GCWS_DATA_DIR", help="Folder of the collections' files.")
]


@cli.command("check")
def check(
    data_dir: Folder = Path("data"),
    *,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Replace damaged files by files with everything that is sound."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Verify all files of a folder that no server uses; exit with 1 if one is damaged."""
    from gcws_search.index import check_directory  # noqa: PLC0415

    is_well = True
    with _folder(data_dir):
        for found in check_directory(data_dir, repair=repair):
            is_well &= found.is_sound or found.repaired
            state = "sound" if found.is_sound else "repaired" if found.repaired else "damaged"
            lost = f", {found.lost:,} lost" if found.lost else ""
            words = [f"{found.name}: {state}, {quantity(found.items, 'item')}{lost}"]
            words += [f"  {finding}" for finding in found.findings]
            words += [f"  and {found.more:,} more"] if found.more else []
            tell(as_json, asdict(found) | {"is_sound": found.is_sound}, *words)
    if not is_well:
        raise typer.Exit(FAILED)


@cli.command("vacuum")
def vacuum(data_dir: Folder = Path("data"), *, as_json: Json = False) -> None:
    """Rewrite all files of a folder that no server uses, without their free space."""
    from gcws_search.index import vacuum_directory  # noqa: PLC0415

    is_well = True
    with _folder(data_dir):
        for done in vacuum_directory(data_dir):
            is_well &= done.error is None
            before, after = (in_words("bytes", size) for size in (done.before, done.after))
            words = done.error or f"{before}, now {after}"
            tell(as_json, asdict(done), f"{done.name}: {words}")
    if not is_well:
        raise typer.Exit(FAILED)


@contextmanager
def _folder(data_dir: Path) -> Iterator[None]:
    with failures():
        if not data_dir.is_dir():
            what = "a file" if data_dir.exists() else "nothing of that name"
            fail(f"{data_dir}: expected a folder of collections' files, got {what}")
        if not [*data_dir.glob("*.sqlite")]:
            report(f"{data_dir}: no collections")
        yield
