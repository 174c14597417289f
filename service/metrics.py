"""What the service counts, as Prometheus reads it; one registry an application."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import Scope

from index import Summary

_BUCKETS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30,
)  # fmt: skip
_METHODS: Final = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"})


class _Collections(Collector):
    """Sizes of the collections, read when asked for."""

    def __init__(self, summaries: Callable[[], Iterable[Summary]]) -> None:
        self._summaries = summaries

    def describe(self) -> list[Any]:
        """Name nothing in advance, so that registering reads nothing."""
        return []

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Yield a gauge a quantity."""
        items = GaugeMetricFamily("gcws_items", "Items stored.", labels=["collection"])
        disk = GaugeMetricFamily("gcws_disk_bytes", "Bytes on disk.", labels=["collection"])
        memory = GaugeMetricFamily("gcws_memory_bytes", "Bytes in memory.", labels=["collection"])
        for summary in self._summaries():
            items.add_metric([summary.name], summary.items)
            disk.add_metric([summary.name], summary.bytes_on_disk)
            memory.add_metric([summary.name], summary.bytes_in_memory)
        return items, disk, memory


class Metrics:
    """Counters of one application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Histogram(
            "gcws_request_seconds", "Time to answer, by route, method and status.",
            ["route", "method", "status"], buckets=_BUCKETS, registry=self.registry,
        )  # fmt: skip
        self._children: dict[tuple[str, str, int], Histogram] = {}
        searches = Counter("gcws_searches", "Queries answered.", ["method"], registry=self.registry)
        self._searches = searches
        self._candidates = Counter(
            "gcws_candidates", "Rows found by searches.", registry=self.registry
        )
        self._scored = Counter(
            "gcws_scored", "Exact similarities computed by searches.", registry=self.registry
        )
        self._search_children: dict[str, Counter] = {}
        self.loaded_rows = Counter(
            "gcws_loaded_rows", "Rows committed by loads.", registry=self.registry
        )
        self._ready = Gauge(
            "gcws_ready", "1 once all collections are loaded.", registry=self.registry
        )

    def observe(self, scope: Scope, status: int, seconds: float) -> None:
        """Count one request by its route's pattern."""
        route = scope.get("route")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        key = (getattr(route, "path", "unmatched"), method, status)
        child = self._children.get(key)
        if child is None:
            child = self._requests.labels(key[0], key[1], str(key[2]))
            self._children[key] = child
        child.observe(seconds)

    def searched(self, method: str, candidates: int, scored: int) -> None:
        """Count one query."""
        child = self._search_children.get(method)
        if child is None:
            child = self._search_children[method] = self._searches.labels(method)
        child.inc()
        self._candidates.inc(candidates)
        self._scored.inc(scored)

    def watch(
        self, summaries: Callable[[], Iterable[Summary]], is_ready: Callable[[], bool]
    ) -> None:
        """Report the sizes of these collections too, and whether they are all loaded."""
        self.registry.register(_Collections(summaries))
        self._ready.set_function(is_ready)

    def text(self) -> bytes:
        """Return everything in Prometheus' text form."""
        return generate_latest(self.registry)
