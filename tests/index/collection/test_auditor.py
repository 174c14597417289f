"""Audits of live queries, and what of them outlasts the process."""

import logging
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gcws_search.index import Policies
from gcws_search.index.collection.audit import RecallAudit
from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.check import check_directory
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.parameters import CollectionConfig, ExactParams, SearchParams
from gcws_search.index.contracts.policies import AuditPolicy
from tests.support.index.items import opened_catalog, put

ALL = Policies(audit=AuditPolicy(share=1.0, busy=1.0))
PARAMS = SearchParams(limit=2, recall=0.9)


def audited(stored: StoredCollection) -> list[tuple[float, int, int, float]]:
    return [(each.recall, each.limit, each.queries, each.found) for each in stored.audit.results()]


def made(catalog: Catalog) -> StoredCollection:
    stored, _ = catalog.create("things", CollectionConfig(dim=4))
    put(stored, {f"i{n}": float(n + 1) for n in range(12)})
    return stored


def ask(stored: StoredCollection, times: int) -> None:
    for x in range(times):
        stored.search(stored.space.from_dense(np.full((1, 4), x + 1.5, np.float32)), PARAMS)
        stored.search_around("i3", replace(PARAMS, limit=1))
        stored.finish_background_work()


def test_queries_are_audited_and_the_results_outlast_a_restart(tmp_path: Path) -> None:
    catalog = opened_catalog(tmp_path, policies=ALL)
    ask(made(catalog), 3)
    expected = [(0.9, 1, 3, 1.0), (0.9, 2, 3, 1.0)]
    assert audited(catalog.get("things")) == expected
    assert [each.limit for each in catalog.list()[0].audited] == [1, 2]
    catalog.close()
    again = opened_catalog(tmp_path, policies=ALL)
    assert audited(again.get("things")) == expected
    ask(again.get("things"), 1)
    assert audited(again.get("things")) == [(0.9, 1, 4, 1.0), (0.9, 2, 4, 1.0)]


def test_attached_backends_and_exact_queries_are_not_audited(tmp_path: Path) -> None:
    stored = made(opened_catalog(tmp_path, policies=ALL))
    query = stored.space.from_dense(np.ones((1, 4), np.float32))
    stored.search(query, SearchParams(recall=1.0))
    stored.attach(ExactParams())
    stored.search(query, PARAMS, backend="exact")
    stored.finish_background_work()
    assert audited(stored) == []
    stored.search(query, PARAMS, backend="gcws")
    stored.finish_background_work()
    assert len(audited(stored)) == 1


def test_a_repair_keeps_the_results(tmp_path: Path) -> None:
    catalog = opened_catalog(tmp_path, policies=ALL)
    ask(made(catalog), 1)
    expected = audited(catalog.get("things"))
    catalog.close()
    with closing(sqlite3.connect(tmp_path / "things.sqlite")) as connection, connection:
        connection.execute("INSERT INTO meta (name, value) VALUES ('metadata', 'false')")
    [report] = check_directory(tmp_path, repair=True)
    assert report.repaired
    assert audited(opened_catalog(tmp_path, policies=ALL).get("things")) == expected


def test_results_that_are_unreadable_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = opened_catalog(tmp_path, policies=ALL)
    ask(made(catalog), 1)
    catalog.close()
    with closing(sqlite3.connect(tmp_path / "things.sqlite")) as connection, connection:
        changed = connection.execute("UPDATE meta SET value = '[' WHERE name = 'audit'")
        assert changed.rowcount == 1
    with caplog.at_level(logging.WARNING):
        stored = opened_catalog(tmp_path, policies=ALL).get("things")
    assert "audit is unreadable" in caplog.text
    assert len(stored) == 12
    assert audited(stored) == []
    ask(stored, 1)
    assert len(audited(stored)) == 2


def test_a_query_that_cannot_be_audited_is_told_and_others_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = made(opened_catalog(tmp_path, policies=ALL))
    step, failures = RecallAudit.step, [MemoryError()]

    def failing(audit: RecallAudit) -> bool:
        done = step(audit)
        if failures:
            raise failures.pop()
        return done

    monkeypatch.setattr(RecallAudit, "step", failing)
    with caplog.at_level(logging.ERROR):
        ask(stored, 2)
    assert "could not be audited" in caplog.text
    assert sum(queries for _, _, queries, _ in audited(stored)) == 4


def test_nothing_is_audited_once_it_is_closed(tmp_path: Path) -> None:
    catalog = opened_catalog(tmp_path, policies=ALL)
    stored = made(catalog)
    catalog.close()
    stored.auditor.start()
    assert stored.auditor.thread is None
