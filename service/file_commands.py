"""Commands for the files of a server that does not run: ``check`` and ``vacuum``."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from gcws_search.index import GcwsError, check_directory, vacuum_directory

cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

Folder = Annotated[
    Path, typer.Argument(envvar="GCWS_DATA_DIR", help="Folder of the collections' files.")
]

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@cli.command("check")
def check(
    data_dir: Folder = Path("data"),
    *,
    repair: Annotated[
        bool, typer.Option("--repair", help="Put files of all that is sound in their places.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Verify all files of a folder that no server uses; exit with 1 where one is damaged."""
    damaged = False
    found: list[dict[str, Any]] = []
    with _tell(data_dir):
        for report in check_directory(data_dir, repair=repair):
            damaged |= not (report.is_sound or report.repaired)
            if as_json:
                found.append(asdict(report) | {"is_sound": report.is_sound})
                continue
            state = "sound" if report.is_sound else "repaired" if report.repaired else "damaged"
            lost = f", {report.lost} lost" if report.lost else ""
            typer.echo(f"{report.name}: {state}, {report.items} items{lost}")
            for finding in report.findings:
                typer.echo(f"  {finding}")
            if report.more:
                typer.echo(f"  and {report.more} more")
    if as_json:
        typer.echo(json.dumps({"collections": found}, default=str))
    if damaged:
        raise typer.Exit(1)


@cli.command("vacuum")
def vacuum(data_dir: Folder = Path("data"), *, as_json: AsJson = False) -> None:
    """Rewrite all files of a folder that no server uses, without the space they do not need."""
    failed = False
    found: list[dict[str, Any]] = []
    with _tell(data_dir):
        for done in vacuum_directory(data_dir):
            failed |= done.error is not None
            if as_json:
                found.append(asdict(done))
                continue
            typer.echo(f"{done.name}: {done.error or f'{done.before} bytes, now {done.after}'}")
    if as_json:
        typer.echo(json.dumps({"collections": found}, default=str))
    if failed:
        raise typer.Exit(1)


@contextmanager
def _tell(data_dir: Path) -> Iterator[None]:
    """Say why a folder cannot be worked on."""
    try:
        if not data_dir.is_dir():
            raise NotADirectoryError(f"there is no folder {data_dir}")
        yield
    except (GcwsError, OSError) as error:
        typer.echo(f"gcws-search: {error}", err=True)
        raise typer.Exit(1) from None
