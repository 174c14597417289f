"""``collections``, ``names`` and ``export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gcws_search.commands.options import (
    LOCAL,
    Json,
    Key,
    Name,
    Url,
    failures,
    family,
    print_json,
    print_table,
    server,
)

cli = family()


@cli.command("collections", epilog="Example: gcws-search collections mnist")
def collections(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show this one.")] = None,
    *,
    drop: Annotated[
        str | None, typer.Option("--drop", metavar="NAME", help="Drop a collection and its file.")
    ] = None,
    as_json: Json = False,
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """List all collections, show all there is to know of one, or drop one."""
    with server(url, key) as found:
        if drop is not None:
            found.drop(drop)
            if as_json:
                print_json({"dropped": drop})
            else:
                typer.echo(f"{drop}: dropped")
        elif name is not None:
            described = found.collection(name).describe()
            if as_json:
                print_json(described)
            else:
                _show(described)
        else:
            rows = found.collections()
            if as_json:
                print_json({"collections": rows})
            else:
                print_table(rows, ["name", "items", "dim", "backends", "bytes"])


def _show(described: dict[str, Any]) -> None:
    plain = {key: value for key, value in described.items() if not isinstance(value, dict | list)}
    nested = {key: value for key, value in described.items() if key in ("transform", "backend")}
    for word, value in {**plain, **nested}.items():
        typer.echo(f"{word:16} {value}")


@cli.command("names", epilog="Example: gcws-search names functions --prefix path")
def names(
    name: Name,
    *,
    prefix: Annotated[str, typer.Option(help="Only names that begin so.")] = "",
    limit: Annotated[int, typer.Option(help="How many.")] = 20,
    set_: Annotated[
        Path | None,
        typer.Option("--set", help="Set them: a file with a name a line, in order.", exists=True),
    ] = None,
    as_json: Json = False,
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Show the names of coordinates, or set those of a collection of fixed dim."""
    with server(url, key) as found:
        collection = found.collection(name)
        if set_ is not None:
            count = collection.set_names(set_.read_text().splitlines())
            if as_json:
                print_json({"count": count})
            else:
                typer.echo(f"{name}: {count} names")
            return
        rows = [
            {"index": index, "name": each}
            for index, each in collection.names(prefix, limit=limit).items()
        ]
    if as_json:
        print_json({"names": rows})
    else:
        print_table(rows, ["index", "name"])
        if not rows and not prefix:
            typer.echo(f"{name}: no coordinate has a name; --set FILE names them", err=True)


@cli.command("export", epilog="Example: gcws-search export mnist -o mnist.parquet")
def export(
    name: Name,
    *,
    output: Annotated[
        str, typer.Option("-o", "--output", help="File to write: .ndjson, .jsonl or .parquet.")
    ],
    as_json: Json = False,
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Write all items of a collection to a file, which `load` reads."""
    from gcws_search.client.export import require_format  # noqa: PLC0415
    from gcws_search.commands.bars import bar  # noqa: PLC0415

    with failures():
        require_format(output)
    with server(url, key) as found:
        collection = found.collection(name)
        with bar(f"{name}", total=len(collection)) as progress:
            count = collection.export(output, progress=progress.rows)
    if as_json:
        print_json({"exported": count, "file": output})
    else:
        typer.echo(f"{output}: {count} items")
