"""Search by tables: the recall promised, the naive search to the table, and nothing else."""

import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.harness.engine import RowHits
from gcws_search.index.backends import Policies
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import LiveSample
from gcws_search.index.contracts.parameters import (
    CollectionConfig,
    Encoding,
    GcwsParams,
    Guarantee,
    SearchParams,
)
from gcws_search.index.contracts.policies import ProbePolicy
from gcws_search.index.cost_model import Tally, hash_nanoseconds, scan_nanoseconds
from gcws_search.index.kernels.quantized.rows import BYTES
from gcws_search.index.lsh import search as table_search
from gcws_search.index.vectors.growing_rows import copies_of
from gcws_search.index.vectors.quantization import Quantizer
from tests.support.data import generated
from tests.support.data.generated import Csr
from tests.support.index.policies import DEAR_SCANS
from tests.support.index.small_index import (
    Mask,
    Rows,
    SmallIndex,
    all_scores,
    answer,
    answers,
    view_of,
)
from tests.support.reference import mathematics
from tests.support.statistics import SIGMAS, assert_proportion, standard_error

RELATIVE = 1e-12
"""Roundings of some thousand float64 sums."""
FLOAT32_TIES = 1e-6
"""Hits are ranked by float32 scores while probing: closer scores may change places."""
DIM = 24
ROWS = 6000
QUERIES = 40
KINDS = ["dense", "near-duplicates", "counts"]


def made(kind: str, rng: np.random.Generator, n: int = ROWS) -> tuple[Rows, Rows, int]:
    return generated.made(kind, rng, n, QUERIES)


def asked(config: CollectionConfig, *, threads: int = 1) -> SmallIndex:
    """Return an empty index whose tables are asked, however few its rows are."""
    return SmallIndex(config, threads=threads, policies=Policies(probe=DEAR_SCANS))


@cache
def known(kind: str) -> tuple[Rows, Rows, npt.NDArray[np.float64]]:
    """Return rows, held-out queries and all their scores, made once."""
    rows, queries, dim = made(kind, np.random.default_rng(zlib.crc32(kind.encode())))
    return rows, queries, all_scores(queries, rows, dim)


@cache
def encoded(kind: str, encoding: Encoding, seed: int) -> SmallIndex:
    """Return an index of the known rows, made once."""
    params = GcwsParams(bands=24, seed=seed, encoding=encoding, bits=4)
    return asked(config_of(kind, params)).add(known(kind)[0])


def config_of(kind: str, params: GcwsParams) -> CollectionConfig:
    return CollectionConfig(dim=None if kind == "counts" else DIM, backend=params)


def recall_of(
    hits: list[float], truth: npt.NDArray[np.float64], params: SearchParams, permitted: Mask
) -> float:
    """Return the share of the true hits reached, by score."""
    wanted = np.sort(truth[(permitted == 1) & (truth >= params.min_score)])[::-1]
    best = wanted[: params.limit].tolist()
    return mathematics.recall_by_score(hits, best, tolerance=FLOAT32_TIES)


# --- the recall promise ------------------------------------------------------------------------


