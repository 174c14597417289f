"""Audit of recall: some queries are also answered exactly, and the hits are compared.

Queries are sampled at random when they are answered, and wait in memory for a background thread
that searches exactly. Their vectors are never written to disk.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from math import inf, log1p
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import orjson

from gcws_search.index.backends import Policies
from gcws_search.index.collection.items import QueryResults, View
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.writer import Writer
from gcws_search.index.contracts.arrays import Float64s, Int64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.errors import StoreError
from gcws_search.index.contracts.hits import METHOD, SCAN
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.contracts.saved_index import count_of, fields_of, list_of, number_of
from gcws_search.index.payload import Filter
from gcws_search.index.storage.store import Store
from gcws_search.index.threads import BackgroundTask

_log = logging.getLogger(__name__)

_DEVIATIONS: Final = 1.96
"""Standard errors on each side of a mean that make an interval of 95 per cent."""
_SAVE_SECONDS: Final = 60.0
"""Between two commits of results, at least."""
_ROUNDING: Final = 1e-9
_MAX_TALLIES: Final = 4096
"""Greatest number of tallies; the first are forgotten."""
_MAX_COUNT: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class AuditedRecall:
    """Result of the audited queries of one week that had the same parameters.

    week: by ISO 8601, in UTC: "2026-W47".
    recall, limit: as requested.
    found: mean recall of these queries.
    low, high: its 95 per cent confidence interval, within 0 and 1.
    """

    week: str
    recall: float
    limit: int
    queries: int
    found: float
    low: float
    high: float


class AuditedQueries(NamedTuple):
    """Requested recall compared with measured recall.

    results: one entry for each week, recall and limit.
    allowance: by limit, the share of the allowed misses that searches aim at.
    waiting: number of queries that are not answered exactly yet.
    """

    results: list[AuditedRecall]
    allowance: list[tuple[int | None, float]]
    waiting: int

    def to_dict(self) -> dict[str, Any]:
        """Return the results in the form of the API."""
        allowance = [{"limit": limit, "share": share} for limit, share in self.allowance]
        audited = [*map(asdict, self.results)]
        return {"audited": audited, "allowance": allowance, "waiting": self.waiting}


_Asked: TypeAlias = tuple[str, float, int]
"""What all queries of one tally asked for: the week, recall and limit."""
_Sums: TypeAlias = tuple[int, float, float]
"""How many queries, what they found in all, and the sum of its squares."""


def _result(asked: _Asked, sums: _Sums) -> AuditedRecall:
    queries, found, squares = sums
    mean = found / queries
    # The variance of a few queries with equal results understates the uncertainty.
    variance = max(squares / queries - mean * mean, 1.0 / (queries + 1))
    margin = _DEVIATIONS * (variance / queries) ** 0.5
    return AuditedRecall(*asked, queries, mean, max(0.0, mean - margin), min(1.0, mean + margin))


class _Query(NamedTuple):
    """An answered query; ``scores`` is None if the answer is exact already.

    ``counts``: whether it would also have been sampled at the normal rate.
    """

    view: View
    query: VectorBatch
    params: SearchParams
    where: Filter | None
    skip: Int64s | None
    scores: Float64s | None
    counts: bool


class RecallAudit:
    """Compares answers of one collection with exact ones.

    clock: returns seconds since 1970.
    """

    def __init__(
        self,
        collection: MemoryCollection,
        policies: Policies,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.policies = policies
        self.collection = collection
        self._backend = collection.backend
        self._clock = clock
        self._random = random.Random()
        self._waiting: deque[_Query] = deque()
        self._tallying = threading.Lock()
        self._tallies: dict[_Asked, _Sums] = {}
        self._next_counts = True
        self._until_next = self._gap()

    def _gap(self) -> float:
        """Return the number of queries up to the next audited one; 1 is the very next query."""
        share = self.policies.audit_share
        if self._backend.finds_too_little():
            share *= self.policies.low_recall_factor
        # The rate rises while recall is too low; the additional queries would bias the week's mean.
        self._next_counts = self._random.random() * min(share, 1.0) < self.policies.audit_share
        if share >= 1:
            return 1
        return 1 + int(self._random.expovariate(-log1p(-share))) if share > 0 else inf

    @property
    def allowance(self) -> list[tuple[int | None, float]]:
        """Share of the allowed miss that searches aim at; see `Backend.allowance`."""
        return self._backend.allowance()

    @property
    def waiting(self) -> int:
        """Number of queries that wait for their exact answer."""
        return len(self._waiting)

    def offer(
        self,
        queries: VectorBatch,
        params: SearchParams,
        results: QueryResults,
        *,
        where: Filter | None = None,
        skip: Int64s | None = None,
    ) -> bool:
        """Sample queries that the primary backend answered; return whether any was sampled."""
        # Concurrent threads may skip a few queries more: a lock on each search would cost more.
        left = self._until_next = self._until_next - queries.count
        if left > 0 or not queries.count:
            return False
        number, counts = max(0, queries.count + int(left) - 1), self._next_counts
        self._until_next = self._gap()
        if (
            not self._backend.promises_recall
            or not params.recall < 1
            or params.guarantee != "measured"
            or params.rerank != "gmm"
            or params.ranking != "gmm"
            or len(self._waiting) >= self.policies.max_waiting
        ):
            return False
        exact = results.found.work[number, METHOD] == SCAN
        only = np.array([number])  # a copy, so that the whole batch is not kept in memory
        self._waiting.append(
            _Query(
                results.view,
                queries[only],
                params,
                where,
                None if skip is None else skip[only],
                None if exact else results.found.hits(number)[1].copy(),
                counts,
            )
        )
        return True

    def step(self) -> bool:
        """Answer the oldest waiting query exactly; return False if none waits. One thread only."""
        try:
            asked = self._waiting.popleft()
        except IndexError:
            return False
        found = 1.0 if asked.scores is None else self._recall_of(asked, asked.scores)
        if found is not None:
            self._take(asked.params, found, counts=asked.counts)
        return True

    def _recall_of(self, asked: _Query, scores: Float64s) -> float | None:
        """Return the share of a query's true hits that it found, by score; None if it has none."""
        exactly = replace(asked.params, recall=1.0)
        [true] = self.collection.search(
            asked.view, asked.query, exactly, where=asked.where, skip=asked.skip
        )
        wanted = min(len(true.scores), asked.params.limit)
        if not wanted:
            return None
        last = true.scores[wanted - 1] - _ROUNDING
        return min(1.0, float((scores >= last).sum()) / wanted)

    def _take(self, params: SearchParams, found: float, *, counts: bool) -> None:
        if counts:
            asked = self._asked(params)
            with self._tallying:
                queries, total, squares = self._tallies.get(asked, (0, 0.0, 0.0))
                self._tallies[asked] = queries + 1, total + found, squares + found * found
                if len(self._tallies) > _MAX_TALLIES:
                    del self._tallies[min(self._tallies)]
        self._backend.take_audit(params.limit, params.recall, found)

    def _asked(self, params: SearchParams) -> _Asked:
        return _week(self._clock()), round(params.recall, 6), params.limit

    def results(self) -> list[AuditedRecall]:
        """Return the results, latest week first, then by recall and limit; any thread."""
        with self._tallying:
            found = [_result(*tally) for tally in sorted(self._tallies.items())]
        return sorted(found, key=lambda each: each.week, reverse=True)

    def this_week(self) -> list[AuditedRecall]:
        """Return the results of this week; any thread."""
        week = _week(self._clock())
        return [each for each in self.results() if each.week == week]

    def of(self, params: SearchParams) -> AuditedRecall | None:
        """Return this week's result for queries with the same parameters, or None; any thread."""
        asked = self._asked(params)
        sums = self._tallies.get(asked)
        return None if sums is None else _result(asked, sums)

    def to_json(self) -> str:
        """Return the state as stored in a file."""
        with self._tallying:
            lines = [[*asked, *sums] for asked, sums in self._tallies.items()]
        return orjson.dumps({"audited": lines}).decode()

    def restore(self, text: str | None) -> None:
        """Load what `to_json` returned; ValueError or KeyError for any other text."""
        if text is None:
            return
        tallies = tallies_of(text)
        with self._tallying:
            self._tallies = tallies


