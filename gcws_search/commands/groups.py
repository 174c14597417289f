"""``groups``: groups of near-duplicates, and all but one of each deleted."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gcws_search.commands.options import (
    LOCAL,
    Json,
    Key,
    Name,
    Url,
    failures,
    family,
    print_table,
    server,
    tell,
    usage,
)
from gcws_search.commands.query import filter_from

if TYPE_CHECKING:
    from gcws_search.index.contracts.analysis import Group

cli = family()

_COLUMNS = ("id", "group", "representative", "score")
_FORMATS = (".parquet", ".csv", ".ndjson", ".jsonl")
_SHOWN = 20
_MEMBERS_SHOWN = 4


@cli.command(
    "groups", epilog="Example: gcws-search groups articles --min-score 0.8 -o groups.parquet"
)
def groups(
    name: Name,
    *,
    min_score: Annotated[float, typer.Option(help="Least score of a pair that joins two items.")],
    recall: Annotated[
        float, typer.Option(help="Expected share of these pairs found; 1 finds all.")
    ] = 0.9,
    mode: Annotated[
        str,
        typer.Option(
            help="components: whatever a chain of pairs joins. "
            "leaders: all members are paired with the representative."
        ),
    ] = "components",
    keep: Annotated[
        str,
        typer.Option(
            help="Which item represents a group: the first that was put, the longest, "
            "or that of the greatest value of a payload key."
        ),
    ] = "first",
    where: Annotated[
        str | None, typer.Option("--where", help="A filter as JSON, or values by key.")
    ] = None,
    score: Annotated[
        str, typer.Option(help="Kind of the scores and of --min-score: gmm or bray_curtis.")
    ] = "gmm",
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            help="Write the members to a file (.parquet, .csv, .ndjson, .jsonl): "
            "id, group, representative, score.",
        ),
    ] = None,
    delete_others: Annotated[
        bool,
        typer.Option("--delete-others", help="Delete all items but the representatives; asks."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what --delete-others would delete.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
    as_json: Json = False,
    url: Url = LOCAL,
    key: Key = None,
) -> None:
    """Find groups of near-duplicates, the largest first."""
    if output is not None and not output.endswith(_FORMATS):
        usage(f"--output: expected a file called {', '.join(_FORMATS)}, got {output!r}")
    condition = filter_from(where)
    with server(url, key) as connected:
        collection = connected.collection(name)
        found = collection.groups(
            min_score=min_score,
            recall=recall,
            mode=mode,  # type: ignore[arg-type]  # the server says which there are
            keep=keep,
            where=condition,
            score=score,  # type: ignore[arg-type]
        )
        if output is not None:
            with failures():
                _write(output, found)
        others = [member for group in found for member, _ in group.members[1:]]
        deleted = 0
        if delete_others and others and not dry_run:
            if not yes:
                question = f"Delete {len(others)} items of {len(found)} groups from {name!r}?"
                typer.confirm(question, abort=True, err=True)
            deleted = collection.delete(others)
    items = len(others) + len(found)
    if as_json:
        shown = [
            {
                "representative": each.representative,
                "size": len(each.members),
                "members": [{"id": member, "score": score} for member, score in each.members],
                "weakest": each.weakest,
            }
            for each in found
        ]
        tell(True, {"groups": shown, "items": items, "others": len(others), "deleted": deleted})
        return
    if output is None:
        print_table([*map(_line, found[:_SHOWN])], ["size", "representative", "weakest", "others"])
        if len(found) > _SHOWN:
            typer.echo(f"{len(found) - _SHOWN} more groups; -o FILE writes them all")
    typer.echo(f"{len(found)} groups of {items} items, {len(others)} beside the representatives")
    if delete_others:
        typer.echo(f"{len(others)} would be deleted" if dry_run else f"{deleted} deleted")


def _line(group: Group) -> dict[str, Any]:
    others = [member for member, _ in group.members[1:]]
    more = ["…"] if len(others) > _MEMBERS_SHOWN else []
    return {
        "size": len(group.members),
        "representative": group.representative,
        "weakest": group.weakest,
        "others": others[:_MEMBERS_SHOWN] + more,
    }


def _rows(groups: list[Group]) -> Iterator[tuple[str, int, str, float]]:
    for number, group in enumerate(groups):
        for member, score in group.members:
            yield member, number, group.representative, score


def _write(path: str, groups: list[Group]) -> None:
    """Write a row a member; the file appears when it is whole."""
    target = Path(path)
    part = target.with_name(f"{target.name}.part")
    try:
        if path.endswith(".parquet"):
            import pyarrow as pa  # noqa: PLC0415
            import pyarrow.parquet as pq  # noqa: PLC0415

            types = (pa.string(), pa.int64(), pa.string(), pa.float64())
            columns = [*zip(*_rows(groups), strict=True)] or [()] * len(_COLUMNS)
            arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
            pq.write_table(pa.table(arrays, [*_COLUMNS]), part)
        else:
            with part.open("w", encoding="utf-8", newline="") as file:
                if path.endswith(".csv"):
                    writer = csv.writer(file)
                    writer.writerow(_COLUMNS)
                    writer.writerows(_rows(groups))
                else:
                    for row in _rows(groups):
                        line = dict(zip(_COLUMNS, row, strict=True))
                        file.write(json.dumps(line, ensure_ascii=False) + "\n")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