def lone_neighbours(
    rng: np.random.Generator, similarity: float, n: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return n queries, and rows of which each query has one at the similarity and none near it.

    Every pair takes coordinates of its own; all other rows have GMM 0 with its query.
    """
    queries = np.zeros((n, 4 * n), np.float32)
    strangers = np.zeros((3000, 4 * n), np.float32)
    strangers[np.arange(3000), rng.integers(0, n, 3000) * 4 + 3] = -1.0
    for i in range(n):
        queries[i, 4 * i : 4 * i + 2] = rng.gamma(2.0, size=2)
    rows = queries.copy()
    own = 4 * np.arange(n) + 2
    rows[np.arange(n), own] = queries.sum(axis=1) * (1 / similarity - 1)
    return np.concatenate([rows, strangers]), queries


@cache
def lone(similarity: float, encoding: Encoding) -> tuple[list[SmallIndex], npt.NDArray[np.float32]]:
    """Return indexes of lone neighbours by six seeds, and their queries, made once."""
    rows, queries = lone_neighbours(np.random.default_rng(8), similarity, 100)
    made = []
    for seed in range(6):
        backend = GcwsParams(bands=24, seed=seed, encoding=encoding, bits=4)
        made.append(asked(CollectionConfig(dim=rows.shape[1], backend=backend)).add(rows))
    return made, queries


@pytest.mark.parametrize("similarity", [0.5, 0.7, 0.9, 0.96])
@pytest.mark.parametrize(
    ("encoding", "recall"),
    [("full", 0.5), ("full", 0.8), ("full", 0.95), ("zero_bit", 0.7), ("b_bit", 0.7)],
)
def test_probing_finds_exactly_the_share_it_promises_where_nothing_is_left_to_chance(
    similarity: float, encoding: Encoding, recall: float
) -> None:
    """With min_score at the similarity of the only neighbour, hit or no hit is charged alike.

    So the search stops at the same table whatever it finds, and the promise is an equality.
    """
    whole = encoding == "full"
    indexes, queries = lone(similarity, encoding)
    params = SearchParams(
        limit=1, recall=recall, min_score=similarity * (1 - 1e-6),
        guarantee="measured" if whole else "proven",
    )  # fmt: skip
    found, promised = [], []
    for index in indexes:
        for i, hits in enumerate(index.search(queries, params)):
            if hits.explanation.method == "tables":
                found.append(i in hits.rows)
                promised.append(hits.explanation.expected_recall)
    assert len(found) > 300
    assert min(promised) >= recall
    law = float(np.mean(promised))
    if whole:
        # Chance hits of hashed prefixes are part of the promise; the float32 similarity is not.
        assert_proportion(sum(found), len(found), law, slack=1e-4)
    # Parts of samples match at least as often as samples do.
    assert np.mean(found) >= law - 1e-4 - SIGMAS * np.sqrt(law * (1 - law) / len(found))


@pytest.mark.parametrize("width", [2, 5])
def test_classical_banding_finds_rows_as_often_as_the_s_curve_says(
    rng: np.random.Generator, width: int
) -> None:
    rows, queries, dim = made("dense", rng, 800)
    truth = all_scores(queries, rows, dim)
    bands = 6
    expected = 1 - (1 - truth**width) ** bands
    surplus = []
    for seed in range(40):
        params = GcwsParams(bands=bands, band_width=width, seed=seed)
        index = asked(config_of("dense", params)).add(rows)
        results = index.search(queries, SearchParams(limit=799, recall=0.999))
        found = np.zeros_like(expected)
        for m, hits in enumerate(results):
            assert hits.explanation.method == "tables"
            assert hits.explanation.candidates == len(hits.rows)
            found[m, hits.rows] = 1
        # Weighted towards the similar: nearly all of the 800 are strangers.
        surplus.append(float(np.sum((found - expected) * truth) / np.sum(truth)))
    assert abs(np.mean(surplus)) < SIGMAS * standard_error(surplus)


@pytest.mark.parametrize("guarantee", ["measured", "proven"])
def test_only_a_proof_makes_classical_banding_scan(
    rng: np.random.Generator, guarantee: Guarantee
) -> None:
    rows, queries, dim = made("dense", rng, 2000)
    config = config_of("dense", GcwsParams(bands=2, band_width=12))
    index = asked(config).add(rows)
    params = SearchParams(limit=10, recall=0.9, guarantee=guarantee)
    results = index.search(queries, params)
    methods = {hits.explanation.method for hits in results}
    everything = np.ones(len(rows), np.uint8)
    truth = all_scores(queries, rows, dim)
    if guarantee == "measured":
        assert methods == {"tables"}
        return
    assert "scan" in methods
    reached = [
        recall_of(answer(hits)[1], truth[m], params, everything) for m, hits in enumerate(results)
    ]
    assert np.mean(reached) >= 0.9 - SIGMAS * standard_error(reached)


# --- the probe is the reference's --------------------------------------------------------------


def nibbles(codes: npt.NDArray[np.uint64], bits: int) -> list[list[int]]:
    """Return each row's keys cut into pieces of ``bits`` bits, most significant first."""
    width = 64 // bits
    pieces = [
        (codes >> np.uint64(64 - bits * (i + 1))) & np.uint64(2**bits - 1) for i in range(width)
    ]
    return [row.ravel().tolist() for row in np.stack(pieces, axis=2)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("limit", "recall", "min_score", "filtered"),
    [(1, 0.3, 0.0, False), (1, 0.9, 0.0, False), (5, 0.7, 0.0, True), (8, 0.9, 0.45, False)],
)
def test_probing_is_the_naive_search_to_the_table(
    rng: np.random.Generator, kind: str, recall: float, limit: int, min_score: float, filtered: bool
) -> None:
    n, bands = 1500, 4
    rows, queries, dim = made(kind, rng, n)
    queries = queries[:6]
    never_scan = Policies(probe=ProbePolicy(scan_factor=1e9))  # sparse rows take little time
    config = config_of(kind, GcwsParams(bands=bands))
    index = SmallIndex(config, policies=never_scan).add(rows[:700]).make_tables()
    index.add(rows[700:], [3, 500])
    keys_of, bits = index.backend.band_keys.keys, index.backend.plan.bits
    signatures = nibbles(keys_of(index.rows.view(), bands), bits)
    sought = nibbles(keys_of(index.prepare(queries), bands), bits)
    permitted = (rng.random(n) < (0.6 if filtered else 1.0)).astype(np.uint8)
    truth = all_scores(queries, rows, dim)
    rule = mathematics.StopRule(limit, recall, min_score, floor=2.0**-bits)
    banding = mathematics.Banding(bands, 64 // bits)
    params = SearchParams(limit=limit, recall=recall, min_score=min_score)
    numbers = np.flatnonzero(permitted)
    probed = 0
    for m, hits in enumerate(index.search(queries, params, permitted=permitted)):
        if hits.explanation.method == "scan":
            continue
        probed += 1
        naive = mathematics.prefix_search(
            banding, sought[m], [(signatures[i], float(truth[m, i])) for i in numbers], rule
        )
        assert hits.explanation.depth == naive.depth
        assert hits.explanation.scored == len(naive.scored)
        expected = [(int(numbers[i]), score) for i, score in naive.hits]
        assert hits.scores == pytest.approx([s for _, s in expected], rel=RELATIVE)
        assert dict(zip(*answer(hits), strict=True)) == pytest.approx(dict(expected), rel=RELATIVE)
    assert probed


@pytest.mark.parametrize("kind", ["dense", "near-duplicates"])
def test_tables_answer_most_queries_of_these_tests(kind: str) -> None:
    _, queries, _ = known(kind)
    results = encoded(kind, "full", 0).search(queries, SearchParams(limit=1, recall=0.8))
    assert np.mean([hits.explanation.method == "tables" for hits in results]) > 0.5


# --- a proof promises no less, and not much more ------------------------------------------------


@pytest.mark.parametrize("recall", [0.8, 0.9, 0.95])
@pytest.mark.parametrize("kind", ["dense", "near-duplicates"])
def test_a_proof_exceeds_its_target_by_two_thirds_of_the_miss_at_most(
    kind: str, recall: float
) -> None:
    _, queries, truth = known(kind)
    params = SearchParams(limit=10, recall=recall, guarantee="proven")
    everything = np.ones(ROWS, np.uint8)
    reached = []
    for seed in range(4):
        for m, hits in enumerate(encoded(kind, "full", seed).search(queries, params)):
            if hits.explanation.method == "tables":
                reached.append(recall_of(answer(hits)[1], truth[m], params, everything))
    assert len(reached) >= QUERIES // 2
    error = SIGMAS * standard_error(reached)
    assert recall - error <= np.mean(reached) <= recall + 2 / 3 * (1 - recall) + error


# --- the planner --------------------------------------------------------------------------------


def test_few_rows_are_scanned_and_no_query_is_hashed_for_them(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in KINDS:
        rows, queries, _ = made(kind, rng, 1000)
        index = SmallIndex(config_of(kind, GcwsParams())).add(rows)
        monkeypatch.setattr(index.backend, "encode", None)
        for hits in index.search(queries, SearchParams(recall=0.8, guarantee="proven")):
            assert hits.explanation.method == "scan"


@pytest.mark.parametrize(("scan_milliseconds", "hashed"), [(1.0, False), (10.0, True)])
def test_a_lone_sparse_query_is_hashed_only_where_a_scan_takes_much_longer(
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
    scan_milliseconds: float,
    hashed: bool,
) -> None:
    rows, queries, _ = made("counts", rng, 1000)
    config = config_of("counts", GcwsParams())
    batch, query = (SmallIndex(config).prepare(each) for each in (rows, queries[:1]))
    view = view_of(batch)
    scan = scan_nanoseconds(replace(view, sample=LiveSample.of(view.permitted)), query)[0]
    policy = ProbePolicy(scan_factor=1e6 * scan_milliseconds / scan)
    index = SmallIndex(config, policies=Policies(probe=policy)).add(rows)
    hashed_rows = counted(index, monkeypatch)
    index.search(queries[:1], SearchParams(recall=0.8, guarantee="proven"))
    assert not hashed_rows  # there are no tables
    monkeypatch.undo()
    index.make_tables()
    hashed_rows = counted(index, monkeypatch)
    index.search(queries[:1], SearchParams(recall=0.8, guarantee="proven"))
    assert bool(hashed_rows) == hashed


def counted(index: SmallIndex, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that takes, from now on, how many vectors each call hashes."""
    keys, hashed = index.backend.band_keys.keys, []

    def count(batch: VectorBatch, last: int) -> object:
        hashed.append(len(batch))
        return keys(batch, last)

    monkeypatch.setattr(index.backend.band_keys, "keys", count)
    return hashed


def test_a_call_of_many_queries_scans_rows_outside_of_caches_for_less() -> None:
    batch = SmallIndex(CollectionConfig(dim=512)).prepare(np.ones((20_000, 512), np.float32))
    view = view_of(batch)
    alone = scan_nanoseconds(view, batch[:1])[0]
    together = scan_nanoseconds(view, batch[:20])
    assert (together < alone).all()
    few = view_of(batch[:500])
    assert scan_nanoseconds(few, batch[:1])[0] == scan_nanoseconds(few, batch[:20])[0]


def test_each_query_is_scanned_for_in_less_time_the_more_come_together_in_a_thread() -> None:
    batch = SmallIndex(CollectionConfig(dim=32)).prepare(np.ones((20_000, 32), np.float32))
    view = view_of(batch)
    costs = [scan_nanoseconds(view, batch[:count])[0] for count in (1, 32, 64, 1024)]
    assert costs == sorted(costs, reverse=True)
    assert len(set(costs)) == len(costs)
    copies = copies_of(batch.dense, Quantizer(BYTES, 1 / 64, 128))
    copied = VectorBatch("dense", dense=batch.dense, norms=batch.norms, copies=copies)
    alone, many = (scan_nanoseconds(view_of(copied), batch[:count])[0] for count in (1, 1024))
    assert many < 0.7 * alone
    assert scan_nanoseconds(view, batch[:64], 2)[0] == costs[1]


def with_tables(
    rows: Rows, monkeypatch: pytest.MonkeyPatch, *, paying: bool
) -> tuple[SmallIndex, list[int]]:
    """Return an index with all its tables, which pay or never do, and what its calls hash."""
    if not paying:
        monkeypatch.setattr(table_search, "row_nanoseconds", lambda _: 1e9)
    index = asked(config_of("dense", GcwsParams())).add(rows)
    index.state = index.backend.with_all_tables(index.state, index.rows.view())
    return index, counted(index, monkeypatch)


@pytest.mark.parametrize("paying", [True, False])
def test_a_call_of_many_queries_is_scanned_once_tables_have_not_paid_for_a_few_of_them(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, paying: bool
) -> None:
    rows, _, dim = made("dense", rng)
    queries = rows[:200]
    index, hashed = with_tables(rows, monkeypatch, paying=paying)
    params = SearchParams(limit=1, recall=0.9, guarantee="proven")
    results = index.search(queries, params)
    assert sum(hashed) == (200 if paying else 8)
    truth = all_scores(queries, rows, dim)
    best = [float(hits.scores[0]) for hits in results]
    reached = np.isclose(best, truth.max(axis=1), rtol=RELATIVE)
    assert np.mean(reached) >= 0.9 - SIGMAS * np.sqrt(0.9 * 0.1 / 200)


@pytest.mark.parametrize("paying", [True, False])
def test_proofs_of_lone_queries_go_by_what_such_have_taken_of_late(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, paying: bool
) -> None:
    rows, _, dim = made("dense", rng)
    queries = rows[:160]
    index, hashed = with_tables(rows, monkeypatch, paying=paying)
    params = SearchParams(limit=1, recall=0.9, guarantee="proven")
    results, tried = [], []
    for place in range(len(queries)):
        results += index.search(queries[place : place + 1], params)
        tried.append(len(hashed))
    if paying:
        assert tried[-1] == len(queries)
    else:
        learned = tried[31]
        assert learned < 16  # at most every second query, while nothing is known
        assert tried[-1] == learned + (len(queries) - 32) // ProbePolicy().tries
    best = [float(hits.scores[0]) for hits in results]
    reached = np.isclose(best, all_scores(queries, rows, dim).max(axis=1), rtol=RELATIVE)
    assert np.mean(reached) >= 0.9 - SIGMAS * np.sqrt(0.9 * 0.1 / len(queries))
    other = replace(params, recall=0.5)  # of which nothing is known yet
    before = len(hashed)
    index.search(queries[:1], other)
    assert len(hashed) == before + 1


def test_what_a_lone_proof_is_told_to_have_taken_includes_the_scan_that_it_ended_in(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, _, _ = made("dense", rng)
    index = asked(config_of("dense", GcwsParams())).add(rows)
    backend, view = index.backend, index.view()
    tally, query = Tally(0.0), index.prepare(rows[:1])
    policy = ProbePolicy(hashing_of_tried=np.inf)
    tables, inverted = index.state.tables, index.state.inverted
    plan, keys_of = backend.plan, partial(backend.band_keys.keys, last=tables.bands)
    search = table_search.TableSearch(
        plan.of_first(tables.bands), keys_of, tables, inverted, backend.workers, policy, tally
    )
    params = SearchParams(limit=50, recall=0.99, guarantee="proven")
    nobody = np.full(1, -1)
    scan, hashing = scan_nanoseconds(view, query)[0], hash_nanoseconds(query, backend.plan)[0]
    monkeypatch.setattr(table_search, "row_nanoseconds", lambda _: 1e9)
    found = search.search(view, query, params, nobody)
    assert found.explanation(0).method == "scan"
    assert tally.seen == 1
    assert 8 * tally.nanoseconds >= hashing + 2.0 * scan


# --- exact scores ------------------------------------------------------------------------------


def test_a_score_equal_to_the_least_one_wanted_is_found(rng: np.random.Generator) -> None:
    """GMM k/10 of counts, probed: float32 rounds 3/10 and 7/10 down, 1/10 and 9/10 up."""
    for tenths in (3, 6, 7, 9):
        query = np.zeros((1, DIM), np.float32)
        query[0, :10] = 1
        row = np.zeros((300, DIM), np.float32)
        row[:, :tenths] = 1
        strangers = -np.abs(rng.standard_normal((5000, DIM))).astype(np.float32)
        rows = np.concatenate([row, strangers])
        for width in (None, 1):
            index = asked(config_of("dense", GcwsParams(band_width=width, bands=64))).add(rows)
            params = SearchParams(limit=299, recall=0.9, min_score=tenths / 10)
            [hits] = index.search(query, params)
            assert len(hits.rows) >= 299
            assert set(hits.scores.tolist()) == {tenths / 10}


def test_a_row_to_skip_is_left_out_while_probing(rng: np.random.Generator) -> None:
    for kind in KINDS:
        rows, _, _ = made(kind, rng)
        index = asked(config_of(kind, GcwsParams())).add(rows)
        params = SearchParams(limit=5, recall=0.7)
        skipped = index.search(rows[:QUERIES], params, skip=list(range(QUERIES)))
        for i, hits in enumerate(skipped):
            assert i not in hits.rows
            everything: Mask = np.ones(ROWS, np.uint8)
            everything[i] = 0
            [masked] = index.search(rows[i : i + 1], params, permitted=everything)
            if masked.explanation.method == hits.explanation.method:
                assert answer(masked) == answer(hits)


# --- answers depend on nothing else ------------------------------------------------------------


QUESTIONS = [
    SearchParams(limit=1, recall=0.6),
    SearchParams(limit=10, recall=0.9),
    SearchParams(limit=30, recall=0.8, min_score=0.5),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [None, 4])
@pytest.mark.parametrize("sizes", [[1, 1, 1, 5000], [512, 511, 513, 1], [0, 17, 0, 4096, 900]])
def test_the_sizes_of_batches_change_no_answer(
    rng: np.random.Generator, kind: str, width: int | None, sizes: list[int]
) -> None:
    rows, queries, _ = made(kind, rng)
    config = config_of(kind, GcwsParams(bands=8, band_width=width))
    whole, parts = asked(config).add(rows), asked(config).add(rows, sizes)
    for params in QUESTIONS:
        left, right = (each.search(queries, params) for each in (whole, parts))
        assert answers(left) == answers(right)
        for one, other in zip(left, right, strict=True):
            promised = one.explanation.expected_recall
            assert other.explanation.expected_recall == pytest.approx(promised, rel=RELATIVE)
            assert other.explanation[:6] == one.explanation[:6]


def _take(rows: Rows, numbers: npt.NDArray[np.int64]) -> Csr:
    assert isinstance(rows, Csr)
    pieces = [rows.row(int(i)) for i in numbers]
    lengths = [len(indices) for indices, _ in pieces]
    return Csr(
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate([indices for indices, _ in pieces]),
        np.concatenate([values for _, values in pieces]),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stays_share", [0.3, 0.7])
def test_rows_that_are_not_permitted_change_no_answer(
    rng: np.random.Generator, kind: str, stays_share: float
) -> None:
    """Deleted rows stay in the tables until a compaction; a restart leaves them out.

    Rows that a filter leaves out make a scan longer, so that fewer queries are scanned.
    """
    rows, queries, _ = made(kind, rng)
    config = config_of(kind, GcwsParams(bands=8))
    stays = rng.random(ROWS) < stays_share
    numbers = np.flatnonzero(stays)
    index = asked(config).add(rows)
    kept = _take(rows, numbers) if isinstance(rows, Csr) else rows[stays]
    fresh = asked(config).add(kept)
    same = []
    for params in QUESTIONS:
        masked = index.search(queries, params, permitted=stays.astype(np.uint8))
        for before, after in zip(masked, fresh.search(queries, params), strict=True):
            same.append(before.explanation.method == after.explanation.method)
            if same[-1]:
                found, scores = answer(after)
                assert answer(before) == (numbers[found].tolist(), scores)
            else:
                assert "scan" in (before.explanation.method, after.explanation.method)
    assert np.mean(same) > 0.5


def alike(one: RowHits, other: RowHits) -> bool:
    """Whether two answers were found in the same way, and are then the same in all."""
    if one.explanation.method != other.explanation.method:
        assert "scan" in (one.explanation.method, other.explanation.method)
        return False
    assert answer(one) == answer(other)
    assert one.explanation == other.explanation
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_queries_and_threads_change_no_answer_but_what_is_scanned(
    rng: np.random.Generator, kind: str
) -> None:
    """Of many queries in a call a scan takes less time, so more are scanned."""
    rows, queries, _ = made(kind, rng)
    config = config_of(kind, GcwsParams(bands=8))
    index = asked(config).add(rows, [4000])
    threaded = asked(config, threads=2).add(rows, [4000])
    same = []
    for params in QUESTIONS:
        together = index.search(queries, params)
        same += [
            alike(*both) for both in zip(together, threaded.search(queries, params), strict=True)
        ]
        for m in (0, 7, QUERIES - 1):
            [alone] = index.search(queries[m : m + 1], params)
            same.append(alike(alone, together[m]))
    assert np.mean(same) > 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_many_readers_at_once_get_the_answers_of_one(rng: np.random.Generator, kind: str) -> None:
    rows, queries, _ = made(kind, rng)
    config = config_of(kind, GcwsParams(bands=8))
    shared = asked(config, threads=2).add(rows, [4000])
    expected = [answers(shared.search(queries, params)) for params in QUESTIONS]

    def ask(_: int) -> list[list[tuple[list[int], list[float]]]]:
        return [answers(shared.search(queries, params)) for params in QUESTIONS]

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(ask, range(8)):
            assert found == expected