def tallies_of(text: str) -> dict[_Asked, _Sums]:
    """Return the sums that `RecallAudit.to_json` wrote; ValueError or KeyError for other text."""
    lines = list_of(fields_of(orjson.loads(text))["audited"], max_count=_MAX_TALLIES)
    return dict(_read(line) for line in lines)


def _read(line: Any) -> tuple[_Asked, _Sums]:  # noqa: ANN401  # JSON
    """Parse one line of `RecallAudit.to_json`; ValueError if it is not valid."""
    week, recall, limit, queries, found, squares = list_of(line, max_count=6)
    if not isinstance(week, str) or len(week) > len("99999-W53"):
        raise ValueError(f"{week!r} is not a week")
    count = count_of(queries, 1, _MAX_COUNT)
    asked = week, number_of(recall, 0, 1), count_of(limit, 1, _MAX_COUNT)
    return asked, (count, number_of(found, 0, count), number_of(squares, 0, count))


def _week(seconds: float) -> str:
    year, week, _ = datetime.fromtimestamp(seconds, UTC).isocalendar()
    return f"{year:04}-W{week:02}"


class Auditor(BackgroundTask):
    """Answers some queries exactly, one at a time, and stores the results in the file.

    After each query it pauses, so that audits take at most `Policies.audit_busy` of the time.
    """

    name = "audit"
    gives_way = True

    def __init__(self, audit: RecallAudit, store: Store, writer: Writer) -> None:
        super().__init__()
        self._audit = audit
        self._store = store
        self._writer = writer
        self._saved = audit.to_json()
        self._last_saved = time.monotonic()

    def load(self) -> None:
        """Read the stored results from the file."""
        try:
            self._audit.restore(self._store.meta("audit"))
        except (KeyError, ValueError, TypeError) as error:
            _log.warning("collection %r: its audit is unreadable (%s)", self._store.name, error)
        self._saved = self._audit.to_json()

    def save(self) -> None:
        """Write results that are not in the file yet; the caller blocks changes meanwhile.

        Raises DiskFull, DirectoryLocked, OutOfDescriptors, StorageFailed.
        """
        text = self._audit.to_json()
        if text != self._saved:
            self._store.write_meta("audit", text)
            self._saved = text
        self._last_saved = time.monotonic()

    def is_due(self) -> bool:
        """Return whether a query is waiting."""
        return self._audit.waiting > 0

    def step(self) -> None:
        """Answer one query, save the results from time to time, and pause."""
        start = time.perf_counter()
        try:
            self._audit.step()
        except Exception:
            _log.exception("collection %r: a query could not be audited", self._store.name)
        taken = time.perf_counter() - start
        self._save_if_due()
        self.skip_pause.wait(taken * (1.0 / self._audit.policies.audit_busy - 1.0))

    def _save_if_due(self) -> None:
        if time.monotonic() - self._last_saved < _SAVE_SECONDS:
            return
        try:
            self._writer.run_between_changes(self.save)
        except StoreError as error:
            _log.warning("collection %r: its audit is not kept (%s)", self._store.name, error)
            self._last_saved = time.monotonic()
