"""``groups`` of near-duplicates, all but one of each deleted; ``pairs``; ``join`` of a file."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from gcws_search.client.connection import Server
from gcws_search.commands.options import (
    Json,
    Name,
    Recall,
    Yes,
    ask,
    ask_server,
    asking,
    family,
    object_from,
    opened_for,
    reading,
    report,
    require_output,
    tell,
    tell_rows,
    usage,
    whole_number,
)
from gcws_search.commands.query import Score, Where
from gcws_search.formats.files import whole_file
from gcws_search.formats.payloads import filter_of
from gcws_search.formats.sources import Choices
from gcws_search.index import quantity
from gcws_search.index.contracts.analysis import Group

cli = family()

_MEMBER: Final = {"id": "string", "group": "int64", "representative": "string", "score": "float64"}
_PAIR: Final = {"a": "string", "b": "string", "score": "float64"}
"""Columns of files and their types, in Arrow's words."""
_JOINED: Final = {"row": "int64", "id": "string", "to": "string", "score": "float64"}
_FORMATS = (".parquet", ".csv", ".ndjson", ".jsonl")
_SHOWN = 20
_MEMBERS_SHOWN = 4


def _output(columns: str) -> Any:  # typer's
    return typer.Option(
        "-o", "--output", help=f"A file to write (.parquet, .csv, .ndjson, .jsonl), {columns}."
    )


