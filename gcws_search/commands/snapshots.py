"""``snapshot …``: snapshots of a server that runs, here or elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gcws_search.commands.options import (
    LOCAL,
    Json,
    Key,
    Url,
    fail,
    family,
    print_json,
    server,
)

cli = family()

snapshots = typer.Typer(
    name="snapshot",
    help="Make, list, move and restore snapshots of a running server.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

cli.add_typer(snapshots)

Collection = Annotated[str, typer.Argument(help="Name of the collection.")]
Snapshot = Annotated[str, typer.Argument(help="Name of the snapshot.")]


@snapshots.command("create")
def create(
    collection: Collection,
    *,
    keep: Annotated[
        int | None,
        typer.Option("--keep", min=1, help="Then remove all but this many, the latest."),
    ] = None,
    as_json: Json = False,
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Make a snapshot, and print its name."""
    with server(url, key) as found:
        stored = found.snapshots(collection)
        snapshot = stored.create()
        _print(snapshot, as_json)
        if keep is None:
            return
        others = [each for each in stored.list() if each["name"] != snapshot["name"]]
        others.sort(key=lambda each: (each["created"], each["name"]), reverse=True)
        for each in others[keep - 1 :]:
            stored.delete(each["name"])


@snapshots.command("list")
def show(
    collection: Collection, *, as_json: Json = False, url: Url = LOCAL, key: Key = None
) -> None:
    """List the snapshots of a collection: name, bytes, SHA-256, time."""
    with server(url, key) as found:
        listed = found.snapshots(collection).list()
    if as_json:
        print_json({"snapshots": listed})
        return
    for snapshot in listed:
        _print(snapshot, as_json)
    if not listed:
        typer.echo(
            f"no snapshots of {collection}; `gcws-search snapshot create {collection}` makes one",
            err=True,
        )


@snapshots.command("download")
def download(
    collection: Collection,
    snapshot: Snapshot,
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write.")],
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Download a snapshot; the file appears when its SHA-256 is right."""
    with server(url, key) as found:
        found.snapshots(collection).download(snapshot, output)


@snapshots.command("upload")
def upload(
    collection: Collection,
    snapshot: Snapshot,
    file: Annotated[Path, typer.Argument(help="File to send.", exists=True, dir_okay=False)],
    *,
    as_json: Json = False,
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Upload a snapshot under a name; the server compares its SHA-256."""
    with server(url, key) as found:
        _print(found.snapshots(collection).upload(snapshot, file), as_json)


@snapshots.command("restore")
def restore(
    collection: Collection,
    snapshot: Snapshot,
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a collection that exists.")
    ] = False,
    as_json: Json = False,
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Make the collection from a snapshot."""
    from gcws_search.index import CollectionExists  # noqa: PLC0415

    with server(url, key) as found:
        try:
            items = found.snapshots(collection).restore(snapshot, replace=replace)["items"]
        except CollectionExists as error:
            fail(f"{error}; --replace replaces it")
    if as_json:
        print_json({"collection": collection, "items": items})
    else:
        typer.echo(f"{collection}: {items} items")


@snapshots.command("delete")
def delete(collection: Collection, snapshot: Snapshot, url: Url = LOCAL, key: Key = None) -> None:
    """Remove a snapshot."""
    with server(url, key) as found:
        found.snapshots(collection).delete(snapshot)


def _print(snapshot: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(snapshot)
    else:
        typer.echo("  ".join(str(snapshot[key]) for key in ("name", "bytes", "sha256", "created")))
