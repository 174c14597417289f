"""What commands share: options, how errors end a command, and how answers are printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

if TYPE_CHECKING:
    from gcws_search.client.connection import Server

LOCAL: Final = "http://127.0.0.1:8000"
FAILED: Final = 1
_WIDE: Final = 10_000
"""Columns where nobody looks: nothing is cut."""
REJECTED: Final = 3

Url = Annotated[str, typer.Option("--url", envvar="GCWS_URL", help="Where the server is.")]
Key = Annotated[
    str | None, typer.Option("--api-key", envvar="GCWS_API_KEY", help="The server's key.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the collection.")]


def family(**options: Any) -> typer.Typer:
    """Return what the commands of a module are registered with."""
    return typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich", **options
    )


@contextmanager
def failures() -> Iterator[None]:
    """End the command with one sentence and exit code 1 where something goes wrong."""
    from gcws_search.formats.files import BadFile  # noqa: PLC0415  # loads numpy
    from gcws_search.index import GcwsError  # noqa: PLC0415

    try:
        yield
    except (GcwsError, BadFile) as error:
        fail("; ".join([str(error), *getattr(error, "__notes__", ())]))
    except KeyboardInterrupt:
        fail("interrupted")
    except OSError as error:
        fail(f"{error.filename or 'a file'}: {error.strerror or error}")


@contextmanager
def server(url: str, key: str | None) -> Iterator[Server]:
    """Yield a server; see `failures` for what goes wrong with it."""
    from gcws_search.client.connection import connect  # noqa: PLC0415
    from gcws_search.client.retries import RetryPolicy  # noqa: PLC0415

    # A server that starts compiles kernels for a minute, the first time.
    policy = RetryPolicy(attempts=60, max_seconds=2, report=_tell)
    with failures(), connect(url, key, policy=policy) as found:
        yield found


def _tell(message: str) -> None:
    typer.echo(f"gcws-search: {message}", err=True)


def fail(message: str) -> NoReturn:
    """Print a sentence and end with exit code 1."""
    typer.echo(f"gcws-search: {message}", err=True)
    raise typer.Exit(FAILED)


def usage(message: str) -> NoReturn:
    """End with exit code 2."""
    raise typer.BadParameter(message)


def print_json(value: Any) -> None:
    """Print a value as a line of JSON."""
    typer.echo(json.dumps(value, ensure_ascii=False))


def print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print rows as a table; a terminal gets lines around it."""
    from rich import box  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    console = Console() if sys.stdout.isatty() else Console(width=_WIDE)
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
    for column in columns:
        is_number = all(isinstance(row.get(column), int | float) for row in rows)
        table.add_column(column, justify="right" if is_number and rows else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    console.print(table)


def _cell(value: Any) -> str:
    from rich.markup import escape  # noqa: PLC0415

    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return escape(", ".join(map(str, value)))
    return escape(json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value))
