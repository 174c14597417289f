"""Settings: one frozen class, read from ``GCWS_*`` variables, flags, or given by the caller."""

import inspect
import json
import os
import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import typer
from pydantic import (
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

_MIB = 2**20
_PREFIX: Final = "GCWS_"
_OF_OTHERS: Final = {"GCWS_URL", "GCWS_CHROMIUM"}
"""Variables of other commands, and of the tests."""

_SECRET: Final = {"key", "url"}
"""Words in the names of settings whose values are not shown."""
NUMBERS: Final[dict[type, tuple[re.Pattern[str], str]]] = {
    int: (re.compile(r"-?[0-9]+"), "an integer"),
    float: (re.compile(r"[^_]*"), "a number without underscores"),
}
"""How numbers are written in settings and URLs: validators read 1.0 as an integer, and 1_0."""
_METAVARS: Final = {bool: "true|false", int: "NUMBER", float: "NUMBER", Path: "PATH"}


class Settings(BaseSettings):
    """Everything that can be set about one server process; each field is ``GCWS_<NAME>``."""

    model_config = SettingsConfigDict(
        env_prefix="GCWS_", frozen=True, extra="forbid", env_ignore_empty=True, allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _check_number(cls, value: object, info: ValidationInfo) -> object:
        """Check how a number is written."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        for kind, (pattern, expected) in NUMBERS.items():
            is_number = isinstance(value, str) and kind in (annotation, *get_args(annotation))
            if is_number and not pattern.fullmatch(str(value).strip()):
                raise PydanticCustomError("number", "expected {expected}", {"expected": expected})
        return value

    data_dir: Annotated[Path, BeforeValidator(os.path.expanduser)] = Field(
        default=Path("data"), description="Directory of the collections' files."
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(
        default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one."
    )
    workers: int = Field(
        default=1,
        ge=1,
        le=256,
        description="HTTP processes; 1: one process does everything. With more, each reads and "
        "checks requests, and one further process owns the collections.",
    )
    api_key: SecretStr | None = Field(
        default=None,
        min_length=1,
        description="Key with full access, or several separated by commas. If no key is set, "
        "none is needed.",
    )
    read_only_api_key: SecretStr | None = Field(
        default=None, min_length=1, description="The same, for read-only keys."
    )
    api_key_file: Path | None = Field(
        default=None,
        description="File of keys with full access, one a line; read again when it changes.",
    )
    read_only_api_key_file: Path | None = Field(
        default=None, description="The same, for read-only keys."
    )
    allow_no_key: bool = Field(
        default=False, description="Listen beyond loopback even if no key is set."
    )
    published_host: str | None = Field(
        default=None,
        description="Address at which a container or a proxy publishes the service; default: "
        "`host`.",
    )
    durability: Literal["full", "normal"] = Field(
        default="full",
        description="'full': an acknowledged write survives a power cut. 'normal': it survives "
        "the end of the process.",
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        description="Threads for bulk work and long searches; default: one per core.",
    )
    max_requests: int = Field(
        default=1024, ge=1, description="Maximum number of concurrent requests; more get 503."
    )
    max_body_bytes: int = Field(
        default=32 * _MIB,
        ge=1,
        description="Maximum body size of any request except a load or a join.",
    )
    max_held_bytes: int = Field(
        default=128 * _MIB,
        ge=1,
        description="Maximum bytes of all bodies in progress; more get 503.",
    )
    max_answer_bytes: int = Field(
        default=256 * _MIB,
        ge=1,
        description="Approximate maximum size of an answer; larger ones get 422.",
    )
    max_memory_share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.9,
        description="Share of the memory (the container's or the machine's) above which writes "
        "get 507.",
    )
    max_disk_share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.97, description="Share of the disk above which writes get 507."
    )
    max_collections: int = Field(default=1000, ge=1, description="Maximum number of collections.")
    max_dim: int = Field(
        default=2**31 - 1,
        ge=1,
        le=2**31 - 1,
        description="Maximum number of coordinates of a collection.",
    )
    max_nonzeros: int = Field(
        default=1_000_000,
        ge=1,
        description="Maximum number of non-zeros of a vector in JSON or Arrow.",
    )
    max_id_length: int = Field(
        default=255, ge=1, le=255, description="Maximum length of an id, in characters."
    )
    max_filter_depth: int = Field(
        default=8,
        ge=1,
        le=32,
        description="Maximum nesting depth of filters, including the outermost.",
    )
    max_filter_conditions: int = Field(
        default=256, ge=1, description="Maximum number of conditions of a filter."
    )
    max_filter_values: int = Field(
        default=100_000, ge=1, description="Maximum number of values in the conditions of a filter."
    )
    max_load_bytes: int | None = Field(
        default=None,
        ge=1,
        description="Maximum body size of a load or a join, decompressed; default: no limit.",
    )
    max_snapshot_bytes: int | None = Field(
        default=None, ge=1, description="Maximum size of an uploaded snapshot; default: no limit."
    )
    max_line_bytes: int = Field(
        default=16 * _MIB,
        ge=1,
        description="Maximum length of an NDJSON line or an npy row in a load.",
    )
    max_arrow_batch_bytes: int = Field(
        default=256 * _MIB, ge=1, description="Maximum size of a record batch in an Arrow load."
    )
    max_items_per_request: int = Field(
        default=100_000,
        ge=1,
        description="Maximum number of items or ids of a write, and of vectors of a sketch.",
    )
    max_queries_per_request: int = Field(
        default=100_000, ge=1, description="Maximum number of queries of a batch."
    )
    max_limit: int = Field(default=100_000, ge=1, description="Maximum `limit` of a query.")
    max_page_limit: int = Field(
        default=10_000, ge=1, description="Maximum `limit` of a page of items."
    )
    max_payload_bytes: int = Field(
        default=_MIB, ge=2, description="Maximum size of a payload, as JSON text."
    )
    load_chunk_rows: int = Field(
        default=8192, ge=1, description="A load commits after this many rows …"
    )
    load_chunk_bytes: int = Field(default=32 * _MIB, ge=1, description="… or this many bytes.")
    max_rejected_listed: int = Field(
        default=1000,
        ge=0,
        description="Maximum number of rejected rows that a load lists; all are counted.",
    )
    load_key_seconds: int = Field(
        default=86_400, ge=1, description="How long the keys of loads are kept."
    )
    audit_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.001,
        description="Share of the queries that are also answered exactly, in the background, to "
        "measure recall; 0: none.",
    )
    max_loads: int = Field(
        default=8,
        ge=1,
        description="Maximum number of concurrent loads and joins of bodies; more get 429.",
    )
    max_queue: int = Field(
        default=256, ge=1, description="Maximum number of running and waiting reads; more get 429."
    )
    max_write_queue: int = Field(
        default=256, ge=1, description="Maximum number of running and waiting writes; more get 429."
    )
    body_seconds: Annotated[float, Field(gt=0)] = Field(
        default=60, description="How long a body may take to arrive; for a load, its next piece."
    )
    header_seconds: Annotated[float, Field(gt=0)] = Field(
        default=10, description="How long a request's head may take to arrive."
    )
    send_seconds: Annotated[float, Field(gt=0)] = Field(
        default=60, description="How long a client may pause while receiving its answer."
    )
    max_header_bytes: int = Field(
        default=65_536, ge=1024, description="Maximum size of a request's head."
    )
    max_connections: int = Field(
        default=4096, ge=1, description="Maximum number of open connections; more are closed."
    )
    inline_seconds: Annotated[float, Field(ge=0)] = Field(
        default=0.002, description="Searches expected to be shorter run on the event loop."
    )
    shutdown_seconds: int = Field(
        default=10,
        ge=0,
        description="How long running requests may continue after SIGTERM, or after their client "
        "stopped sending.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level of messages to log."
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="'json': one object a line, with the request's id."
    )
    access_log: bool = Field(default=False, description="Log one line per request.")
    database_url: SecretStr | None = Field(
        default=None, description="URL of the PostgreSQL of a cluster; makes `serve` a router."
    )
    database_url_file: Path | None = Field(
        default=None, description="File with that URL; read at the start."
    )
    cluster_key: SecretStr | None = Field(
        default=None, min_length=1, description="Key between routers and shards of a cluster."
    )
    cluster_key_file: Path | None = Field(
        default=None, description="File with that key; read at the start."
    )
    tls_ca_file: Path | None = Field(
        default=None,
        description="Certificates of the authorities of shards; makes routers use TLS.",
    )
    tls_certificate_file: Path | None = Field(
        default=None,
        description="Certificate of a shard, for the name gcws-shard, and intermediate ones.",
    )
    tls_key_file: Path | None = Field(
        default=None, description="Private key of that certificate, without a password."
    )
    base: str | None = Field(
        default=None,
        description="Folder or object store for bases, copies of shard files from which new "
        "replicas start; default: they read all rows from the database.",
    )
    offload: bool = Field(
        default=False, description="Move vectors from the database to files beside the bases."
    )
    cell: str = Field(
        default="main",
        min_length=1,
        description="Name of the cluster, if several follow one database.",
    )
    shards: int = Field(default=1, ge=1, le=256, description="Parts of a cluster's collections.")
    replicas: int = Field(
        default=2, ge=1, le=16, description="Processes that have the same shard, each on its node."
    )
    replica_bytes: int | None = Field(
        default=None, ge=1, description="Memory that Ray reserves a replica; unset: none."
    )
    shard_seconds: Annotated[float, Field(gt=0)] = Field(
        default=2, description="How long a shard may take to answer a search."
    )
    buckets: int = Field(
        default=32,
        ge=1,
        le=1024,
        description="Parts that items are divided into by their ids, when a cluster's database is "
        "first used; the most shards.",
    )


def _metavar(annotation: Any) -> str:  # noqa: ANN401  # of any form
    for kind in (annotation, *get_args(annotation)):
        if kind in _METAVARS:
            return _METAVARS[kind]
    return "WORD" if get_origin(annotation) is Literal else "TEXT"


def flags(*others: inspect.Parameter, names: Collection[str] = ()) -> inspect.Signature:
    """Return a signature with optional flags for settings after other parameters.

    names: of the settings; empty: all.
    """
    parameters = [*others]
    for name in names or Settings.model_fields:
        field = Settings.model_fields[name]
        default = field.default
        told = json.dumps(default) if isinstance(default, bool) else default
        is_choice = get_origin(field.annotation) is Literal
        choice = f" One of {', '.join(get_args(field.annotation))}." if is_choice else ""
        shown = "" if default is None else f" \\[default: {told}]"  # escaped: no tag of rich
        option = typer.Option(
            f"--{name.replace('_', '-')}",
            help=f"{field.description}{choice}{shown}",
            envvar=f"GCWS_{name.upper()}",
            show_envvar=True,
            metavar=_metavar(field.annotation),
        )
        option.default = None
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=str | None
            )
        )
    return inspect.Signature(parameters)


def settings_from(given: dict[str, Any]) -> Settings:
    """Return the settings: flags before variables before defaults."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        found = []
        for entry in error.errors():
            name = str(entry["loc"][0])
            got = "" if _SECRET & {*name.split("_")} else f", got {entry['input']!r}"
            found.append(f"--{name.replace('_', '-')}: {entry['msg']}{got}")
        raise typer.BadParameter("; ".join(found)) from None


def unread(variables: Iterable[str]) -> list[str]:
    """Return a sentence for each variable that looks like a setting but is none."""
    known = {f"{_PREFIX}{name.upper()}" for name in Settings.model_fields} | _OF_OTHERS
    sentences = []
    for name in sorted(variables):
        if name.upper().startswith(_PREFIX) and name.upper() not in known:
            near = get_close_matches(name.upper(), known, 1)
            hint = f"; the nearest setting is {near[0]}" if near else ""
            sentences.append(f"nothing reads the variable {name}{hint}")
    return sentences
