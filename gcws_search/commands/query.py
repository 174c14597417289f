"""``query``, ``find``, ``explain``; methods of search: ``compare``, ``backends``, ``recall``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from itertools import accumulate, pairwise
from operator import mul
from typing import Annotated, Any, Final

import typer

from gcws_search.client.collection import Collection
from gcws_search.client.connection import Server
from gcws_search.commands.options import (
    Fingerprint,
    Json,
    Name,
    Recall,
    asking,
    fail,
    family,
    fingerprint_of,
    in_words,
    object_from,
    opened_for,
    report,
    tell,
    tell_rows,
    usage,
    whole_number,
)
from gcws_search.formats.sources import Choices
from gcws_search.index import quantity
from gcws_search.index.contracts.analysis import Explained, Share

cli = family()

_SHARES = 10
_SLICES: Final = "█▓▒"
"""Shades of the coordinates that have the largest slices of a bar."""
_OTHERS: Final = "░"
_WIDTH: Final = 60
"""Characters of the longer bar."""

Row = Annotated[str | None, typer.Option("--row", help="A vector: '1,0,2', or JSON as in the API.")]
Names = Annotated[
    str | None, typer.Option("--names", help="A vector by names and weights: 'acid:2 ester'.")
]

Where = Annotated[str | None, typer.Option("--where", help="A filter as JSON, or values by key.")]
Score = Annotated[
    str,
    typer.Option(
        help="Kind of score, also of --min-score: gmm (Ruzicka, weighted Jaccard, count "
        "Tanimoto), bray_curtis, containment."
    ),
]


def vector_of(row: str | None, names: str | None) -> Any:
    """Return the vector in an option, None without one."""
    if names is not None:
        weights: dict[str, float] = {}
        for word in names.split():
            name, _, weight = word.rpartition(":") if ":" in word else (word, "", "1")
            try:
                weights[name] = weights.get(name, 0) + float(weight)
            except ValueError:
                usage(f"--names: expected name:number, got {word!r}")
        return weights
    if row is None:
        return None
    try:
        return json.loads(row if row.lstrip()[:1] in ("[", "{") else f"[{row}]")
    except ValueError:
        usage(f"--row: expected numbers separated by commas, or JSON, got {row!r:.60}")


def molecule_of(smiles: str, fingerprint: str | None) -> Any:
    """Return the counts of a SMILES; see `gcws_search.rdkit.counts`."""
    try:
        from gcws_search.rdkit import counts  # noqa: PLC0415  # of the extra `rdkit`
    except ImportError:
        fail("--smiles: expected RDKit, which reads SMILES; install gcws-search[rdkit]")
    return counts(smiles, fingerprint or "morgan:2")


@asking(cli, "query", epilog="Example: gcws-search query mnist --id 7 --where '{\"label\": 3}'")
def query(
    server: Server,
    name: Name,
    *,
    id_: Annotated[str | None, typer.Option("--id", help="Search around this item.")] = None,
    row: Row = None,
    names: Names = None,
    text: Annotated[
        str | None,
        typer.Option(
            "--text", help="A text, in a collection of texts; with --file, the text column."
        ),
    ] = None,
    smiles: Annotated[
        str | None,
        typer.Option(help="A molecule or reaction as SMILES, searched by its --fingerprint."),
    ] = None,
    fingerprint: Fingerprint = None,
    file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Search for each row of a file that `load` can read; columns are matched by the "
            "names of coordinates.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(parser=whole_number(), help="Maximum number of hits.")] = 10,
    offset: Annotated[int, typer.Option(parser=whole_number(), help="Number of hits to skip.")] = 0,
    group_by: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="Show the best hits for each value of a payload key; --limit counts values.",
        ),
    ] = None,
    group_size: Annotated[
        int, typer.Option(parser=whole_number(), help="With --group-by: number of hits per value.")
    ] = 1,
    recall: Recall = 0.9,
    min_score: Annotated[float, typer.Option(help="Leave out hits below this score.")] = 0.0,
    where: Where = None,
    score: Score = "gmm",
    explain: Annotated[bool, typer.Option("--explain", help="Show the cost of the query.")] = False,
    why: Annotated[
        bool, typer.Option("--why", help="Draw each score as a fraction of two bars.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Find the items most similar to an item, a vector, a text, or each row of a file."""
    given = (id_, row, names, smiles, text if file is None else file)
    if sum(each is not None for each in given) != 1:
        usage("expected one of --id, --row, --names, --text, --smiles and --file")
    condition = object_from(where, "--where")
    if file is not None:
        if explain or why or offset or group_by is not None:
            usage("--explain, --why, --offset and --group-by: expected one query, got --file")
        asked: dict[str, Any] = {"limit": limit, "recall": recall, "min_score": min_score}
        asked |= {"score": score, "where": condition}
        results = _query_rows(server.collection(name), file, text, fingerprint, asked)
        if not tell_rows(as_json, results):
            rows = [{"query": each["query"], **hit} for each in results for hit in each["hits"]]
            tell_rows(False, rows, ["query", "id", "score", "payload"], "no hits")
        return
    if smiles is None and fingerprint is not None:
        usage("expected --smiles with --fingerprint")
    vector = vector_of(row, names)
    collection = server.collection(name)
    if smiles is not None:
        vector = molecule_of(smiles, fingerprint_of(collection, fingerprint))
    hits = collection.query(
        vector,
        id=id_,
        text=text,
        limit=limit,
        offset=offset,
        group_by=group_by,
        group_size=group_size,
        recall=recall,
        min_score=min_score,
        where=condition,
        explain=explain,
        score=score,  # type: ignore[arg-type]  # what is none is refused
    )
    rows = [hit._asdict() for hit in hits]
    point = id_ if id_ is not None else vector if text is None else {"text": text}
    reasons = [collection.explain(point, hit.id, limit=len(_SLICES)) for hit in hits if why]
    for each in hits.hints:
        report(each)
    for hit, reason in zip(rows, reasons, strict=False):
        hit["why"] = reason.to_dict()
    is_text = any("text" in each for each in rows)
    columns = ["id", "score", *(["text"] if is_text else []), "payload"]
    tell_rows(as_json, rows, columns, "no hits")
    for hit, reason in zip([] if as_json else rows, reasons, strict=False):
        _draw(hit["id"], reason, score)
    if hits.explanation:
        tell(as_json, {"explain": dict(hits.explanation)}, cost_words(hits.explanation))


