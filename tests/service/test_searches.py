"""Queries that wait at the same time: which are searched together, and what each is told."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from gcws_search.service import searches
from gcws_search.service.errors import QueueFull, Stopping
from gcws_search.service.searches import Batcher
from tests.support.service.client import URL, VECTOR, Client, Json, Serve, fill

Batch = tuple[str, list[int]]


class Searches:
    """Queries are numbers, answers ten times these; a negative number has no answer."""

    def __init__(self) -> None:
        self.batches = Batcher()
        self.calls: list[Batch] = []

    async def ask(self, number: int, group: str = "a") -> int:
        async def search(numbers: Sequence[int]) -> list[int]:
            self.calls.append((group, [*numbers]))
            await asyncio.sleep(0)
            if any(one < 0 for one in numbers):
                raise ValueError([*numbers])
            return [10 * one for one in numbers]

        if not self.batches.count_one():
            return (await search([number]))[0]
        return await self.batches.search(group, number, search)


def test_those_of_one_turn_of_the_loop_are_searched_together_and_others_alone() -> None:
    async def scenario() -> list[Batch]:
        searches = Searches()
        for number in (20, 21):
            assert await searches.ask(number) == 10 * number
        for first in (0, 5):  # the first turn shows that queries come together
            numbers = range(first, first + 5)
            answers = await asyncio.gather(*map(searches.ask, numbers))
            assert answers == [10 * number for number in numbers]
        await searches.ask(10)
        await searches.ask(11)
        return searches.calls

    found = [numbers for _, numbers in asyncio.run(scenario())]
    assert found == [[20], [21], [0], [1, 2, 3, 4], [5, 6, 7, 8, 9], [10], [11]]


def test_groups_are_apart_and_batches_bounded() -> None:
    async def scenario() -> list[Batch]:
        searches = Searches()
        await asyncio.gather(searches.ask(0), searches.ask(0))
        searches.calls.clear()
        asked = [searches.ask(number, "ab"[number % 2]) for number in range(80)]
        assert await asyncio.gather(*asked) == [10 * number for number in range(80)]
        return searches.calls

    sizes = [(group, len(numbers)) for group, numbers in asyncio.run(scenario())]
    assert sorted(sizes) == [("a", 8), ("a", 32), ("b", 8), ("b", 32)]


def test_one_that_cannot_be_answered_fails_alone() -> None:
    async def scenario() -> list[Json]:
        searches = Searches()
        await asyncio.gather(searches.ask(0), searches.ask(0))
        return await asyncio.gather(*map(searches.ask, (1, -2, 3)), return_exceptions=True)

    first, second, third = asyncio.run(scenario())
    assert (first, third) == (10, 30)
    assert isinstance(second, ValueError)
    assert second.args == ([-2],)


@pytest.mark.parametrize(
    "error", [QueueFull("searches", 1), Stopping(), OSError("of no query"), None], ids=str
)
def test_what_is_wrong_with_a_whole_batch_is_told_to_all_and_not_tried_again(
    error: Exception | None,
) -> None:
    calls = []

    async def refuse(numbers: Sequence[int]) -> list[int]:
        calls.append([*numbers])
        if error is not None:
            raise error
        return []  # too few answers

    async def scenario() -> list[Json]:
        batches = Batcher(is_of_one=lambda error: isinstance(error, ValueError))
        asked = [batches.search("a", number, refuse) for number in range(3)]
        return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 30)

    found = asyncio.run(scenario())
    assert [type(each) for each in found] == [ValueError if error is None else type(error)] * 3
    assert calls[0] == [0, 1, 2]
    assert len(calls) == 1 or error is None


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_query_whose_client_has_gone_ends_no_other(has_begun: bool) -> None:
    async def scenario() -> list[Batch]:
        searches = Searches()
        await asyncio.gather(searches.ask(0), searches.ask(0))
        searches.calls.clear()
        first, second = (asyncio.create_task(searches.ask(number)) for number in (1, 2))
        if has_begun:
            await asyncio.sleep(0)
            first.cancel()
        else:
            asyncio.get_running_loop().call_soon(first.cancel)
        assert await second == 20
        with suppress(asyncio.CancelledError):
            await first
        assert first.cancelled()
        return searches.calls

    calls = asyncio.run(scenario())
    assert has_begun or calls == [("a", [2])], "it is not searched for"


def test_what_comes_while_all_calls_are_under_way_is_searched_together() -> None:
    calls: list[list[int]] = []
    begin, ends = asyncio.Event(), asyncio.Event()

    async def search(numbers: Sequence[int]) -> list[int]:
        calls.append([*numbers])
        begin.set()
        await ends.wait()
        return [10 * one for one in numbers]

    async def scenario() -> list[int]:
        batches = Batcher(max_calls=1)
        first = batches.search("a", 0, search)
        await begin.wait()
        others = [batches.search("a", number, search, rows=20) for number in range(1, 4)]
        await asyncio.sleep(0.01)
        assert calls == [[0]]
        ends.set()
        return await asyncio.gather(first, *others)

    assert asyncio.run(scenario()) == [0, 10, 20, 30]
    assert calls == [[0], [1], [2], [3]], "two of 20 vectors are more than a call has"


FORMS: list[Json] = [
    {"vector": VECTOR, "recall": 1},
    {"vector": VECTOR, "recall": 1, "with_payload": False},
    {"vector": [1, 0, 0, 2], "recall": 1},
    {"vector": [1, 0, 0, 2], "recall": 1, "limit": 2},
    {"vector": {"indices": [3], "values": [1]}, "recall": 1},
    {"vector": VECTOR, "recall": 1, "offset": 1, "limit": 1},
    {"vector": [0, 0, 0, 0], "recall": 1},
    {"vector": [1, 2], "recall": 1},
    {"id": "a", "recall": 1},
    {"vector": VECTOR, "recall": 1, "filter": {"must": {"key": "label", "match": {"value": 3}}}},
]


@pytest.fixture
def batch_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many queries each call of the index has had; it grows."""
    sizes: list[int] = []
    search = searches.search_batch

    def counted(collection: Json, queries: Sequence[Json]) -> Json:
        sizes.append(sum(1 if one.vectors is None else len(one.vectors) for one in queries))
        return search(collection, queries)

    monkeypatch.setattr(searches, "search_batch", counted)
    return sizes


