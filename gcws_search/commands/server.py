"""``health`` and ``version``."""

from __future__ import annotations

import json
import os
from typing import Annotated, Any, Final

import typer

from gcws_search.commands.options import FAILED, Json, fail, family, print_json
from gcws_search.version import program_version

cli = family()

_SECONDS: Final = 2.0
"""Within the time that a container's health check has."""


@cli.command("health")
def health(
    *,
    as_json: Json = False,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            envvar="GCWS_URL",
            help="Where the server is; GCWS_PORT of this machine unless given.",
        ),
    ] = None,
) -> None:
    """Ask a server whether it is ready; exit with 1 where it is not, or nobody answers."""
    address = url or f"http://127.0.0.1:{os.environ.get('GCWS_PORT') or 8000}"
    is_ready, answer = _readiness(address)
    if as_json:
        print_json({"url": address, **answer})
    else:
        told = ", ".join(f"{word} {value}" for word, value in answer.items())
        typer.echo(f"{address}: {told}")
    if not is_ready:
        raise typer.Exit(FAILED)


def _readiness(url: str) -> tuple[bool, dict[str, Any]]:
    """Return whether a server is ready, and how far it is; no key is needed.

    A container asks every few seconds, so nothing is imported that costs more than the question.
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
        cause = str(error)
    except (HTTPException, ValueError, TypeError):
        cause = "no answer of one"
    finally:
        connection.close()
    fail(f"expected a server at {url}, got {cause}; `gcws-search serve` starts one")


@cli.command("version")
def version(*, as_json: Json = False) -> None:
    """Print the version."""
    found = program_version()
    if as_json:
        print_json({"version": found})
    else:
        typer.echo(found)
