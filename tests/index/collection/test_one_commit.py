"""Writes of one commit give and leave what they would one after the other."""

import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gcws_search import index as ix
from tests.support.index.items import opened_catalog
from tests.support.index.saved_graph import copied
from tests.support.waiting_writes import together

WORDS = "uvwxyz"
CONFIGS = [
    ix.CollectionConfig(dim=3, backend=ix.ExactParams(), ttl=5.0),
    ix.CollectionConfig(dim=None, backend=ix.GcwsParams(bands=2)),
]
POLICIES = ix.Policies(max_pending=4, min_dead=8)
MODES: list[ix.Mode] = [
    "upsert", "upsert", "insert", *(ix.UnlessSimilar(min_score=x, recall=1.0) for x in (0.5, 0.9)),
]  # fmt: skip
LIVES = [None, -1, 1500, 60_000]
"""ms until items expire; some are gone at once."""
PAYLOADS = [None, b'{"n":1}', b'{"n":2,"m":"x"}']
CHANGES = [
    ix.PayloadChange(b'{"n":2}'),
    ix.PayloadChange(b'{"k":1}'),
    ix.PayloadChange(b'{"n":1,"l":1}', merge=False),
    ix.PayloadChange(None, merge=False),
]
Write = Callable[[ix.StoredCollection], object]


def raw_of(stored: ix.StoredCollection, rows: list[dict[str, int]]) -> ix.RawBatch:
    """Return rows by names where the space is open, or by all coordinates."""
    if stored.config.dim is None:
        named = (stored.names.reserve([*row]) for row in rows)
        pairs = zip(named, rows, strict=True)
        return stored.space.from_items([ix.SparseVector(at, [*row.values()]) for at, row in pairs])
    return stored.space.from_items([[row.get(word, 0) + 1 for word in "uvw"] for row in rows])


def draw_put(random: Random, now: float) -> Write:
    mode, keeps = random.choice(MODES), random.random() < 0.18
    ids = [random.choice(["a", "b", "7", None, None]) for _ in range(random.randint(1, 3))]
    wanted: list[int | None] = []
    if mode == "insert" or random.random() < 0.5:
        ids = [*dict.fromkeys(ids)]
        if random.random() < 0.4:
            wanted = [None if each is None else random.choice([None, 0, 1, 2]) for each in ids]
    rows = [
        {word: random.choice([1, 2, -3]) for word in random.sample(WORDS, random.randint(1, 3))}
        for _ in ids
    ]
    payloads = [random.choice(PAYLOADS) for _ in ids]
    expires: list[int | None] = []
    if random.random() < 0.5:
        expires = [life and int(now * 1000) + life for life in random.choices(LIVES, k=len(ids))]
    is_submitted = not keeps and random.random() < 0.3

    def put(stored: ix.StoredCollection) -> object:
        items = ix.ItemBatch(ids, raw_of(stored, rows), payloads, wanted, expires)
        if not is_submitted:
            return stored.commit(stored.prepare(items, mode, keeps_payloads=keeps))
        ended, outcomes = threading.Event(), list[Any]()

        def end(outcome: object) -> None:
            outcomes.append(outcome)
            ended.set()

        stored.submit(
            lambda: (items, mode), end, lambda lead, _: threading.Thread(target=lead).start()
        )
        assert ended.wait(60)
        if isinstance(outcomes[0], Exception):
            raise outcomes[0]
        return outcomes[0]

    return put


def draw_other(random: Random) -> Write:
    """Return a deletion, or a change of payloads."""
    ids = random.sample("ab7", random.randint(1, 3))
    where: Any = ids
    if random.random() < 0.15:
        value = {"value": random.choice([1, 2])}
        where = ix.parse_filter({"must": [{"key": "n", "match": value}]})
    version = random.choice([None, 1, 2]) if where is ids and len(ids) == 1 else None
    if random.random() < 0.5:
        return lambda stored: stored.delete(where, if_version=version)
    change = random.choice(CHANGES)
    return lambda stored: stored.change_payloads(change, where, if_version=version)


def outcome_of(write: Write, stored: ix.StoredCollection) -> object:
    try:
        return write(stored)
    except ix.GcwsError as error:
        return type(error), str(error)


@pytest.mark.parametrize("config", CONFIGS, ids=["dense", "open"])
@pytest.mark.parametrize("seed", range(10))
def test_writes_of_one_commit_are_made_as_one_after_the_other(
    tmp_path: Path, config: ix.CollectionConfig, seed: int
) -> None:
    random, now = Random(seed), 1.8e9
    opened = partial(opened_catalog, policies=POLICIES, clock=lambda: now)
    with closing(opened(tmp_path / "1")) as alone, closing(opened(tmp_path / "2")) as grouped:
        one, other = (each.create("things", config)[0] for each in (alone, grouped))
        for each in (one, other):
            each.expirer.stop()  # its commits come whenever they do
        for _ in range(9):
            writes = [
                draw_put(random, now) if random.random() < 0.6 else draw_other(random)
                for _ in range(random.randint(4, 14))
            ]
            expected = [outcome_of(write, one) for write in writes]
            calls = (partial(outcome_of, write, other) for write in writes)
            assert together(other.writer, *calls) == expected
            held = one.page(limit=100, with_vector=True).items
            assert other.page(limit=100, with_vector=True).items == held
            now += random.choice([0, 0, 1, 2])
        assert other.writer.commits < one.writer.commits
        assert other.delete([]) == 0  # what has expired goes with any change
        held = one.page(limit=100, with_vector=True).items
        with other.writer.lock:  # else names are freed in the background
            copy = copied(tmp_path / "2", tmp_path / "copy", "things.sqlite")
            names = {*other.names.listed()}
        with closing(opened(copy)) as again:
            stored = again.get("things")
            assert stored.page(limit=100, with_vector=True).items == held
            assert {*stored.names.listed()} == names
