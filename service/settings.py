"""Settings: one frozen class, read from ``GCWS_*`` variables, flags, or given by the caller."""

import inspect
import json
import os
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import typer
from pydantic import BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

_MIB = 2**20
_PREFIX: Final = "GCWS_"
_OF_OTHERS: Final = {"GCWS_URL", "GCWS_CHROMIUM"}
"""Variables of other commands, and of the tests."""

_SECRET: Final = {"key", "url"}
"""Words in the names of settings whose values are not shown."""
_METAVARS: Final = {bool: "true|false", int: "NUMBER", float: "NUMBER", Path: "PATH"}


class Settings(BaseSettings):
    """Everything that can be set about one server process; each field is ``GCWS_<NAME>``."""

    model_config = SettingsConfigDict(
        env_prefix="GCWS_", frozen=True, extra="forbid", env_ignore_empty=True
    )

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
        description="Processes that speak HTTP; 1: one process does all. Of more, each checks and "
        "reads requests, and one besides has the collections.",
    )
    api_key: SecretStr | None = Field(
        default=None,
        min_length=1,
        description="Key that permits everything, or several separated by commas. Without any key "
        "none is asked for.",
    )
    read_only_api_key: SecretStr | None = Field(
        default=None, min_length=1, description="The same, for keys that permit reading only."
    )
    api_key_file: Path | None = Field(
        default=None,
        description="File of keys that permit everything, one a line; read again when it changes.",
    )
    read_only_api_key_file: Path | None = Field(
        default=None, description="The same, for keys that permit reading only."
    )
    allow_no_key: bool = Field(
        default=False, description="Listen beyond loopback even though no key is set."
    )
    published_host: str | None = Field(
        default=None,
        description="Address at which a container or a proxy makes this reachable; unset: `host`.",
    )
    durability: Literal["full", "normal"] = Field(
        default="full",
        description="'full': an acknowledged write survives a power cut. 'normal': it survives "
        "the end of the process.",
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        description="Threads for bulk work and long searches; unset: one a core.",
    )
    max_requests: int = Field(
        default=1024, ge=1, description="Requests under way at once; more get 503."
    )
    max_body_bytes: int = Field(
        default=32 * _MIB, ge=1, description="Longest body of any request but a load or a join."
    )
    max_held_bytes: int = Field(
        default=128 * _MIB,
        ge=1,
        description="Bytes of bodies being worked on at once; more get 503.",
    )
    max_answer_bytes: int = Field(
        default=256 * _MIB, ge=1, description="About the longest answer; longer ones get 422."
    )
    max_memory_share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.9,
        description="Share of the memory (the container's or the machine's) beyond which writes "
        "get 507.",
    )
    max_disk_share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.97, description="Share of the disk beyond which writes get 507."
    )
    max_collections: int = Field(default=1000, ge=1, description="Most collections.")
    max_dim: int = Field(
        default=2**31 - 1, ge=1, le=2**31 - 1, description="Most coordinates of a collection."
    )
    max_nonzeros: int = Field(
        default=1_000_000, ge=1, description="Most numbers of one vector in JSON or Arrow."
    )
    max_id_length: int = Field(default=255, ge=1, le=255, description="Longest id, in characters.")
    max_filter_depth: int = Field(
        default=8, ge=1, le=32, description="Filters within filters, the outermost included."
    )
    max_filter_conditions: int = Field(
        default=256, ge=1, description="Most conditions of one filter."
    )
    max_filter_values: int = Field(
        default=100_000, ge=1, description="Most values that the conditions of one filter name."
    )
    max_load_bytes: int | None = Field(
        default=None,
        ge=1,
        description="Longest body of a load or a join, decompressed; unset: no limit.",
    )
    max_snapshot_bytes: int | None = Field(
        default=None, ge=1, description="Longest snapshot that is uploaded; unset: no limit."
    )
    max_line_bytes: int = Field(
        default=16 * _MIB,
        ge=1,
        description="Longest line of an NDJSON load; also its longest npy row.",
    )
    max_arrow_batch_bytes: int = Field(
        default=256 * _MIB, ge=1, description="Largest record batch of an Arrow load."
    )
    max_items_per_request: int = Field(
        default=100_000,
        ge=1,
        description="Most items or ids of one write, most vectors of one sketch.",
    )
    max_queries_per_request: int = Field(
        default=100_000, ge=1, description="Most queries of one batch query."
    )
    max_limit: int = Field(default=100_000, ge=1, description="Largest `limit` of a query.")
    max_page_limit: int = Field(
        default=10_000, ge=1, description="Largest `limit` of a page of items."
    )
    max_payload_bytes: int = Field(default=_MIB, ge=2, description="Longest payload, as JSON text.")
    load_chunk_rows: int = Field(
        default=8192, ge=1, description="A load commits after this many rows …"
    )
    load_chunk_bytes: int = Field(default=32 * _MIB, ge=1, description="… or this many bytes.")
    max_rejected_listed: int = Field(
        default=1000, ge=0, description="Most rejected rows a load lists; all are counted."
    )
    load_key_seconds: int = Field(
        default=86_400, ge=1, description="How long the keys of loads are kept."
    )
    audit_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.001,
        description="Share of the queries that are answered exactly as well, in the background, so "
        "that the recall found is known; 0: none.",
    )
    max_loads: int = Field(
        default=8, ge=1, description="Loads and joins of bodies under way at once; more get 429."
    )
    max_queue: int = Field(
        default=256, ge=1, description="Reading requests that run or wait; more get 429."
    )
    max_write_queue: int = Field(
        default=256, ge=1, description="Writes that run or wait; more get 429."
    )
    body_seconds: Annotated[float, Field(gt=0)] = Field(
        default=60, description="How long a body may take to arrive; a load's, the next piece."
    )
    header_seconds: Annotated[float, Field(gt=0)] = Field(
        default=10, description="How long a request's head may take to arrive."
    )
    send_seconds: Annotated[float, Field(gt=0)] = Field(
        default=60, description="How long a client may stop taking its answer."
    )
    max_header_bytes: int = Field(default=65_536, ge=1024, description="Longest head of a request.")
    max_connections: int = Field(
        default=4096, ge=1, description="Connections open at once; more are closed."
    )
    inline_seconds: Annotated[float, Field(ge=0)] = Field(
        default=0.002, description="Searches expected to take less run without changing threads."
    )
    shutdown_seconds: int = Field(
        default=10, ge=0, description="How long requests may go on after the order to stop."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least serious messages to log."
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="'json': an object a line, with the request's id."
    )
    access_log: bool = Field(default=False, description="Log a line for every request.")
    database_url: SecretStr | None = Field(
        default=None,
        description="PostgreSQL that orders the writes of a cluster; with it, `serve` is one of "
        "its routers.",
    )
    database_url_file: Path | None = Field(
        default=None, description="File that holds that URL; read at the start."
    )
    cluster_key: SecretStr | None = Field(
        default=None, min_length=1, description="Key between routers and shards of a cluster."
    )
    cluster_key_file: Path | None = Field(
        default=None, description="File that holds that key; read at the start."
    )
    tls_ca_file: Path | None = Field(
        default=None,
        description="Certificates of the authorities that vouch for shards; set: routers ask them "
        "by TLS.",
    )
    tls_certificate_file: Path | None = Field(
        default=None,
        description="Certificate of a shard and those between it and the authority; its name is "
        "gcws-shard.",
    )
    tls_key_file: Path | None = Field(
        default=None, description="Private key of that certificate, without a password."
    )
    base: str | None = Field(
        default=None,
        description="Folder or address of an object store where shards keep copies of their files, "
        "which new replicas begin with; unset: these read all rows from the database.",
    )
    offload: bool = Field(
        default=False, description="Move vectors from the database to files beside the bases."
    )
    cell: str = Field(
        default="main",
        min_length=1,
        description="Name of a cluster, of those that follow one database.",
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
    """Return a signature with a flag for each setting, none of them given, behind some others.

    names: of the settings; all unless some are named.
    """
    parameters = [*others]
    for name in names or Settings.model_fields:
        field = Settings.model_fields[name]
        default = field.default
        told = json.dumps(default) if isinstance(default, bool) else default
        is_choice = get_origin(field.annotation) is Literal
        choice = f" One of {', '.join(get_args(field.annotation))}." if is_choice else ""
        shown = "" if default is None else f" \\[default: {told}]"  # no tag of rich
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
    """Return a sentence for each variable that looks like a setting and is none."""
    known = {f"{_PREFIX}{name.upper()}" for name in Settings.model_fields} | _OF_OTHERS
    sentences = []
    for name in sorted(variables):
        if name.upper().startswith(_PREFIX) and name.upper() not in known:
            near = get_close_matches(name.upper(), known, 1)
            hint = f"; the nearest setting is {near[0]}" if near else ""
            sentences.append(f"nothing reads the variable {name}{hint}")
    return sentences
