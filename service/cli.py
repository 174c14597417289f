"""The command ``serve``.

It imports little, so that the server listens early; `StartingApplication` imports the rest.
`gcws_search.commands.app` has the list of all commands.
"""

import logging
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import typer
import uvicorn

from gcws_search.imports import quick_imports
from gcws_search.index import GcwsError, error_words
from gcws_search.service.errors import ServiceError
from gcws_search.service.keys import cluster_key, database_url, require_guard
from gcws_search.service.server import (
    HttpServer,
    StartingApplication,
    allow_descriptors,
    configure_logs,
    require_address,
    server_options,
    tune_process,
)
from gcws_search.service.settings import Settings, flags, settings_from, unread

if TYPE_CHECKING:
    from fastapi import FastAPI

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")

_REACHED: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses of all interfaces, and how a browser of this machine reaches them."""
_NOT_STARTED: Final = 3
"""Exit code of a server that could not listen."""

_log = logging.getLogger(__name__)


def serve(**given: Any) -> None:  # noqa: ANN401  # the signature is made from the settings
    """Serve the REST API until stopped."""
    settings = settings_from(given)
    configure_logs(settings.log_level, settings.log_format)
    for warning in unread(os.environ):
        _log.warning("%s", warning)
    try:
        require_guard(settings)
        require_address(settings)
        if database_url(settings) is None:
            if cluster_key(settings) is not None:
                _log.warning("GCWS_DATABASE_URL is not set: this process joins no cluster")
        else:
            # Cluster dependencies are installed and imported only for a cluster.
            from gcws_search.service.cluster.catalog import require_cluster  # noqa: PLC0415

            require_cluster(settings)
        host = _REACHED.get(settings.host, settings.host)
        host = f"[{host}]" if ":" in host else host
        if settings.port:
            page = f"http://{host}:{settings.port}/"
            _log.info("open %s in a browser; its API page is %sdocs", page, page)
        _log.info("collections are in %s; the program is being loaded", settings.data_dir.resolve())
        if settings.workers > 1:
            # BLAS starts no threads at import: a process with one thread forks safely.
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
            from gcws_search.service.fronts.processes import Processes  # noqa: PLC0415

            raise typer.Exit(Processes(settings).run())
        raise typer.Exit(_run(settings))
    except ModuleNotFoundError as error:
        joins_cluster = database_url(settings) is not None
        advice = "; pip install 'gcws-search[cluster]' adds it" if joins_cluster else ""
        typer.echo(f"gcws-search: {error}{advice}", err=True)
        raise typer.Exit(1) from None
    except (GcwsError, ServiceError, OSError, ValueError) as error:
        typer.echo(f"gcws-search: {error_words(error)}", err=True)
        raise typer.Exit(1) from None


def _run(settings: Settings) -> int:
    """Serve until stopped; return the exit code, or raise the error of opening the application."""
    allow_descriptors()  # waiting connections must leave some for imports
    # The server raises the signal again after a clean stop, which is no failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    starting = StartingApplication(partial(_open_application, settings))
    server = HttpServer(
        uvicorn.Config(starting, host=settings.host, port=settings.port, **server_options(settings))
    )
    starting.stop_on_failure(server)
    with suppress(KeyboardInterrupt):
        server.run()
    if starting.error is not None:
        raise starting.error
    return 0 if server.started else _NOT_STARTED


def _open_application(settings: Settings) -> "FastAPI":
    with quick_imports():
        from gcws_search.service import app  # noqa: PLC0415
    opened = app.create_app(settings, catalog=app.open_catalog(settings))
    tune_process()
    return opened


@cli.callback()
def _commands() -> None:
    """Start a server."""  # without a callback, a lone command is the whole program


serve.__signature__ = flags()  # type: ignore[attr-defined]
cli.command("serve")(serve)