def cost_words(cost: Mapping[str, Any]) -> str:
    """Return a text on the cost of a query: method, rows read, expected recall, time."""
    method = cost["method"]
    how = {
        "graph": f"by the graph, {cost['beam']:,} wide",
        "tables": f"by {cost['bands']:,} hash tables, {cost['depth']} samples deep",
        "scan": "by a scan",
    }.get(method, f"by {method}")
    seen = f"{quantity(cost['candidates'], 'item')} looked at, {cost['scored']:,} scored exactly"
    seconds = in_words("seconds", float(cost["seconds"]))
    found = f"found {how}: {seen}; {cost['expected_recall']:.1%} recall expected; {seconds}"
    unknown = cost.get("unknown_names")
    return f"{found}; no item has {', '.join(map(repr, unknown))}" if unknown else found


def _draw(item_id: str, why: Explained, score: str) -> None:
    """Draw a score as a fraction: the shared part above the whole.

    The largest slices are those of the first coordinates, each in its own shade.
    """
    shared, total, words = _fraction(why, score)
    typer.echo(f"\n{in_words('', item_id)}: {words}")
    if total == 0:
        return
    places = [(each.label, *_parts(each, score)) for each in why.coordinates]
    if why.rest.coordinates:
        low, high = shared - sum(low for _, low, _ in places), total - sum(x for *_, x in places)
        places.append((f"{why.rest.coordinates:,} more", max(low, 0.0), max(high, 0.0)))
    shades = [*_SLICES[: len(why.coordinates)], _OTHERS]
    for amounts in ([low for _, low, _ in places], [high for _, _, high in places]):
        ends = [round(_WIDTH * end / total) for end in accumulate(amounts, initial=0)]
        lengths = [after - before for before, after in pairwise(ends)]
        typer.echo("  " + "".join(map(mul, shades, lengths)))
    for shade, (label, low, high) in zip(shades, places, strict=False):
        typer.echo(f"  {shade} {in_words('', str(label))}  {low:.4g} of {high:.4g}")


