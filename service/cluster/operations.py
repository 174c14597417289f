"""What routers ask shards of a collection: each shard's answer, and the answers of all as one.

`OPERATIONS` and `LONG` have a row for each message about a collection's items;
`sharded_operation` adds its own.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar

import numpy as np

from gcws_search import index as ix
from gcws_search.service.cluster.committer import Committer
from gcws_search.service.cluster.contract import (
    CollectionRow,
    bucket_of,
    decode_filter,
    encode_filter,
)
from gcws_search.service.cluster.search import answer_search, encode_stored_vectors, weighted_mean
from gcws_search.service.errors import ShardUnavailable
from gcws_search.service.messages import (
    Message,
    blobs_of,
    decode_names,
    decode_sparse,
    decode_texts,
    decode_vectors,
    encode,
    encode_names,
    encode_sparse,
    encode_texts,
    encode_vectors,
)

if TYPE_CHECKING:  # a shard needs no HTTP client
    from gcws_search.service.cluster.shards import RouterContext

P = ParamSpec("P")
T = TypeVar("T")

Answer = Callable[[ix.StoredCollection, Message], Message]
Heads = Sequence[dict[str, Any]]
Pair = tuple[str, str, float]
Sampled = tuple[int, int, ix.Filter | None]
Method: TypeAlias = Callable[Concatenate[ix.StoredCollection, P], T]
Operation: TypeAlias = "Callable[Concatenate[ClusterOperations, P], T]"


# Items


def _answer_rows(collection: ix.StoredCollection, asked: Message) -> Message:
    """Return items: of those ids, those that pass a filter, beyond a key, or drawn at random."""
    head, memory = asked.head, collection.memory
    view, rows = memory.view, None
    if head.get("ids") is not None:
        view, rows = memory.locate_all(head["ids"])
    permitted = memory.mask(view, decode_filter(head.get("filter")))
    if rows is not None:
        among, permitted = permitted, np.zeros_like(permitted)
        permitted[rows] = among[rows]
    sample, limit = head.get("sample"), head.get("limit")
    if sample is not None:
        every = np.flatnonzero(permitted)
        draw = np.random.default_rng(head["seed"]).choice
        found = np.sort(draw(every, min(sample, len(every)), replace=False))
    else:
        count = len(view) if limit is None else limit
        found = view.page(permitted, after=head.get("after", 0), limit=count)
    ids = [view.ids[row] for row in found.tolist()]
    blobs = [view.sequences[found].tobytes(), *encode_names(ids)]
    if not head.get("with_vector"):
        return Message({}, blobs)
    payloads = [view.payloads[row] for row in found.tolist()]
    shape, more = encode_stored_vectors(collection, view, found, ids)
    return Message({"vectors": shape}, [*blobs, *encode_texts(payloads), *more])


def decode_keys(answer: Message) -> list[int]:
    """Return the keys of the rows that a shard names."""
    keys: list[int] = np.frombuffer(answer.blobs[0], np.int64).tolist()
    return keys


def decode_ids(answer: Message) -> list[str]:
    """Return the ids of the rows that a shard names."""
    return decode_names(*answer.blobs[1:3])


def decode_items(answer: Message) -> tuple[list[int], ix.ItemBatch]:
    """Return the items that a shard sends, and their keys; without those deleted since."""
    blobs, shape = answer.blobs, answer.head["vectors"]
    keys, ids, payloads = decode_keys(answer), decode_ids(answer), decode_texts(*blobs[3:5])
    vectors = decode_vectors(shape, blobs[5:])
    if shape["missing"]:
        there = sorted({*range(len(ids))} - {*shape["missing"]})
        vectors = vectors[np.array(there, np.int64)]
        keys = [keys[place] for place in there]
        ids, payloads = [ids[place] for place in there], [payloads[place] for place in there]
    return keys, ix.ItemBatch(ids, vectors, payloads)


# Pairs


def _answer_pairs(
    collection: ix.StoredCollection, asked: Message, *, stop: threading.Event | None
) -> Message:
    head = asked.head
    found = collection.pairs(
        min_score=head["min_score"], recall=head["recall"], limit=head.get("limit"), stop=stop
    )
    first, second = encode_names([a for a, _, _ in found]), encode_names([b for _, b, _ in found])
    scores = np.array([score for _, _, score in found], np.float64)
    return Message({}, [*first, *second, scores.tobytes()])


def decode_pairs(answer: Message) -> Iterator[Pair]:
    """Yield the pairs within a shard."""
    first, second = decode_names(*answer.blobs[:2]), decode_names(*answer.blobs[2:4])
    yield from zip(first, second, np.frombuffer(answer.blobs[4]).tolist(), strict=True)


# Comparisons


def comparison_message(
    queries: Sequence[ix.RawBatch | ix.SparseVector],
    params: ix.SearchParams,
    backends: Sequence[str] | None,
    skip: Sequence[str],
) -> Message:
    """Return what a comparison asks; see `StoredCollection.compare`."""
    parts: list[dict[str, Any]] = []
    blobs: list[bytes | memoryview] = []
    for part in queries:
        if isinstance(part, ix.SparseVector):
            parts.append({"unknown": encode_sparse(part)})
        else:
            said, more = encode_vectors(part)
            parts.append(said)
            blobs += more
    names = None if backends is None else [*backends]
    head = {"queries": parts, "skip": [*skip], "params": asdict(params), "backends": names}
    return Message(head, blobs)


def _answer_comparison(
    collection: ix.StoredCollection, asked: Message, *, stop: threading.Event | None
) -> Message:
    head, blobs = asked.head, [*asked.blobs]
    queries: list[ix.RawBatch | ix.SparseVector] = []
    for part in head["queries"]:
        if (unknown := part.get("unknown")) is not None:
            queries.append(decode_sparse(unknown))
        else:
            queries.append(decode_vectors(part, blobs))
            del blobs[: blobs_of(part)]
    found = collection.compare(
        queries,
        ix.SearchParams(**head["params"]),
        backends=head["backends"],
        skip=head["skip"],
        stop=stop,
    )
    backends = [asdict(each) for each in found.backends]
    return Message({"backends": backends, "shape": found.best.shape}, [found.best.tobytes()])


# Latencies and build times are those of the slowest shard.
_MERGED_COLUMNS: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "recall": np.mean,
    "recall_own": np.mean,
    "latency_p50_seconds": max,
    "latency_p95_seconds": max,
    "candidates": sum,
    "bytes_per_item": np.mean,
    "build_seconds": max,
}


def merge_comparisons(answers: Sequence[Message], limit: int) -> ix.Comparison:
    """Return what backends found for the same queries, each shard among its own items."""
    named = _by_name(answer.head["backends"] for answer in answers)
    every = [np.frombuffer(answer.blobs[0]).reshape(answer.head["shape"]) for answer in answers]
    best = np.sort(np.concatenate(every, axis=1), axis=1)[:, -limit:]
    return ix.Comparison([_merge_comparison(each) for each in named.values()], best)


def _merge_comparison(parts: Heads) -> ix.BackendComparison:
    values: dict[str, Any] = {}
    for each in fields(ix.BackendComparison):
        column = [part[each.name] for part in parts]
        merge = _MERGED_COLUMNS.get(each.name)
        values[each.name] = column[0] if merge is None else float(merge(column))
    return ix.BackendComparison(**values)


# Descriptions


def _answer_describe(collection: ix.StoredCollection, _: Message) -> Message:
    found = collection.describe()
    names = ("items", "rows", "bytes_in_memory", "bytes_mapped", "bytes_on_disk", "versions")
    head: dict[str, Any] = {name: getattr(found, name) for name in names}
    return Message(head | {"backends": [asdict(each) for each in found.backends]})


def _by_name(parts: Iterable[Heads]) -> dict[str, list[dict[str, Any]]]:
    """Return what shards say of backends, by the names of these."""
    named: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        for each in part:
            named.setdefault(each["name"], []).append(each)
    return named


def total(parts: Iterable[dict[str, Any]], name: str) -> int:
    """Return the sum of a count over shards."""
    return sum(int(part[name]) for part in parts)


def merge_backends(parts: Sequence[Heads]) -> list[ix.BackendDescription]:
    """Return the backends of shards by name, in the first shard's order."""
    named = _by_name(parts)
    found = []
    for same in named.values():
        is_ready = len(same) == len(parts) and all(one["status"] == "ready" for one in same)
        merged = {
            "status": "ready" if is_ready else "building",
            "progress": min(one["progress"] for one in same),
            "bytes_in_memory": total(same, "bytes_in_memory"),
            "build_seconds": max(one["build_seconds"] for one in same),
            "stats": merge_stats([one["stats"] for one in same]),
        }
        first = {each.name: same[0][each.name] for each in fields(ix.BackendDescription)}
        found.append(ix.BackendDescription(**first | merged))
    return found


