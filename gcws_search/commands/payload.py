"""``payload``: other payloads for stored items, without their vectors."""

from __future__ import annotations

from typing import Annotated

import typer

from gcws_search.commands.options import (
    LOCAL,
    IfVersion,
    Json,
    Key,
    Name,
    Url,
    family,
    object_from,
    server,
    tell,
)
from gcws_search.commands.query import Where

cli = family()


@cli.command(
    "payload", epilog="Example: gcws-search payload mnist --id 7 --set '{\"checked\": true}'"
)
def payload(
    name: Name,
    *,
    set_: Annotated[
        str, typer.Option("--set", help="A JSON object; null, with --replace, removes payloads.")
    ],
    ids: Annotated[
        list[str] | None, typer.Option("--id", help="Change this item; may be repeated.")
    ] = None,
    where: Where = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace payloads, instead of merging keys into them.")
    ] = False,
    if_version: IfVersion = None,
    as_json: Json = False,
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Change payloads of items, by ids or by a filter; vectors stay as they are."""
    new = object_from(set_, "--set")
    condition = object_from(where, "--where")
    with server(url, key) as connected:
        collection = connected.collection(name)
        updated = collection.set_payload(
            ids or None, payload=new, merge=not replace, where=condition, if_version=if_version
        )
    tell(as_json, {"updated": updated}, f"{updated} items updated")