@asking(
    cli, "groups", epilog="Example: gcws-search groups articles --min-score 0.8 -o groups.parquet"
)
def groups(
    server: Server,
    name: Name,
    *,
    min_score: Annotated[float, typer.Option(help="Minimum score of a pair that joins two items.")],
    recall: Recall = 0.9,
    mode: Annotated[
        str,
        typer.Option(
            help="components: everything that a chain of pairs connects. leaders: all members "
            "are paired with the representative."
        ),
    ] = "components",
    keep: Annotated[
        str,
        typer.Option(
            help="The representative of a group: the first stored item, the longest, or the one "
            "with the greatest value under a payload key."
        ),
    ] = "first",
    where: Where = None,
    score: Score = "gmm",
    output: Annotated[str | None, _output("members: id, group, representative, score")] = None,
    delete_others: Annotated[
        bool,
        typer.Option(
            "--delete-others", help="Delete all items but the representatives; asks first."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what --delete-others would delete.")
    ] = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Find groups of near-duplicates, largest first."""
    require_output(output, _FORMATS)
    condition = object_from(where, "--where")
    collection = server.collection(name)
    found = collection.groups(
        min_score=min_score,
        recall=recall,
        mode=mode,  # type: ignore[arg-type]  # the server says which there are
        keep=keep,
        where=condition,
        score=score,  # type: ignore[arg-type]
    )
    for hint in found.hints:
        report(hint)
    rows = (
        (member, number, group.representative, score)
        for number, group in enumerate(found)
        for member, score in group.members
    )
    _write(output, _MEMBER, rows)
    others = [member for group in found for member, _ in group.members[1:]]
    deleted = 0
    if delete_others and others and not dry_run:
        if not yes:
            what = f"{quantity(len(others), 'item')} of {quantity(len(found), 'group')}"
            ask(f"Delete {what} from {name!r}?")
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
        tell_rows(True, shown)
        if delete_others:
            tell(True, {"others": len(others), "deleted": deleted})
        return
    if output is None:
        columns = ["size", "representative", "weakest", "others"]
        _print_first([*map(_line, found)], columns, "group")
    words = f"{quantity(len(found), 'group')} of {quantity(items, 'item')}"
    typer.echo(f"{words}, {len(others):,} beside the representatives")
    if delete_others:
        typer.echo(f"{len(others):,} would be deleted" if dry_run else f"{deleted:,} deleted")


def _line(group: Group) -> dict[str, Any]:
    others = [member for member, _ in group.members[1:]]
    more = ["…"] if len(others) > _MEMBERS_SHOWN else []
    return {
        "size": len(group.members),
        "representative": group.representative,
        "weakest": group.weakest,
        "others": others[:_MEMBERS_SHOWN] + more,
    }


@asking(cli, "pairs", epilog="Example: gcws-search pairs articles --min-score 0.8 -o pairs.csv")
def pairs(
    server: Server,
    name: Name,
    *,
    min_score: Annotated[float, typer.Option(help="Minimum score of a pair.")],
    limit: Annotated[
        int | None,
        typer.Option(parser=whole_number(), help="Maximum number of pairs; default all."),
    ] = None,
    recall: Recall = 0.9,
    score: Score = "gmm",
    output: Annotated[str | None, _output("pairs: a, b, score")] = None,
    as_json: Json = False,
) -> None:
    """Find pairs of near-duplicates, most similar first."""
    require_output(output, _FORMATS)
    found = server.collection(name).pairs(
        min_score=min_score,
        limit=limit,
        recall=recall,
        score=score,  # type: ignore[arg-type]  # the server says which there are
    )
    _write(output, _PAIR, found)
    rows = [pair._asdict() for pair in found]
    if tell_rows(as_json, rows):
        return
    if output is None:
        _print_first(rows, [*_PAIR], "pair")
    typer.echo(quantity(len(rows), "pair"))


@asking(cli, "join", epilog="Example: gcws-search join new.csv --with articles --min-score 0.8")
@reading
def join(
    server: Server,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A file that `load` can read; columns are matched by the names of coordinates.",
        ),
    ],
    *,
    name: Annotated[str, typer.Option("--with", metavar="NAME", help="Name of the collection.")],
    choices: Choices,
    encoding: str | None = None,
    min_score: Annotated[float | None, typer.Option(help="Minimum score of a hit.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            parser=whole_number(),
            help="Maximum number of hits per row; default all of --min-score.",
        ),
    ] = None,
    recall: Recall = 0.9,
    where: Where = None,
    score: Score = "gmm",
    output: Annotated[str | None, _output("hits: row, id, to, score")] = None,
    as_json: Json = False,
) -> None:
    """Find the items similar to each row of a file."""
    require_output(output, _FORMATS)
    if min_score is None and limit is None:
        usage("expected --min-score, --limit or both, got neither")
    condition = object_from(where, "--where")
    asked: dict[str, Any] = {"recall": recall, "score": score}
    asked |= {"min_score": min_score, "limit": limit}
    asked["filter"] = None if condition is None else json.dumps(filter_of(condition))
    collection = server.collection(name)
    with opened_for(file, collection, choices, encoding) as source:
        params = {word: str(value) for word, value in asked.items() if value is not None}
        body = source.whole(lambda _: None)
        with source.naming_rows():
            found, count = ask_server(collection, lambda place: place.join_body(body, params))
        dropped = {*source.dropped}
    assert found.rows is not None
    numbers = [row for row in range(count + len(dropped)) if row not in dropped]  # in the file
    ids: Sequence[str | None] = found.ids or [None] * len(found)
    places = [numbers[row] for row in found.rows.tolist()]
    rows = [*zip(places, ids, found.to, found.scores.tolist(), strict=True)]
    for hint in found.hints:
        report(hint)
    _write(output, _JOINED, rows)
    shown = [dict(zip(_JOINED, row, strict=True)) for row in rows]
    if tell_rows(as_json, shown):
        return
    if output is None:
        _print_first(shown, [*_JOINED], "hit")
    typer.echo(f"{quantity(len(rows), 'hit')} of {quantity(count, 'row')}")


def _print_first(rows: list[dict[str, Any]], columns: list[str], what: str) -> None:
    """Print the first rows as a table, and the number of others."""
    tell_rows(False, rows[:_SHOWN], columns)
    if len(rows) > _SHOWN:
        typer.echo(f"{quantity(len(rows) - _SHOWN, f'more {what}')}; -o FILE writes all")


def _write(path: str | None, columns: Mapping[str, str], rows: Iterable[tuple[Any, ...]]) -> None:
    """Write rows with typed columns to a file, if any; it appears when it is complete."""
    if path is None:
        return

    with whole_file(Path(path)) as part:
        if path.endswith(".parquet"):
            import pyarrow as pa  # noqa: PLC0415
            import pyarrow.parquet as pq  # noqa: PLC0415

            values = [*zip(*rows, strict=True)] or [()] * len(columns)
            arrays = [
                pa.array(column, kind)
                for column, kind in zip(values, columns.values(), strict=True)
            ]
            pq.write_table(pa.table(arrays, [*columns]), part)
        else:
            with part.open("w", encoding="utf-8", newline="") as file:
                if path.endswith(".csv"):
                    writer = csv.writer(file)
                    writer.writerow(columns)
                    writer.writerows(rows)
                else:
                    for row in rows:
                        line = dict(zip(columns, row, strict=True))
                        file.write(json.dumps(line, ensure_ascii=False) + "\n")