# Statistics whose sum is that of all shards; other numbers are the same on all, or means.
_COUNTED: Final = {
    "bytes",
    "delta_rows",
    "feature_bytes",
    "made_for_rows",
    "map_bytes",
    "parameter_bytes",
    "postings_bytes",
    "rows",
    "rows_better_scanned",
    "table_bytes",
}


def merge_stats(parts: Heads) -> dict[str, Any]:
    """Return statistics of shards as one: sums of counts, means of other numbers."""
    found: dict[str, Any] = {}
    for name, first in parts[0].items():
        values = [part[name] for part in parts if name in part]
        kinds = {type(value) for value in values}
        if name in _COUNTED and kinds <= {int, float}:
            found[name] = sum(values)
        elif len({*map(str, values)}) == 1:
            found[name] = first
        elif kinds <= {int, float}:
            found[name] = sum(values) / len(values)
        elif kinds == {dict}:
            found[name] = merge_stats(values)
        else:
            found[name] = first
    return found


# Operations over a cluster, in one of three ways


def sharded_operation(
    method: Method[P, T], show: Callable[[T], dict[str, Any]], merge: Callable[[Heads], T]
) -> Operation[P, T]:
    """Return an operation that each shard does on its own items alone.

    The message has the method's name and arguments; ``show`` makes a shard's result JSON-able.
    """
    name, signature = method.__name__, inspect.signature(method)

    def answer(collection: ix.StoredCollection, asked: Message) -> Message:
        arguments = {each: asked.head[each] for each in [*signature.parameters][1:]}
        return Message(show(getattr(collection, name)(**arguments)))

    def ask(self: ClusterOperations, /, *args: P.args, **kwargs: P.kwargs) -> T:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        arguments = dict([*bound.arguments.items()][1:])
        return merge([each.head for each in self.ask(name, **arguments)])

    OPERATIONS[name] = answer
    return _named(ask, method)


