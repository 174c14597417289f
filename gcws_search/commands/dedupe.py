"""``dedupe``: near-duplicates of files that need not fit into memory, without a server."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from gcws_search import duplicates
from gcws_search.commands.options import (
    MAX_REJECTED_TOLD,
    REJECTED,
    Json,
    Ngrams,
    Normalize,
    OnError,
    Power,
    Tokens,
    failures,
    family,
    ngrams_of,
    reading,
    report,
    show_guess,
    steps,
    tell,
    transform_of,
    usage,
    whole_number,
)
from gcws_search.formats.files import WORDS
from gcws_search.formats.sources import Choices, Source
from gcws_search.index import quantity

cli = family()

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE",
        help=f"{WORDS}, also compressed; folders of files; s3:// and other addresses of them.",
    ),
]

_MIB: Final = 1 << 20
_UNITS: Final = {"M": _MIB, "G": _MIB << 10}


@cli.command(
    "dedupe",
    epilog="Example: gcws-search dedupe corpus/ --text body --ngrams 3 --min-score 0.8 -o out",
)
@reading
def dedupe(
    sources: Sources,
    *,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FOLDER", help="A new folder for the result.")
    ],
    to: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Copy the result to an object store: s3://bucket/out."
        ),
    ] = None,
    min_score: Annotated[
        float, typer.Option(help="Minimum exact score of a pair that joins two rows.")
    ],
    recall: Annotated[
        float, typer.Option(help="Probability of finding a pair of the minimum score.")
    ] = 0.95,
    keep: Annotated[
        Literal["first", "longest"],
        typer.Option(help="The row of a group to keep: the first one, or the longest."),
    ] = "first",
    choices: Choices,
    encoding: str | None,
    tokens: Tokens = "words",
    ngrams: Ngrams = "1",
    weights: Annotated[
        Literal["set", "counts"],
        typer.Option(help="Weight of an n-gram: 1, or its count in the text."),
    ] = "set",
    normalize: Normalize = None,
    power: Power = None,
    on_error: OnError = "stop",
    memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Memory for the tables of keys: 512M, 2G.")
    ] = "2G",
    threads: Annotated[
        int | None,
        typer.Option(
            parser=whole_number(1),
            help="Number of threads, and of processes that read files; default one per processor.",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Run on a Ray cluster: HOST:PORT, or auto."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Find groups of near-duplicates in files, and write which rows are kept.

    No server is needed, and memory holds no vectors. FOLDER gets groups.parquet (id, file, row,
    group, representative, score), kept.parquet, removed.parquet and report.json. Run the same
    command again to resume an interrupted one. --to receives report.json last.
    """
    with failures(), steps() as progress:
        found = duplicates.dedupe(
            sources,
            output,
            to=to,
            min_score=min_score,
            recall=recall,
            keep=keep,
            choices=replace(choices, payload=(), lenient=on_error == "skip"),
            encoding=encoding,
            text={"tokens": tokens, "ngrams": ngrams_of(ngrams), "weights": weights},
            transform=transform_of(normalize, power),
            memory_bytes=_bytes_of(memory),
            threads=threads,
            processes=threads,
            ray=ray,
            show=_show,
            progress=progress,
        )
    tell(as_json, asdict(found), *_lines(found, output))
    if found.rejected:
        _tell_rejected(output / duplicates.REJECTED_FILE)
        raise typer.Exit(REJECTED)


def _show(source: Source) -> None:
    """Print how a file is read; its other columns are not used."""
    source.guess = [each for each in source.guess if each[0] != "payload"]
    show_guess(source)


def _tell_rejected(path: Path) -> None:
    """Print the first rows that were left out, and the file with all of them."""
    with path.open("rb") as lines:
        for line in islice(lines, MAX_REJECTED_TOLD):
            told = json.loads(line)
            typer.echo(f"{told['file']}: {told['detail']}", err=True)
    report(f"{path}: rejected rows")


def _bytes_of(text: str) -> int:
    number, unit = text[:-1], text[-1:].upper()
    if not number.isdecimal() or unit not in _UNITS:
        usage(f"--memory: expected a size such as 512M or 2G, got {text!r}")
    return int(number) * _UNITS[unit]


def _lines(found: duplicates.Deduplicated, output: Path) -> list[str]:
    left_out = f", {found.rejected:,} left out" if found.rejected else ""
    if found.dropped:
        left_out += f", {found.dropped:,} left out for missing numbers"
    lines = [
        f"{quantity(found.rows, 'row')}{left_out}: {found.kept:,} kept, "
        f"{found.removed:,} removed, in {quantity(found.groups, 'group')}",
        f"expected recall of pairs that score {found.min_score:g}: {found.expected_recall:.3f}",
    ]
    if found.recall is not None:
        lines.append(
            f"recall of a sample of {quantity(found.recall_pairs, 'pair')}: {found.recall:.3f} "
            f"({found.recall_low:.3f} to {found.recall_high:.3f})"
        )
    if found.wide_buckets:
        lines.append(
            f"{quantity(found.wide_buckets, 'key')} that too many rows have, "
            f"up to {found.widest:,}, such as {found.widest_id!r}: compared with 256 at most"
        )
    return [*lines, f"{output}: groups.parquet, kept.parquet, removed.parquet, report.json"]