def _fraction(why: Explained, score: str) -> tuple[float, float, str]:
    """Return both parts of the fraction of a score, and words for them."""
    if score == "bray_curtis":
        both = why.shared + why.total
        return 2 * why.shared, both, f"2 × {why.shared:.4g} shared of {both:.4g} in both"
    if score == "containment":
        if why.shared == 0:
            return 0.0, 0.0, "nothing shared"
        query = why.shared / why.contained.a
        return why.shared, query, f"{why.shared:.4g} shared of {query:.4g} in the query"
    return why.shared, why.total, f"{why.shared:.4g} shared of {why.total:.4g}"


def _parts(share: Share, score: str) -> tuple[float, float]:
    """Return a coordinate's contributions to both parts of a fraction."""
    if score == "bray_curtis":
        return 2 * share.min, share.min + share.max
    return share.min, abs(share.a) if score == "containment" else share.max


def _query_rows(
    collection: Collection,
    path: str,
    text: str | None,
    fingerprint: str | None,
    asked: Mapping[str, Any],
) -> list[dict[str, Any]]:

    results: list[dict[str, Any]] = []
    hints: dict[str, None] = {}
    choices = Choices(text=text, fingerprint=fingerprint)
    with opened_for(path, collection, choices) as source:
        for items in source.items():
            rows = items.rows
            vectors: Any = None
            if rows.texts is None:
                vectors = [*rows.json()] if rows.dense is None else rows.dense
            with source.naming_rows(len(results)):
                found = collection.query_many(vectors, texts=rows.texts, with_payload=True, **asked)
            hints |= dict.fromkeys(found.hints)
            queries = items.texts() or range(len(results), len(results) + len(rows))
            assert found.payloads is not None
            for query, *columns in zip(
                queries, found.ids, found.scores, found.payloads, strict=True
            ):
                hits = [
                    {"id": item_id, "score": float(score), "payload": payload}
                    for item_id, score, payload in zip(*columns, strict=True)
                    if item_id is not None
                ]
                results.append({"query": query, "hits": hits})
    for hint in hints:
        report(hint)
    return results


@asking(cli, "find", epilog="Example: gcws-search find coffees ken --limit 5")
def find(
    server: Server,
    name: Name,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="Beginning of an id, or part of an id or payload.")
    ],
    *,
    limit: Annotated[
        int, typer.Option(parser=whole_number(), help="Maximum number of items.")
    ] = 20,
    as_json: Json = False,
) -> None:
    """Find items by a text in their ids and payloads."""
    found = server.collection(name).find(text, limit=limit)
    rows = [
        {"id": item.id, **({} if item.text is None else {"text": item.text})}
        | {"payload": item.payload}
        for item in found
    ]
    is_text = any("text" in each for each in rows)
    columns = ["id", *(["text"] if is_text else []), "payload"]
    tell_rows(as_json, rows, columns, f"no item has {text!r} in its id or payload")
    if not found.complete:
        report("the time was over before all items were looked at")