def vector_operation(method: Method[P, T], *points: str) -> Operation[P, T]:
    """Return an operation on vectors alone, which a collection without items does.

    Arguments named by ``points`` may be ids: the vectors of these items are read.
    """
    signature = inspect.signature(method)

    def do(self: ClusterOperations, /, *args: P.args, **kwargs: P.kwargs) -> T:
        bound = signature.bind(self.empty, *args, **kwargs)
        for name in points:
            bound.arguments[name] = self.vector_of(bound.arguments[name])
        return method(*bound.args, **bound.kwargs)

    return _named(do, method)


def sample_operation(
    method: Method[P, T],
    # returns how many items, by which seed, and which of them, of the operation's arguments
    draw: Callable[P, Sampled],
    *,
    # argument with vectors and ids: the vectors of items beside the sample are read
    points: str | None = None,
    count_all: Callable[[T, int], T] | None = None,  # puts the number of all items into the result
) -> Operation[P, T]:
    """Return an operation on a sample of the items, which is drawn from all shards."""
    signature = inspect.signature(method)

    def do(self: ClusterOperations, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.lend_sample(*draw(*args, **kwargs)) as sample:
            bound = signature.bind(sample, *args, **kwargs)
            if points is not None:
                bound.arguments[points] = [
                    self.vector_of(each, sample) for each in bound.arguments.get(points, ())
                ]
            result = method(*bound.args, **bound.kwargs)
        return result if count_all is None else count_all(result, self.database.count(self.number))

    return _named(do, method)


def _named(operation: Operation[P, T], method: Method[P, T]) -> Operation[P, T]:
    """Give an operation the name of its method, and what is said of it."""
    for name in ("__name__", "__qualname__", "__doc__"):
        setattr(operation, name, getattr(method, name))
    return operation


def _draw_for_map(
    params: ix.MapParams, where: ix.Filter | None = None, also: Sequence[Any] = ()
) -> Sampled:
    del also
    return params.sample, params.seed, where


def _draw_for_profile(sample: int = ix.PROFILE_SAMPLE, seed: int = 0) -> Sampled:
    return sample, seed, None


def _merge_curves(parts: Heads) -> ix.CostCurve:
    """Return what recall costs on all shards together: at equal recall, the sum of their costs."""
    limit = parts[0]["limit"]
    reasons = [part["reason"] for part in parts if part["reason"] is not None]
    rows, holds = total(parts, "rows"), all(part["holds"] for part in parts)
    if reasons:
        return ix.CostCurve(limit, rows=rows, holds=holds, reason=reasons[0])
    columns = [np.array(part["points"], np.float64).T for part in parts]
    low = max(recalls[0] for recalls, _, _ in columns)
    high = min(recalls[-1] for recalls, _, _ in columns)
    at = [float(recall) for recall in columns[0][0] if low <= recall <= high] or [float(high)]
    sums = [sum(np.interp(at, each[0], each[column]) for each in columns) for column in (1, 2)]
    points = tuple(map(ix.CurvePoint, at, *(np.asarray(each).tolist() for each in sums)))
    scanned = [1.0 if part["scanned_from"] is None else part["scanned_from"] for part in parts]
    every = None if max(scanned) == 1 else max(scanned)
    return ix.CostCurve(limit, points, rows, holds, scanned_from=every)


def _merge_audits(parts: Heads) -> ix.AuditedQueries:
    allowance: dict[int | None, float] = {}
    for part in parts:
        for limit, share in part["allowance"]:
            allowance[limit] = max(allowance.get(limit, 0.0), share)
    results = merge_audited_recall([part["results"] for part in parts])
    return ix.AuditedQueries(results, [*allowance.items()], total(parts, "waiting"))


def merge_audited_recall(parts: Iterable[Heads]) -> list[ix.AuditedRecall]:
    """Return what audited queries found; the interval is that of the shards' weighted mean."""
    asked: dict[tuple[str, float, int], list[dict[str, Any]]] = {}
    for part in parts:
        for each in part:
            asked.setdefault((each["week"], each["recall"], each["limit"]), []).append(each)
    found = []
    for lines in asked.values():
        counts = np.array([line["queries"] for line in lines])
        means = np.array([line["found"] for line in lines])
        mean = weighted_mean(means, counts)
        sides = [
            float(np.sqrt((((counts / counts.sum()) * gap) ** 2).sum()))
            for gap in (
                means - np.array([line["low"] for line in lines]),
                np.array([line["high"] for line in lines]) - means,
            )
        ]
        low, high = max(0.0, mean - sides[0]), min(1.0, mean + sides[1])
        together = {"queries": int(counts.sum()), "found": mean, "low": low, "high": high}
        found.append(ix.AuditedRecall(**lines[0] | together))
    return found


OPERATIONS: Final[dict[str, Answer]] = {
    "search": answer_search,
    "count": lambda collection, asked: Message(
        {"count": collection.count(decode_filter(asked.head.get("filter")))}
    ),
    "rows": _answer_rows,
    "describe": _answer_describe,
    "summary": lambda collection, _: Message(asdict(collection.summary())),
}
LONG: Final[dict[str, Callable[..., Message]]] = {
    "pairs": _answer_pairs,
    "compare": _answer_comparison,
}
"""Those that may compute for minutes, and look whether they are still waited for (``stop``)."""


class ClusterOperations:
    """A collection as its shards answer for it; messages ask for its state after the last write.

    A row, such as `curve`, is all that a cluster needs of an operation that each shard does on its
    own items alone, that takes vectors alone, or that looks at a sample.
    """

    def __init__(self, row: CollectionRow, context: RouterContext) -> None:
        self.number = row.number
        self.name = row.name
        self.config = ix.CollectionConfig.from_dict(row.config)
        self.context = context
        self.database = context.database
        self.shards = context.shards
        self.empty = self._in_memory()  # the collection without items
        # of the collection's writes; each change goes to the shards
        buckets = self.database.buckets
        self.committer = Committer(
            self.database,
            row.number,
            row.name,
            lambda change: self.shards.publish(self.number, change, buckets),
        )

    def _in_memory(self, threads: int | None = None) -> ix.StoredCollection:
        """Return a collection of no items, in memory wherever the shards have their vectors."""
        config = replace(self.config, storage="memory")
        return ix.StoredCollection.in_memory(self.name, config, threads=threads)

    def head(self, method: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the head of a message about this collection."""
        return {
            "method": method,
            "collection": self.number,
            "at": self.committer.last.key,
            "since": self.committer.last.epoch,
            "epoch": self.shards.epoch,
            "seconds": self.shards.seconds,
            **more,
        }

    def ask(
        self,
        method: str,
        seconds: float | None = None,
        stop: threading.Event | None = None,
        blobs: Sequence[bytes | memoryview] = (),
        **more: Any,  # noqa: ANN401
    ) -> list[Message]:
        """Return each shard's answer; called in a thread."""
        message = Message(self.head(method, **more), blobs)
        try:
            return self.shards.wait(self.shards.ask_all(message, seconds), stop)
        except ix.CollectionNotFound:
            raise self.not_found() from None

    def ask_some(self, method: str) -> tuple[list[Message], list[int]]:
        """Return the answers of the shards that answer, and the others; called in a thread."""
        data = [encode(Message(self.head(method)))] * len(self.shards)
        try:
            return self.shards.wait(self.shards.ask_some(data))
        except ShardUnavailable as error:
            return [], [*error.missing]
        except ix.CollectionNotFound:
            raise self.not_found() from None

    def not_found(self) -> Exception:
        """Return why shards do not know the collection: it was dropped, or replaced just now."""
        is_replaced = self.database.find(self.name) is not None
        return (ix.CollectionLoading if is_replaced else ix.CollectionNotFound)(self.name)

    def refresh_backends(self) -> list[Message]:
        """Make all replicas read the list of comparison backends; return their answers."""
        return self.shards.wait(self.shards.tell(Message(self.head("refresh"))))

    async def fetch(self, item_id: str, more: dict[str, Any]) -> ix.ItemBatch:
        """Return an item, or an empty batch, from the shard that has it; the head says ``more``."""
        head = self.head("rows", ids=[item_id], with_vector=True) | more
        count = len(self.shards)
        shard = bucket_of(item_id, self.database.buckets) % count
        return decode_items(await self.shards.ask(shard, count, encode(Message(head))))[1]

    def vector_of(self, point: Any, sample: ix.StoredCollection | None = None) -> Any:  # noqa: ANN401
        """Return a vector as it is, and the vector of an item for its id.

        The id of an item of ``sample`` stays: it is left out of its own neighbours.
        """
        if not isinstance(point, str):
            return point
        if sample is not None and sample.memory.locate(point)[1] is not None:
            return point
        row = self.database.fetch(self.number, [point]).get(point)
        if row is None:
            raise ix.ItemNotFound(point)
        raw = self.empty.space.from_blobs([row.vector])
        if raw.form == "dense":
            return raw.dense[0]
        return ix.SparseVector(raw.indices.astype(np.int64), raw.values)

    @contextmanager
    def lend_sample(
        self, count: int, seed: int, where: ix.Filter | None
    ) -> Iterator[ix.StoredCollection]:
        """Lend a collection in memory that has some of the items."""
        items = self.sample(count, seed, where)
        sample = self._in_memory(self.context.threads)
        try:
            sample.names.load(self.empty.names.listed())
            if len(items):
                sample.put(items)
            yield sample
        finally:
            sample.close(dropped=True)

    def sample(self, count: int, seed: int, where: ix.Filter | None) -> ix.ItemBatch:
        """Return ``count`` items that pass a filter, drawn at random, in the order of keys."""
        text = encode_filter(where)
        counts = [int(answer.head["count"]) for answer in self.ask("count", filter=text)]
        rng = np.random.default_rng(abs(seed))
        shares = rng.multivariate_hypergeometric(counts, min(max(count, 0), sum(counts)))
        head = self.head("rows", filter=text, seed=abs(seed), with_vector=True)
        questions = [Message(head | {"sample": int(share)}) for share in shares]
        answers = self.shards.wait(self.shards.ask_all(questions))
        keys, parts = zip(*map(decode_items, answers), strict=True)
        order = np.argsort(np.concatenate(keys))
        found = ix.ItemBatch.concatenate(parts)
        return ix.ItemBatch(
            [found.ids[place] for place in order.tolist()],
            found.vectors[order],
            [found.payloads[place] for place in order.tolist()],
        )

    curve = sharded_operation(
        ix.StoredCollection.curve,
        lambda found: asdict(found) | {"points": [[*each] for each in found.points]},
        _merge_curves,
    )
    audited = sharded_operation(
        ix.StoredCollection.audited,
        lambda found: found._asdict() | {"results": [asdict(each) for each in found.results]},
        _merge_audits,
    )
    explain = vector_operation(ix.StoredCollection.explain, "a", "b")
    sketch = vector_operation(ix.StoredCollection.sketch)
    map_items = sample_operation(ix.StoredCollection.map_items, _draw_for_map, points="also")
    profile = sample_operation(
        ix.StoredCollection.profile,
        _draw_for_profile,
        count_all=lambda profile, items: replace(profile, items=items),
    )
