"""The command ``gcws-search shard``: a replica of one shard as a process."""

from __future__ import annotations

import inspect
import logging
import os
import signal
import socket
import sys
from typing import Annotated, Any, Final

import typer
import uvicorn

from gcws_search.index import GcwsError
from gcws_search.service.cli import flags, settings_from, unread
from gcws_search.service.execution.startup import policies_of
from gcws_search.service.guards.keys import cluster_key
from gcws_search.service.http.errors import ServiceError
from gcws_search.service.server import server_options, tune_process
from gcws_search.service.settings import Settings
from gcws_search.service.telemetry import logs

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

_ANY: Final = {"0.0.0.0", "::", ""}  # what a replica may listen on, and none can ask

_log = logging.getLogger(__name__)


def shard(shard: int, replica: int, **given: Any) -> None:  # noqa: ANN401  # see `flags`
    """Run a replica of one shard of a cluster until told to stop."""
    settings = settings_from(given)
    logs.configure(settings.log_level, settings.log_format)
    for warning in unread(os.environ):
        _log.warning("%s", warning)
    try:
        key = cluster_key(settings)
        if key is None:
            raise ValueError("a shard needs the key of its cluster; set GCWS_CLUSTER_KEY")
        if settings.database_url is None:
            raise ValueError("a shard needs a database; set GCWS_DATABASE_URL")
        run(settings, shard, replica, key)
    except ModuleNotFoundError as error:
        _refuse(f"{error}; pip install 'gcws-search[cluster]' adds it")
    except (GcwsError, ServiceError, OSError, ValueError) as error:
        _refuse(str(error))


def run(settings: Settings, shard: int, replica: int, key: str) -> None:
    """Serve a replica until told to stop.

    Raises
    ------
    StoreUnavailable, DirectoryLocked, OSError
    ValueError
        The database, or the shard, is not one of this cluster.
    """
    # What a cluster needs is installed for it alone.
    from gcws_search.service.cluster.database.database import Database  # noqa: PLC0415
    from gcws_search.service.cluster.errors import ClusterMismatch  # noqa: PLC0415
    from gcws_search.service.cluster.shard.app import create_shard_app  # noqa: PLC0415
    from gcws_search.service.cluster.shard.host import (  # noqa: PLC0415
        Announced,
        HostOptions,
        ShardHost,
    )

    url = "" if settings.database_url is None else settings.database_url.get_secret_value()
    name = f"shard {shard} replica {replica}"
    listening = _listening(settings)
    try:
        database = Database.open(url, buckets=settings.buckets, application=name)
        announced = Announced(address_of(settings, listening), replica, settings.cell)
        host = ShardHost(
            database,
            settings.data_dir,
            shard,
            settings.shards,
            threads=settings.threads,
            policies=policies_of(settings),
            options=HostOptions(announced=announced, compiles=True),
        )
    except ClusterMismatch as error:
        raise ValueError(str(error)) from None
    tune_process()
    app = create_shard_app(host, key, threads=settings.threads)
    # The server hands the signal on after it has stopped; having stopped well is no failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _log.info("%s of %d, at %s", name, settings.shards, announced.address)
    try:
        uvicorn.Server(uvicorn.Config(app, **server_options(settings))).run(sockets=[listening])
    finally:
        database.close()


def _listening(settings: Settings) -> socket.socket:
    """Return a socket that listens; OSError where it cannot."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.create_server((settings.host, settings.port), family=family)
    listening.set_inheritable(True)
    return listening


def address_of(settings: Settings, listening: socket.socket) -> str:
    """Return where routers find the replica: on its published host, or the one it listens on."""
    host = settings.published_host or settings.host
    if host in _ANY:
        host = socket.gethostname()
    if ":" in host:
        host = f"[{host}]"
    return f"{host}:{listening.getsockname()[1]}"


def _refuse(why: str) -> None:
    typer.echo(f"gcws-search: {why}", err=True)
    raise typer.Exit(1) from None


def _options() -> list[inspect.Parameter]:
    """Return the options that are no settings."""
    told = {
        "shard": Annotated[int, typer.Option(min=0, help="Which shard, from 0 on.")],
        "replica": Annotated[int, typer.Option(min=0, help="Which of its replicas, from 0 on.")],
    }
    defaults = {"shard": inspect.Parameter.empty, "replica": 0}
    return [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=annotation
        )
        for name, annotation in told.items()
    ]


shard.__signature__ = flags(*_options())  # type: ignore[attr-defined]
cli.command("shard")(shard)