@asking(cli, "explain", epilog="Example: gcws-search explain coffees kenya brazil")
def explain(
    server: Server,
    name: Name,
    a: Annotated[str, typer.Argument(help="Id of an item.")],
    b: Annotated[str, typer.Argument(help="Id of another item.")],
    *,
    limit: Annotated[
        int, typer.Option(parser=whole_number(), help="Maximum number of coordinates.")
    ] = _SHARES,
    as_json: Json = False,
) -> None:
    """Show how much each coordinate contributes to the similarity of two items."""
    why = server.collection(name).explain(a, b, limit=limit)
    rows = [share._asdict() | {"coordinate": str(share.label)} for share in why.coordinates]
    words = f"score {why.score:.6g}: {why.shared:.6g} shared, of {why.total:.6g}"
    words += f"; {why.contained.a:.4g} of {a}, {why.contained.b:.4g} of {b}"
    if tell(as_json, why.to_dict(), words):
        return
    tell_rows(False, rows, ["coordinate", "a", "b", "min", "max"])
    if why.rest.coordinates:
        low, high = why.rest.min, why.rest.max
        typer.echo(f"{quantity(why.rest.coordinates, 'other')}: min {low:.4g}, max {high:.4g}")


@asking(cli, "compare", epilog="Example: gcws-search compare mnist --sample 50")
def compare(
    server: Server,
    name: Name,
    *,
    sample: Annotated[
        int, typer.Option(parser=whole_number(), help="Number of stored items to use as queries.")
    ] = 100,
    limit: Annotated[
        int, typer.Option(parser=whole_number(), help="Number of hits per query.")
    ] = 10,
    recall: Recall = 0.9,
    as_json: Json = False,
) -> None:
    """Compare the recall and cost of a collection's search methods."""
    compared = server.collection(name).compare(sample=sample, limit=limit, recall=recall)
    rows = [asdict(each) for each in compared.backends]
    if tell(as_json, {"backends": rows, "mean_similarity": compared.mean_similarity}):
        return
    for each in rows:
        each["p50_seconds"] = each["latency_p50_seconds"]
        each["p95_seconds"] = each["latency_p95_seconds"]
        each["candidates"] = round(each["candidates"])
        each["bytes_an_item"] = round(each["bytes_per_item"])
    columns = ["name", "recall", "p50_seconds", "p95_seconds", "candidates", "bytes_an_item"]
    tell_rows(False, rows, columns)


@asking(cli, "backends", epilog="Example: gcws-search backends mnist --attach nrff")
def backends(
    server: Server,
    name: Name,
    *,
    attach: Annotated[
        str | None, typer.Option(metavar="KIND", help="Attach a comparison backend of this kind.")
    ] = None,
    as_: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Name of the new backend.")
    ] = None,
    params: Annotated[
        str | None, typer.Option(metavar="JSON", help="Its parameters as JSON, as in the API.")
    ] = None,
    detach: Annotated[
        str | None, typer.Option(metavar="BACKEND", help="Drop a comparison backend.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the search methods of a collection, attach one to compare with, or drop one."""
    given = object_from(params, "--params")
    if attach is not None and detach is not None:
        usage("expected one of --attach and --detach")
    if attach is None and (as_ is not None or params is not None):
        usage("expected --attach with --as and --params")
    collection = server.collection(name)
    if attach is not None:
        collection.attach(attach, name=as_, params=given)
    if detach is not None:
        collection.detach(detach)
    rows = collection.describe()["backends"]
    tell_rows(as_json, rows, ["name", "kind", "primary", "status", "build_seconds"])


@asking(cli, "recall", epilog="Example: gcws-search recall mnist")
def recall(server: Server, name: Name, *, as_json: Json = False) -> None:
    """Show requested and found recall of audited queries."""
    audits = server.collection(name).audits()
    if not tell(as_json, audits):
        columns = ["week", "recall", "limit", "queries", "found", "low", "high"]
        if audits["audited"]:
            tell_rows(False, audits["audited"], columns)
        else:
            typer.echo(f"No query of {name} has been audited yet.")
        typer.echo(f"{audits['waiting']:,} queries wait")
