"""The command ``gcws-search shard``: a replica of one shard as a process."""

from __future__ import annotations

import inspect
import logging
import os
import signal
import sys
from typing import Annotated, Any

import typer

from gcws_search.index import GcwsError
from gcws_search.service.errors import ServiceError
from gcws_search.service.flags import flags, require_address, settings_from, unread
from gcws_search.service.guards.keys import cluster_key
from gcws_search.service.server import tune_process
from gcws_search.service.settings import Settings
from gcws_search.service.telemetry import logs

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

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
        if settings.port:  # 0 takes any
            require_address(settings)
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
    from gcws_search.service.cluster.shard.server import ShardServer  # noqa: PLC0415

    server = ShardServer(settings, shard, replica, key)
    tune_process()
    # The server hands the signal on after it has stopped; having stopped well is no failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server.run()


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
