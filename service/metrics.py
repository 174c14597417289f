"""The service's metrics in the format of Prometheus; one registry per application.

Requests and searches are counted in plain lists, and Prometheus metrics are built from them at each
scrape. The client library's counters take a lock for each bucket of a histogram, which costs more
than the rest of the counting.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, repeat
from operator import add
from typing import Any, Final, TypeAlias

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.types import Scope

from gcws_search.index import COMMIT_BOUNDS, Summary, Total
from gcws_search.version import program_version

COUNTED: Final = "gcws.counted"
"""In the scope of a request that another process has counted."""
_BUCKETS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30,
)  # fmt: skip
_BOUNDS: Final = (*map(str, _BUCKETS), "+Inf")
_COMMIT_BOUNDS: Final = (*map(str, COMMIT_BOUNDS), "+Inf")
_METHODS: Final = frozenset({"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"})


_WORK: Final = {
    "gcws_searches": "Queries answered.",
    "gcws_candidates": "Rows found by searches.",
    "gcws_scored": "Exact similarities computed by searches.",
    "gcws_expected_recall": "Sum over queries of the recall bound each reached: proven, or as "
    "measured.",
}
"""What searches of one method cost, in the order of `Total`."""
_SIZES: Final = {
    "gcws_items": "Items stored.",
    "gcws_disk_bytes": "Bytes on disk.",
    "gcws_memory_bytes": "Bytes in memory.",
}
_AUDITS: Final = {
    "gcws_recall_measured": "Mean recall of this week's queries that were answered exactly as "
    "well.",
    "gcws_recall_asked": "What these queries asked for.",
    "gcws_recall_upper": "Upper end of the 95 per cent confidence interval of "
    "gcws_recall_measured.",
    "gcws_audited_queries": "This week's queries that were answered exactly as well.",
}
Gauges = Mapping[tuple[str, str], float]
"""Present values by name and pool; no pool is ""."""
_GAUGES: Final = {
    "gcws_queue": "Calls that run or wait for a thread, by pool.",
    "gcws_queue_limit": "Calls that may run or wait; more are refused.",
    "gcws_requests_under_way": "Requests not yet answered.",
    "gcws_held_bytes": "Bytes of bodies being worked on.",
    "gcws_resident_bytes": "Memory of the process.",
    "gcws_memory_limit_bytes": "Memory that the process may have, by its container or machine.",
    "gcws_disk_used_ratio": "Share of the data folder's file system that is used.",
}


RouteCounts: TypeAlias = Sequence[Any]
"""Route, method, status; requests of these by bucket, a list; seconds of all of them."""


class Metrics(Collector):
    """Counters of one application.

    Requests and loads are counted on its event loop alone, searches from any thread.
    """

    def __init__(self) -> None:
        self._times: dict[tuple[str, str, int], list[float]] = {}
        """Requests by bucket, then their seconds; by route, method and status."""
        self._work: dict[str, list[float]] = {}
        """As `_WORK` names it, by method."""
        self._searching = threading.Lock()
        self._loaded_rows = 0
        self._fronts: dict[object, tuple[int, int]] = {}
        self._summaries: Callable[[], Iterable[Summary]] = list
        self._is_ready: Callable[[], bool] = bool
        self._gauges: Callable[[], Gauges] = dict
        self._registry = CollectorRegistry()
        self._registry.register(self)
        for standard in (ProcessCollector, PlatformCollector, GCCollector):
            standard(registry=self._registry)

    def observe(self, scope: Scope, status: int, seconds: float) -> None:
        """Count one request by its route's pattern, unless its scope has `COUNTED`."""
        if COUNTED in scope:
            return
        method = scope["method"] if scope["method"] in _METHODS else "other"
        key = (getattr(scope.get("route"), "path", "unmatched"), method, status)
        times = self._times.get(key)
        if times is None:
            times = self._times[key] = [0] * (len(_BOUNDS) + 1)
        times[bisect_left(_BUCKETS, seconds)] += 1
        times[-1] += seconds

    def take(self) -> list[RouteCounts]:
        """Return the counts of requests, and reset them."""
        taken, self._times = self._times, {}
        return [(*key, [*map(int, counts)], seconds) for key, (*counts, seconds) in taken.items()]

    def add(self, counted: Iterable[RouteCounts]) -> None:
        """Add counts of another process."""
        for route, method, status, counts, seconds in counted:
            more = [*counts, seconds]
            times = self._times.get((route, method, status), [0] * len(more))
            self._times[route, method, status] = [*map(sum, zip(times, more, strict=True))]

    def report_front(self, front: object, requests: int, held_bytes: int) -> None:
        """Record the running requests and held bytes of a front."""
        self._fronts[front] = requests, held_bytes

    def forget_front(self, front: object) -> None:
        """Record that a front has ended."""
        self._fronts.pop(front, None)

    def count_searches(self, totals: Iterable[Total]) -> None:
        """Count queries."""
        with self._searching:
            for method, *numbers in totals:
                work = self._work.get(method, repeat(0))
                self._work[method] = [*map(add, work, numbers)]

    def count_load(self, rows: int) -> None:
        """Count rows committed by a load."""
        self._loaded_rows += rows

    def watch(
        self,
        summaries: Callable[[], Iterable[Summary]],
        is_ready: Callable[[], bool],
        gauges: Callable[[], Gauges],
    ) -> None:
        """Also report these collections' sizes, whether all are loaded, and queue lengths."""
        self._summaries = summaries
        self._is_ready = is_ready
        self._gauges = gauges

    def register(self, collector: Collector) -> None:
        """Also report the metrics of another collector."""
        self._registry.register(collector)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def describe(self) -> list[Any]:
        """Return no names, so that registering reads nothing."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics."""
        build = GaugeMetricFamily("gcws_build_info", "The service.", labels=["version"])
        build.add_metric([program_version()], 1)
        yield build
        yield self._requests()
        yield from self._searches()
        yield CounterMetricFamily(
            "gcws_loaded_rows", "Rows committed by loads.", value=self._loaded_rows
        )
        yield GaugeMetricFamily(
            "gcws_ready", "1 once all collections are loaded.", value=float(self._is_ready())
        )
        yield from self._sizes()
        yield from self._now()

    def _requests(self) -> Metric:
        family = HistogramMetricFamily(
            "gcws_request_seconds",
            "Time to answer, by route, method and status.",
            labels=["route", "method", "status"],
        )
        for (route, method, status), (*counts, seconds) in self._times.copy().items():
            buckets = list(zip(_BOUNDS, map(float, accumulate(counts)), strict=True))
            family.add_metric([route, method, str(status)], buckets, seconds)
        return family

    def _searches(self) -> Iterable[Metric]:
        families = [
            CounterMetricFamily(name, text, labels=["method"]) for name, text in _WORK.items()
        ]
        for method, work in self._work.copy().items():
            for family, value in zip(families, work, strict=True):
                family.add_metric([method], value)
        return families

    def _sizes(self) -> Iterable[Metric]:
        commits = HistogramMetricFamily(
            "gcws_commit_seconds", "Time of commits to the disk.", labels=["collection"]
        )
        sizes = [GaugeMetricFamily(name, _SIZES[name], labels=["collection"]) for name in _SIZES]
        audits = [
            GaugeMetricFamily(name, text, labels=["collection", "recall", "limit"])
            for name, text in _AUDITS.items()
        ]
        for summary in self._summaries():
            for each in summary.audited:
                labels = [summary.name, str(each.recall), str(each.limit)]
                found = each.found, each.recall, each.high, each.queries
                for family, value in zip(audits, found, strict=True):
                    family.add_metric(labels, value)
            counts = map(float, accumulate(summary.commit_counts))
            buckets = [*zip(_COMMIT_BOUNDS, counts, strict=True)]
            commits.add_metric([summary.name], buckets, summary.commit_seconds)
            held = summary.items, summary.bytes_on_disk, summary.bytes_in_memory
            for family, size in zip(sizes, held, strict=True):
                family.add_metric([summary.name], size)
        return *sizes, commits, *audits

    def _now(self) -> Iterable[Metric]:
        families: dict[str, GaugeMetricFamily] = {}
        gauges = dict(self._gauges())
        # A front's requests also run here; its last report may be older.
        for place, name in enumerate(("gcws_requests_under_way", "gcws_held_bytes")):
            of_fronts = sum(front[place] for front in [*self._fronts.values()])
            gauges[name, ""] = max(of_fronts, gauges.get((name, ""), 0))
        for (name, pool), value in gauges.items():
            if name not in families:
                labels = ["pool"] if pool else []
                families[name] = GaugeMetricFamily(name, _GAUGES[name], labels=labels)
            families[name].add_metric([pool] if pool else [], value)
        return families.values()
