"""``health`` and ``version``."""

from __future__ import annotations

import typer

from gcws_search.commands.options import LOCAL, Json, Key, Url, family, print_json, server
from gcws_search.version import program_version

cli = family()


@cli.command("health")
def health(*, as_json: Json = False, url: Url = LOCAL, key: Key = None) -> None:
    """Ask a server how it is; exit with 1 where nobody answers."""
    with server(url, key) as found:
        answer = found.health()
    if as_json:
        print_json({"url": url, **answer})
    else:
        typer.echo(f"{url}: " + ", ".join(f"{word} {value}" for word, value in answer.items()))


@cli.command("version")
def version(*, as_json: Json = False) -> None:
    """Print the version."""
    found = program_version()
    if as_json:
        print_json({"version": found})
    else:
        typer.echo(found)
