"""``bulk``: files into a new collection of a cluster, without a router."""

from __future__ import annotations

import dataclasses
import os
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from gcws_search.client.collection import config_of
from gcws_search.commands.dedupe import Sources
from gcws_search.commands.options import (
    MAX_REJECTED_TOLD,
    REJECTED,
    Expires,
    Json,
    Name,
    Ngrams,
    Normalize,
    OnError,
    Payload,
    Power,
    Scale,
    Storage,
    Tokens,
    Ttl,
    fail,
    failures,
    family,
    left_out_words,
    ngrams_of,
    options_of,
    reading,
    report,
    show_guess,
    space_words,
    steps,
    tell,
    transform_of,
    whole_number,
    words_of,
)
from gcws_search.formats.files import input_files
from gcws_search.formats.sources import Choices, source_of
from gcws_search.index import quantity
from gcws_search.service.cluster.command import command, require_token
from gcws_search.service.settings import settings_from
from gcws_search.tasks import process_pool, ray_pool

if TYPE_CHECKING:
    from gcws_search.service.cluster.bulk import BulkLoaded

cli = family()
bulk = typer.Typer(help="Load files into a new collection of a cluster.", no_args_is_help=True)
cli.add_typer(bulk, name="bulk")

_SETTINGS: Final = (
    "database_url", "database_url_file", "cluster_key", "cluster_key_file", "buckets", "cell",
    "shards", "base", "data_dir", "threads", "max_collections",
)  # fmt: skip


@command(bulk, _SETTINGS)
@reading
def load(
    sources: Sources,
    *,
    into: Annotated[str, typer.Option("--into", metavar="NAME", help="Name of the collection.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the collection of that name.")
    ] = False,
    payload: Payload = None,
    choices: Choices,
    encoding: str | None,
    dim: str | None,
    tokens: Tokens = "words",
    ngrams: Ngrams = "1",
    normalize: Normalize = None,
    power: Power = None,
    scale: Scale = None,
    storage: Storage = None,
    ttl: Ttl = None,
    expires: Expires = None,
    on_error: OnError = "stop",
    jobs: Annotated[int, typer.Option(parser=whole_number(1), help="Number of processes.")] = 1,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray", metavar="ADDRESS", help="Run on a Ray cluster: HOST:PORT of its head, or auto."
        ),
    ] = None,
    as_json: Json = False,
    **given: Any,
) -> None:
    """Load files into a new collection of a cluster, which appears once it is complete.

    No router is needed: rows go from the files to the database. The last row of an id is stored.
    Run the same command again to resume an interrupted load.
    """
    from gcws_search.service.cluster.bulk import BulkLoad, bulk_load  # noqa: PLC0415  # of an extra

    choices = dataclasses.replace(choices, payload=words_of(payload), lenient=on_error == "skip")
    settings = settings_from(given)
    with failures(), ExitStack() as stack:
        inputs = [
            stack.enter_context(closing(each))
            for path in sources
            for each in input_files(path, encoding, report)
        ]
        first = source_of(inputs[0], choices)
        show_guess(first, scale)
        transform = transform_of(normalize, power, scale)
        options = options_of(first, dim, transform, storage, ttl)
        if first.is_text:
            told = {"tokens": tokens, "ngrams": ngrams_of(ngrams)}
            options["text"] = (first.export or {}).get("text") or told
        config = config_of(**options)
        assert config is not None
        tokens_of = None if config.text is None else config.text.tokens
        report(f"{into}: {space_words(config.dim, tokens_of)}")
        metadata = None
        if "fingerprint" in first.settled:  # queries by SMILES need the same one
            metadata = b'{"fingerprint":"%b"}' % first.settled["fingerprint"].encode()
        asked = BulkLoad(
            name=into,
            given=inputs,
            first=first,
            config=config,
            metadata=metadata,
            encoding=encoding,
            expires=expires,
            replace=replace,
        )
        pool = process_pool(jobs)
        if ray is not None:
            require_token(os.environ)
            pool = ray_pool(ray)
        progress, tasks = stack.enter_context(steps()), stack.enter_context(pool)
        found = bulk_load(asked, settings, tasks, has_settings=ray is None, tell=progress)
    _tell(into, found, as_json)
    if found.rejected:
        raise typer.Exit(REJECTED)


@command(bulk, _SETTINGS)
def drop(name: Name, as_json: Json = False, **given: Any) -> None:
    """Drop what an interrupted bulk load into a collection has stored."""
    from gcws_search.service.cluster.bulk import bulk_drop  # noqa: PLC0415

    if not bulk_drop(name, settings_from(given)):
        fail(f"{name}: no bulk load into it was interrupted")
    tell(as_json, {"dropped": name}, f"{name}: what was loaded is dropped")


def _tell(into: str, found: BulkLoaded, as_json: bool) -> None:
    for place, _, words in found.rejected_rows[:MAX_REJECTED_TOLD]:
        report(f"{place}: {words}")
    for path in found.rejected_files:
        report(f"{path}: rejected rows")
    names = "place", "code", "detail"
    told = dataclasses.asdict(found) | {
        "collection": into,
        "rejected_rows": [dict(zip(names, each, strict=True)) for each in found.rejected_rows],
    }
    words = f"{into}: {quantity(found.items, 'item')}"
    words += ", loaded before" if found.loaded_before else ""
    words += left_out_words(found.rejected, found.dropped, found.repeated)
    tell(as_json, told, words)