@pytest.mark.parametrize("transform", [None, {"normalize": "l1", "power": 0.5}])
def test_queries_at_once_are_answered_as_one_after_another(
    serve: Serve, transform: Json, batch_sizes: list[int]
) -> None:
    client = serve(inline_seconds=10.0)
    fill(client, **({} if transform is None else {"transform": transform}))
    alone = [client.post(f"{URL}/query", json=form) for form in FORMS]
    assert {answer.status_code for answer in alone} == {200, 422}
    batch_sizes.clear()
    for one, other in zip(
        client.at_once("POST", [(f"{URL}/query", form) for form in FORMS * 3]),
        alone * 3,
        strict=True,
    ):
        assert (one.status_code, one.json()) == (other.status_code, other.json())
    assert max(batch_sizes) > 1


def test_a_failure_of_the_index_is_each_queries_own(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = searches.search

    def failing(collection: Json, query: Json) -> Json:
        if query.params.limit == 2:
            raise RuntimeError("broken")
        return search(collection, query)

    monkeypatch.setattr(searches, "search", failing)
    bodies = [{"vector": VECTOR, "limit": limit} for limit in (1, 2, 3, 2, 1)]
    answers = client.at_once("POST", [(f"{URL}/query", body) for body in bodies])
    statuses = [answer.status_code for answer in answers]
    assert statuses == [200, 500, 200, 500, 200]


def test_each_answer_of_a_batch_has_the_whole_size_that_is_permitted(
    serve: Serve, batch_sizes: list[int]
) -> None:
    client = serve(inline_seconds=10.0, max_answer_bytes=150)
    client.put(URL, json={"dim": 4})
    large = {"id": "large", "vector": VECTOR, "payload": {"text": "x" * 60}}
    client.put(f"{URL}/items", json={"items": [large]})
    answers = client.at_once("POST", [(f"{URL}/query", {"vector": VECTOR})] * 8)
    assert [answer.status_code for answer in answers] == [200] * 8
    assert max(batch_sizes) > 1
    assert sum(batch_sizes) == 8
