"""``gcws-search shard``, a replica; ``gcws-search cluster``, all replicas, on nodes of Ray."""

from __future__ import annotations

import inspect
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from gcws_search.index import GcwsError, error_words
from gcws_search.service.errors import ServiceError
from gcws_search.service.keys import cluster_access
from gcws_search.service.server import configure_logs, require_address, tune_process
from gcws_search.service.settings import Settings, flags, settings_from, unread
from gcws_search.version import program_version

if TYPE_CHECKING:  # what a cluster needs is installed for it alone
    from gcws_search.service.cluster.placing import RayPlacement
    from gcws_search.service.cluster.rollout import Rollout

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
cluster = typer.Typer(
    name="cluster",
    help="Place, move and end the replicas of a cluster.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
cli.add_typer(cluster)

# Default variables of a node's processes.
RAY_DEFAULTS: Final = {
    "RAY_AUTH_MODE": "token",
    # Raylets and replicas continue without the head for up to a week.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "604800",
    # A lost machine is detected within seconds.
    "RAY_health_check_initial_delay_ms": "5000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "4",
    # A shard refuses writes before memory runs out. Killing it would lose a replica.
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_gcs_storage": "rocksdb",
}
_OPTIONS: Final = ("--block", "--include-log-monitor=false")
_HEAD_OPTIONS: Final = ("--head", "--num-cpus=0", "--include-dashboard=false", "--no-monitor")
_PORT: Final = 6379
_TLS: Final = ("tls_ca_file", "tls_certificate_file", "tls_key_file")
_KEYS: Final = ("api_key", "api_key_file", "read_only_api_key", "read_only_api_key_file")
_PATHS: Final = (
    "data_dir", "cluster_key_file", "database_url_file", "api_key_file", "read_only_api_key_file",
    *_TLS,
)  # fmt: skip
"""Settings that hold in another working directory."""
_SECONDS: Final = 600.0

# Settings of each command
_DATABASE: Final = ("database_url", "database_url_file", "cluster_key", "cluster_key_file")
_CELL: Final = (*_DATABASE, "cell", "shards", "buckets")
_PLACED: Final = (*_CELL, "replicas", "replica_bytes")
_REPLICA: Final = (
    "data_dir", *_DATABASE, *_TLS, *_KEYS, "cell", "buckets", "base",
    "offload", "threads", "audit_share", "max_memory_share",
    "max_disk_share", "max_connections", "max_header_bytes", "header_seconds", "body_seconds",
    "send_seconds", "shutdown_seconds", "log_level", "log_format",
)  # fmt: skip
_SHARD: Final = (*_REPLICA, "shards", "host", "port", "published_host")

_log = logging.getLogger(__name__)


@contextmanager
def _refuse() -> Iterator[None]:
    """Print an error and exit with 1."""
    try:
        yield
    except ImportError as error:
        told = f"{error}; pip install 'gcws-search[cluster]' adds it"
        typer.echo(f"gcws-search: {told}", err=True)
        raise typer.Exit(1) from None
    except (GcwsError, ServiceError, OSError, ValueError) as error:
        typer.echo(f"gcws-search: {error_words(error)}", err=True)
        raise typer.Exit(1) from None


def command(
    group: typer.Typer,
    names: Collection[str],
    **settings: Any,  # noqa: ANN401
) -> Callable[[Callable[..., None]], Any]:
    """Add a function as a command with flags for some settings after its own options."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        own = [
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for each in inspect.signature(function, eval_str=True).parameters.values()
            if each.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        call = _refuse()(function)
        call.__signature__ = flags(*own, names=names)  # type: ignore[attr-defined]
        group.command(context_settings=settings)(call)
        return function

    return add


def _option(flag: str, text: str, **more: Any) -> Any:  # noqa: ANN401
    return typer.Option(flag, help=text, **more)


_Seconds: TypeAlias = Annotated[
    float, _option("--seconds", "How long replicas may take to be filled.", min=1)
]


@command(cli, _SHARD)
def shard(
    shard: Annotated[int, _option("--shard", "Which shard, from 0 on.", min=0)],
    replica: Annotated[int, _option("--replica", "Which of its replicas, from 0 on.", min=0)] = 0,
    **given: Any,  # noqa: ANN401  # see `flags`
) -> None:
    """Run a replica of one shard of a cluster until stopped."""
    settings = settings_from(given)
    configure_logs(settings.log_level, settings.log_format)
    for warning in unread(os.environ):
        _log.warning("%s", warning)
    if settings.port:  # 0 takes any
        require_address(settings)
    from gcws_search.service.cluster.server import ShardServer  # noqa: PLC0415

    server = ShardServer(settings, shard, replica)
    tune_process()
    # The server raises the signal again after a clean stop, which is no failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with suppress(KeyboardInterrupt):  # Ctrl-C is a normal stop, as in `serve`
        server.run()


@command(cluster, _PLACED)
def up(seconds: _Seconds = _SECONDS, **given: Any) -> None:  # noqa: ANN401
    """Start missing replicas, wait until they are filled, and let routers use them.

    You may call it again at any time, also with another number of shards or replicas.
    """
    with _rollout(given, seconds) as rollout:
        rollout.up()


@command(cluster, _PLACED)
def move(
    replica: Annotated[
        str, typer.Argument(metavar="SHARD/REPLICA", help="The replica, as `status` shows it.")
    ],
    seconds: _Seconds = _SECONDS,
    **given: Any,  # noqa: ANN401
) -> None:
    """Fill a replica on another node, then end this one: SHARD/REPLICA."""
    numbers = replica.split("/")
    if len(numbers) != 2 or not all(each.isdecimal() for each in numbers):  # noqa: PLR2004
        raise typer.BadParameter(f"expected SHARD/REPLICA, such as 0/1, got {replica}")
    with _rollout(given, seconds) as rollout:
        place = rollout.move(*map(int, numbers))
        typer.echo(f"replica {replica} has moved; it is {place.short} now")


@command(cluster, _CELL)
def down(**given: Any) -> None:  # noqa: ANN401
    """End all replicas; the database stays as it is."""
    with _rollout(given, 0.0) as rollout:
        rollout.down()


@command(cluster, _DATABASE)
def adopt(**given: Any) -> None:  # noqa: ANN401
    """Adopt a database that was restored from a backup.

    It gets a new identity. Then restart routers and shards: they refuse the former database from
    then on, and shards are filled from this one.
    """
    from gcws_search.service.cluster.database import Database  # noqa: PLC0415

    url, _ = cluster_access(settings_from(given))
    identity = Database.adopt(url)
    typer.echo(f"the database is {identity} now; start all routers and shards again")


@command(cluster, (*_DATABASE, "buckets"))
def rekey(**given: Any) -> None:  # noqa: ANN401
    """Replace the key in the database by that of the settings.

    Then restart all routers and shards with it.
    """
    settings = settings_from(given)
    from gcws_search.service.cluster.database import open_database  # noqa: PLC0415

    with open_database(settings, checks_key=False) as database:
        database.rekey(cluster_access(settings)[1])
    typer.echo("the database has the new key; start all routers and shards again with it")


@command(cluster, _PLACED)
def status(
    as_json: Annotated[
        bool, _option("--json", "Print JSON: an object a line, one for each replica.")
    ] = False,
    **given: Any,  # noqa: ANN401
) -> None:
    """Show all replicas; exit with 1 if a shard has none that answers."""
    from gcws_search.service.cluster.database import open_database  # noqa: PLC0415
    from gcws_search.service.cluster.rollout import HEADS, status_of  # noqa: PLC0415

    settings = settings_from(given)
    with open_database(settings) as database:
        try:
            with join_ray(settings) as placement:
                found, unanswered = status_of(database, settings, placement)
                nodes = f"{len(placement.nodes())} nodes may have replicas"
        except (ConnectionError, ValueError) as error:  # as when shards run without Ray
            typer.echo(f"gcws-search: {error}", err=True)
            found, unanswered = status_of(database, settings, None)
            nodes = ""
    rows = [HEADS, *found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows[as_json:]:
        words = "  ".join(map(str.ljust, row, widths)).rstrip()
        typer.echo(json.dumps(dict(zip(HEADS, row, strict=True))) if as_json else words)
    if nodes and not as_json:
        typer.echo(nodes)
    if unanswered:
        raise ValueError(f"no replica answers for shard {', '.join(map(str, unanswered))}")


@command(cluster, _REPLICA, allow_extra_args=True)
def node(
    context: typer.Context,
    head: Annotated[bool, _option("--head", "Start the head of the cluster.")] = False,
    address: Annotated[
        str | None, _option("--address", "HOST:PORT of the head.", envvar="RAY_ADDRESS")
    ] = None,
    head_port: Annotated[int, _option("--head-port", "Where the head listens.")] = _PORT,
    **given: Any,  # noqa: ANN401
) -> None:
    """Run a node of a Ray cluster until stopped; arguments after -- go to `ray start`.

    The head starts replicas on the other nodes, and has none itself.
    """
    settings = settings_from(given)
    cluster_access(settings)
    if not head and address is None:
        raise ValueError("expected --head, or --address of the head, got neither")
    variables = node_variables(settings, given, os.environ, is_head=head)
    require_token(variables)
    if not head and address is not None and address != "auto":
        from gcws_search.tasks import reach_head  # noqa: PLC0415  # loads the index

        try:
            reach_head(address)
        except OSError as error:
            told = f"no head answers at {address} ({error_words(error)}); Ray tries for minutes"
            typer.echo(f"gcws-search: {told}", err=True)
    if find_spec("ray") is None:
        raise ModuleNotFoundError("No module named 'ray'")
    if head:  # Ray refuses to start it while a former node runs on its machine
        folder = Path(variables.get("RAY_TMPDIR") or variables.get("TMPDIR") or "/tmp")
        (folder / "ray" / "ray_current_cluster").unlink(missing_ok=True)
    where = [*_HEAD_OPTIONS, f"--port={head_port}"] if head else [f"--address={address}"]
    words = [sys.executable, "-m", "ray.scripts.scripts", "start", *_OPTIONS, *where]
    os.execve(sys.executable, [*words, *context.args], variables)


@command(cluster, ("cell", "shards", "replicas", "base"))
def manifest(
    kuberay: Annotated[
        bool, _option("--kuberay", "Have Ray place the shards, on nodes that KubeRay starts.")
    ] = False,
    image: Annotated[
        str, _option("--image", "With the extra `cluster`.")
    ] = f"gcws-search-cluster:{program_version()}",
    memory: Annotated[
        str, _option("--memory", "Of a router, and of a replica or a node of Ray.")
    ] = "4Gi",
    storage: Annotated[
        str, _option("--storage", "For the files of a replica, or of a node of Ray.")
    ] = "20Gi",
    routers: Annotated[
        int, _option("--routers", "At least; 4 times as many under load.", min=1)
    ] = 2,
    nodes: Annotated[int, _option("--nodes", "Of Ray, besides its head.", min=1)] = 3,
    **given: Any,  # noqa: ANN401
) -> None:
    """Print Kubernetes YAML for routers, and for shards with or without Ray."""
    import yaml  # noqa: PLC0415

    settings = settings_from(given)
    base = [] if settings.base is None else [{"name": "GCWS_BASE", "value": settings.base}]
    if settings.base is not None and "://" not in settings.base:
        raise ValueError(
            f"expected --base with the address of an object store, which all pods reach, got"
            f" {settings.base!r}; another one takes a volume of its own in the manifest"
        )
    file = Path(__file__).parent / ("kuberay.yml" if kuberay else "kubernetes.yml")
    text = file.read_text()
    variables = {
        "GCWS_SHARDS": str(settings.shards),
        "GCWS_REPLICAS": str(settings.replicas),
        "GCWS_CELL": settings.cell,
    }

    def fill(value: Any, words: dict[str, str]) -> Any:  # noqa: ANN401  # of YAML
        if isinstance(value, list):
            return [fill(each, words) for each in value]
        if not isinstance(value, dict):
            return words.get(value, value) if isinstance(value, str) else value
        found = {key: fill(each, words) for key, each in value.items()}
        if "image" in found:
            found["image"] = image
        if "GCWS_SHARDS" in [each.get("name") for each in found.get("env", ())]:
            found["env"] += base
        if found.get("name") in variables:
            found["value"] = variables[found["name"]]
        if "groupName" in found:
            found |= dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), nodes)
        return found

    documents: list[dict[str, Any]] = []
    for document in yaml.safe_load_all(text):
        # These words in the file stand for the memory and the storage of the options.
        words = {"4Gi": memory, "20Gi": storage}
        shard = document["metadata"]["labels"].get("shard")
        if document["kind"] == "HorizontalPodAutoscaler":
            document["spec"] |= {"minReplicas": routers, "maxReplicas": 4 * routers}
        if document["kind"] == "StatefulSet" and shard is not None:
            document["spec"]["replicas"] = settings.replicas
        if shard is None:
            documents.append(fill(document, words))
        elif shard == "0":  # once for each shard
            for number in map(str, range(settings.shards)):
                own = {"0": number, "gcws-shard-0": f"gcws-shard-{number}"}
                documents.append(fill(document, words | own))
    header = text[: text.index("apiVersion:")]
    typer.echo(header + yaml.safe_dump_all(documents, sort_keys=False, width=100), nl=False)


def node_variables(
    settings: Settings, given: Mapping[str, Any], variables: Mapping[str, str], *, is_head: bool
) -> dict[str, str]:
    """Return the environment of a node's processes: the present one, and the flags."""
    flags_given = {f"GCWS_{name.upper()}": str(v) for name, v in given.items() if v is not None}
    paths = {
        f"GCWS_{name.upper()}": str(path.resolve())
        for name in _PATHS
        if isinstance(path := getattr(settings, name), Path)
    }
    if settings.base is not None and "://" not in settings.base:
        paths["GCWS_BASE"] = str(Path(settings.base).resolve())
    found = {**RAY_DEFAULTS, **variables, **flags_given, **paths}
    if not is_head:
        found.pop("RAY_gcs_storage")
    elif found["RAY_gcs_storage"] == "rocksdb":
        found.setdefault("RAY_gcs_storage_path", str(settings.data_dir.resolve() / "ray-head"))
    return found


def require_token(variables: Mapping[str, str]) -> None:
    """Raise ValueError if Ray would have no token."""
    from gcws_search.tasks import has_token  # noqa: PLC0415  # loads the index

    if variables.get("RAY_AUTH_MODE", "token") != "token":
        raise ValueError(f"expected RAY_AUTH_MODE=token, got {variables['RAY_AUTH_MODE']}")
    if not has_token(variables):
        raise ValueError(
            "expected a token of the Ray cluster, got none;"
            " set RAY_AUTH_TOKEN_PATH to a file, or RAY_AUTH_TOKEN"
        )


@contextmanager
def _rollout(given: dict[str, Any], seconds: float) -> Iterator[Rollout]:
    """Lend a rollout of the configured cluster."""
    from gcws_search.service.cluster.database import open_database  # noqa: PLC0415
    from gcws_search.service.cluster.rollout import Rollout  # noqa: PLC0415

    settings = settings_from(given)
    with open_database(settings) as database, join_ray(settings) as placement:
        yield Rollout(placement, database, settings, typer.echo, seconds)


@contextmanager
def join_ray(settings: Settings) -> Iterator[RayPlacement]:
    """Join the Ray cluster of this machine, or that at RAY_ADDRESS, until the block ends."""
    from gcws_search.tasks import joined_ray  # noqa: PLC0415  # loads the index

    require_token(os.environ)
    with joined_ray(namespace="gcws-search"):  # of all actors and groups
        from gcws_search.service.cluster.placing import RayPlacement  # noqa: PLC0415

        yield RayPlacement(settings)
