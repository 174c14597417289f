"""``create`` and ``fit`` a collection; ``get``, ``count``, ``delete`` and ``payload`` of items."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer

from gcws_search.client.connection import Server
from gcws_search.client.results import Count
from gcws_search.commands.options import (
    Dim,
    IfVersion,
    Json,
    Name,
    Normalize,
    Power,
    Scale,
    Storage,
    Ttl,
    Yes,
    ask,
    asking,
    dim_of,
    fail,
    family,
    ngrams_of,
    object_from,
    report,
    space_words,
    tell,
    tell_rows,
    transform_of,
    usage,
)
from gcws_search.commands.query import Where
from gcws_search.formats.payloads import filter_of
from gcws_search.index import parse_filter, quantity

cli = family()


@asking(
    cli,
    "create",
    epilog="Examples: gcws-search create mnist --dim 784 --normalize l2; "
    "gcws-search create notes --text words --ngrams 1-3",
)
def create(
    server: Server,
    name: Name,
    *,
    dim: Dim = None,
    text: Annotated[
        Literal["words", "characters"] | None,
        typer.Option(help="Tokens of a collection of texts, instead of --dim."),
    ] = None,
    ngrams: Annotated[
        str | None,
        typer.Option(
            metavar="LOW-HIGH", help="Number of consecutive tokens per coordinate: 3, or 1-3."
        ),
    ] = None,
    weights: Annotated[
        Literal["set", "counts", "idf"] | None,
        typer.Option(help="Weight of an n-gram: 1, its count in the text, or tf-idf."),
    ] = None,
    stop_words: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Words to leave out: 'a,the'.")
    ] = None,
    keep_case: Annotated[bool, typer.Option("--keep-case", help="Do not lowercase texts.")] = False,
    normalize: Normalize = None,
    power: Power = None,
    scale: Scale = None,
    storage: Storage = None,
    ttl: Ttl = None,
    as_json: Json = False,
) -> None:
    """Create a collection, unless the same one exists already."""
    if (dim is None) == (text is None):
        usage("expected one of --dim and --text")
    options: dict[str, Any] = {
        "tokens": text,
        "ngrams": None if ngrams is None else ngrams_of(ngrams),
        "weights": weights,
        "stop_words": None if stop_words is None else stop_words.split(","),
        "lowercase": False if keep_case else None,
    }
    given = {word: value for word, value in options.items() if value is not None}
    if text is None and given:
        usage(f"--{next(iter(given)).replace('_', '-')}: expected --text, of which it is a part")
    size = dim_of(dim)
    collection = server.collection(
        name,
        size,
        transform=transform_of(normalize, power, scale),
        storage=storage or "auto",
        text=given or None,
        ttl=ttl,
    )
    described = collection.describe()
    words = space_words(size, text)
    tell(as_json, described, f"{name}: {words}, {quantity(described['items'], 'item')}")


@asking(cli, "fit", epilog="Example: gcws-search fit wines --scale standard")
def fit(server: Server, name: Name, *, scale: Scale = None, as_json: Json = False) -> None:
    """Learn weights of coordinates from the items; without --scale, the kind learned last."""
    learned = server.collection(name).fit(scale)
    of = quantity(learned["coordinates"], "coordinate")
    words = f"{name}: {learned['kind']} weights of {of}"
    tell(as_json, learned, f"{words}, learned from {quantity(learned['items'], 'item')}")


@asking(cli, "get", epilog="Example: gcws-search get mnist 7 8 --with-vector")
def get(
    server: Server,
    name: Name,
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="Ids of items.")],
    *,
    with_vector: Annotated[bool, typer.Option("--with-vector", help="Show vectors, too.")] = False,
    as_json: Json = False,
) -> None:
    """Print items by their ids."""
    items = [
        asdict(each) for each in server.collection(name).get_many(ids, with_vector=with_vector)
    ]
    missing = [each for each in ids if each not in {item["id"] for item in items}]
    if missing:
        fail(f"no item has the id {missing[0]!r}")
    for item in items:
        if not with_vector:
            del item["vector"]
        for word in ("text", "expires"):
            if item[word] is None:
                del item[word]
    columns = ["id", "version", "expires", "text", "vector", "payload"]
    tell_rows(as_json, items, [word for word in columns if any(word in each for each in items)])


@asking(cli, "count", epilog="Example: gcws-search count mnist --where '{\"label\": 3}'")
def count(server: Server, name: Name, *, where: Where = None, as_json: Json = False) -> None:
    """Count the items of a collection, or those that match a filter."""
    condition = object_from(where, "--where")
    number = server.collection(name).count(where=condition)
    _tell_hints(number)
    tell(as_json, {"count": number}, f"{number:,}")


@asking(cli, "delete", epilog="Example: gcws-search delete mnist --where '{\"label\": 3}'")
def delete(
    server: Server,
    name: Name,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of items.")] = None,
    *,
    where: Where = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count the items that would be deleted.")
    ] = False,
    if_version: IfVersion = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Delete items by their ids, or all that match a filter; asks first."""
    condition = object_from(where, "--where")
    if bool(ids) == (condition is not None):
        usage("expected ids of items, or --where")
    collection = server.collection(name)
    if condition is not None:
        # Validated like on the server, before anything is counted.
        parse_filter(filter_of(condition)).require_conditions()
    asked: dict[str, Any] = {"where": condition} if condition is not None else {"ids": ids}
    if dry_run or not yes:
        number = (
            collection.count(where=condition)
            if condition is not None
            else Count(len(collection.get_many(dict.fromkeys(ids or ()), with_vector=False)))
        )
        if dry_run:
            _tell_hints(number, ids)
            tell(as_json, {"items": number, "deleted": 0}, f"{number:,} would be deleted")
            return
        if number:
            ask(f"Delete {quantity(number, 'item')} from {name!r}?")
    deleted = collection.delete(**asked, if_version=if_version)
    _tell_hints(deleted, ids)
    tell(as_json, {"deleted": deleted}, f"{deleted:,} deleted")


def _tell_hints(count: Count, ids: list[str] | None = None) -> None:
    """Print the words of a filter that no item has, or the number of unknown ids."""
    for each in count.hints:
        report(each)
    if ids and (absent := len({*ids}) - count):
        report(f"no item has {absent:,} of these ids")


@asking(
    cli, "payload", epilog="Example: gcws-search payload mnist --id 7 --set '{\"checked\": true}'"
)
def payload(
    server: Server,
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
        bool, typer.Option("--replace", help="Replace payloads instead of merging keys into them.")
    ] = False,
    if_version: IfVersion = None,
    as_json: Json = False,
) -> None:
    """Change payloads of items, by ids or by a filter, without their vectors."""
    new = object_from(set_, "--set")
    condition = object_from(where, "--where")
    if bool(ids) == (condition is not None):
        usage("expected one of --id and --where")
    collection = server.collection(name)
    updated = collection.set_payload(
        ids or None, payload=new, merge=not replace, where=condition, if_version=if_version
    )
    _tell_hints(updated, ids)
    tell(as_json, {"updated": updated}, f"{quantity(updated, 'item')} updated")
