"""``backends`` of a collection, and ``recall``: what was asked against what was found."""

from __future__ import annotations

from typing import Annotated

import typer

from gcws_search.commands.options import (
    LOCAL,
    Json,
    Key,
    Name,
    Url,
    family,
    object_from,
    server,
    tell,
    tell_rows,
    usage,
)

cli = family()


@cli.command("backends", epilog="Example: gcws-search backends mnist --attach nrff")
def backends(
    name: Name,
    *,
    attach: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Make a comparison backend from the stored vectors."),
    ] = None,
    as_: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="What queries call it.")
    ] = None,
    params: Annotated[
        str | None, typer.Option(metavar="JSON", help="Its parameters, as the API has them.")
    ] = None,
    detach: Annotated[
        str | None, typer.Option(metavar="BACKEND", help="Drop a comparison backend.")
    ] = None,
    as_json: Json = False,
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """List the search methods of a collection, attach one to compare with, or drop one."""
    given = object_from(params, "--params")
    if attach is not None and detach is not None:
        usage("expected one of --attach and --detach")
    if attach is None and (as_ is not None or params is not None):
        usage("expected --attach with --as and --params")
    with server(url, key) as found:
        collection = found.collection(name)
        if attach is not None:
            collection.attach(attach, name=as_, params=given)
        if detach is not None:
            collection.detach(detach)
        rows = collection.describe()["backends"]
    tell_rows(as_json, rows, ["name", "kind", "primary", "status", "build_seconds"])


@cli.command("recall", epilog="Example: gcws-search recall mnist")
def recall(name: Name, *, as_json: Json = False, url: Url = LOCAL, key: Key = None) -> None:
    """Show recall asked against recall found, of queries that were answered exactly as well."""
    with server(url, key) as found:
        audits = found.collection(name).audits()
    if not tell(as_json, audits):
        columns = ["week", "recall", "limit", "queries", "found", "low", "high"]
        tell_rows(False, audits["audited"], columns)
        typer.echo(f"{audits['waiting']:,} queries wait")
