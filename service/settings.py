"""Settings: one frozen class, read from ``GCWS_*`` variables or given by the caller."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

_MIB = 2**20


class Settings(BaseSettings):
    """Everything that can be set about one server process; each field is ``GCWS_<NAME>``."""

    model_config = SettingsConfigDict(
        env_prefix="GCWS_", frozen=True, extra="forbid", env_ignore_empty=True
    )

    data_dir: Path = Field(default=Path("data"), description="Directory of the collections' files.")
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(
        default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one."
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
        description="File of keys that permit everything, one a line; read anew when it changes.",
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
    max_body_bytes: int = Field(
        default=64 * _MIB, ge=1, description="Longest body of any request but a load."
    )
    max_load_bytes: int | None = Field(
        default=None, ge=1, description="Longest body of a load, decompressed; unset: no limit."
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
    max_loads: int = Field(default=8, ge=1, description="Loads under way at once; more get 429.")
    max_queue: int = Field(
        default=256, ge=1, description="Requests running or waiting for a thread; more get 429."
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
    access_log: bool = Field(default=False, description="Log a line for every request.")
