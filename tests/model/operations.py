"""Seeded random requests to an application in this process, and what each must be answered."""

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from tests.model.shelf import CONFIGS, DIM, Passes, Payload, Shelf, conditions, lines, sparse
from tests.support.service.client import Client
from tests.support.service.cluster import ClusterClient

_IDS: Final = 300
_VALUES: Final = (0.0, 0.0, 0.0, -2.0, -1.0, -0.5, 0.25, 0.5, 1.0, 2.0)
_TAGS: Final = "xyz"
_ATTACHED: Final[dict[str, dict[str, int]]] = {"exact": {}, "gcws": {}, "nrff": {"features": 16}}
_SMALL: Final = 80
"""All pairs of more items take long."""


class Operations:
    """Makes one random request after the other, and compares every answer with the shelves.

    ``client``: of an application on a fresh directory; may be replaced after a restart. ``counts``:
    how often each operation was done.
    """

    def __init__(self, client: Client, seed: int) -> None:
        self.client = client
        self.shelves: dict[str, Shelf] = {}
        self.counts = Counter[str]()
        self._random = random.Random(seed)
        kinds: dict[Callable[[str], None], float] = {
            self.upsert: 20, self.insert: 6, self.append: 3, self.load: 4, self.delete: 6,
            self.delete_one: 6, self.delete_where: 2, self.change_payloads: 4, self.get: 12,
            self.page: 3, self.query: 20,
            self.query_some: 8, self.query_around: 8, self.pairs: 1, self.count: 4, self.attach: 1,
            self.detach: 1, self.fit: 0.5, self.query_attached: 4, self.drop: 0.2,
        }  # fmt: skip
        self._kinds, self._weights = list(kinds), list(kinds.values())

    def step(self) -> None:
        name = self._random.choice([*CONFIGS])
        kind: Callable[[str], None] = self.create
        if name in self.shelves:
            [kind] = self._random.choices(self._kinds, self._weights)
        self.counts[kind.__name__] += 1
        kind(name)

    def _ask(self, method: str, path: str, status: int = 200, **more: Any) -> Any:  # noqa: ANN401
        answer = self.client.request(method, f"/v1/collections{path}", **more)
        assert answer.status_code == status, (method, path, more, answer.status_code, answer.text)
        if "ndjson" in answer.headers.get("content-type", ""):
            return [json.loads(line) for line in answer.text.splitlines()]
        return answer.json() if answer.content else None

    # What is drawn

    def _vector(self) -> tuple[float, ...]:
        drawn = tuple(self._random.choices(_VALUES, k=DIM))
        return drawn if any(drawn) else (1.0, *drawn[1:])

    def _sent(self, shelf: Shelf, vector: tuple[float, ...]) -> Any:  # noqa: ANN401
        return (
            list(vector) if shelf.dim == DIM and self._random.random() < 1 / 2 else sparse(vector)
        )

    def _payload(self) -> Payload:
        if self._random.random() < 1 / 5:
            return None
        tags = self._random.sample(_TAGS, self._random.randint(0, 2))
        return {"n": self._random.randrange(5), "tags": tags, "text": "é\u0000" * 3}

    def _ids(self, most: int) -> list[str]:
        numbers = self._random.sample(range(_IDS), self._random.randint(1, most))
        return [f"i{number}" for number in numbers]

    def _condition(self) -> tuple[dict[str, Any], Passes]:
        n, tag = self._random.randrange(5), self._random.choice(_TAGS)
        return self._random.choice(conditions(n, tag))

    # Collections

    def create(self, name: str) -> None:
        self._ask("PUT", f"/{name}", 201, json=CONFIGS[name])
        self.shelves[name] = Shelf.of(CONFIGS[name])

    def drop(self, name: str) -> None:
        self._ask("DELETE", f"/{name}", 204)
        self._ask("GET", f"/{name}", 404)
        del self.shelves[name]

    def count(self, name: str) -> None:
        shelf = self.shelves[name]
        shown = self._ask("GET", f"/{name}")
        assert shown["items"] == len(shelf.items)
        assert [each["name"] for each in shown["backends"][1:]] == shelf.attached

    def fit(self, name: str) -> None:
        """One weight for all coordinates, a power of two, changes all codes and no score."""
        weights = [2.0 ** self._random.randint(-4, 4)] * DIM
        refused = self.shelves[name].dim != DIM
        path, status = f"/{name}/transform/fit", 422 if refused else 200
        answer = self._ask("POST", path, status, json={"weights": weights})
        if not refused:
            assert (answer["kind"], answer["coordinates"]) == ("list", DIM)

    # Writing

    def _put(self, name: str, ids: list[str], mode: str) -> None:
        """Put items, of which the last of an id counts; insert none of them where one is taken."""
        shelf, last = self.shelves[name], {item_id: place for place, item_id in enumerate(ids)}
        updated = len(shelf.items.keys() & last.keys())
        taken = mode == "insert" and (updated > 0 or len(last) < len(ids))
        items = [(item_id, self._vector(), self._payload()) for item_id in ids]
        sent = [
            {"id": item_id, "vector": self._sent(shelf, vector), "payload": payload}
            for item_id, vector, payload in items
        ]
        wrong = False
        if len(last) == len(ids) and self._random.random() < 1 / 3:
            for item in self._random.sample(sent, self._random.randint(1, len(sent))):
                item["if_version"] = shelf.version(item["id"])
            wrong = self._random.random() < 1 / 4
            sent[0]["if_version"] = shelf.version(ids[0]) + wrong
        path, refused = f"/{name}/items", taken or wrong
        answer = self._ask("PUT", path, 409 if refused else 200, json={"items": sent, "mode": mode})
        if refused:
            assert answer["code"] == ("version_conflict" if wrong else "item_exists")
            assert not wrong or answer["got"] == answer["expected"] - 1 == shelf.version(ids[0])
            return
        assert answer == {"inserted": len(last) - updated, "updated": updated}
        for place in sorted(last.values()):
            shelf.put(*items[place])

    def upsert(self, name: str) -> None:
        ids = self._ids(12)
        self._put(name, [*ids, *self._random.choices(ids, k=self._random.randint(0, 2))], "upsert")

    def insert(self, name: str) -> None:
        ids = self._ids(2)
        self._put(name, ids * (2 if self._random.random() < 1 / 5 else 1), "insert")

    def append(self, name: str) -> None:
        """Items without ids get numbers, and no number twice."""
        shelf = self.shelves[name]
        items = [(self._vector(), self._payload()) for _ in range(self._random.randint(1, 6))]
        sent = [
            {"vector": self._sent(shelf, vector), "payload": payload} for vector, payload in items
        ]
        answer = self._ask("PUT", f"/{name}/items", json={"items": sent})
        first, last = int(answer["ids"]["first"]), int(answer["ids"]["last"])
        assert shelf.next_number <= first == last + 1 - len(items)
        assert (answer["inserted"], answer["updated"]) == (len(items), 0)
        shelf.next_number = last + 1
        for number, item in enumerate(items, first):
            assert str(number) not in shelf.items
            shelf.put(str(number), *item)

    def load(self, name: str) -> None:
        """Some lines are no items, and are left out."""
        shelf, rejected, updated = self.shelves[name], [], set()
        sent: list[dict[str, Any]] = []
        for row, item_id in enumerate(self._ids(40)):
            vector, payload = self._vector(), self._payload()
            if self._random.random() < 1 / 10:
                rejected.append(row)
                sent.append({"id": item_id, "vector": {"indices": [0, 0], "values": [1, 2]}})
                continue
            sent.append({"id": item_id, "vector": self._sent(shelf, vector), "payload": payload})
            if item_id in shelf.items:
                updated.add(item_id)
            shelf.put(item_id, vector, payload)
        answer = self._ask(
            "POST",
            f"/{name}/load?on_error=skip",
            content=lines(sent),
            headers={"Content-Type": "application/x-ndjson"},
        )
        assert answer["updated"] == len(updated)
        assert answer["inserted"] == len(sent) - len(rejected) - len(updated)
        assert [each["row"] for each in answer["rejected"]] == rejected

    def delete(self, name: str) -> None:
        ids = self._ids(20)
        answer = self._ask("POST", f"/{name}/items/delete", json={"ids": ids})
        assert answer == {"deleted": self.shelves[name].remove(ids)}

    def change_payloads(self, name: str) -> None:
        """Merge or replace payloads, by ids or by a filter."""
        shelf, payload = self.shelves[name], self._payload()
        merge = payload is not None and self._random.random() < 1 / 2
        if self._random.random() < 1 / 4:
            document, passes = self._condition()
            chosen = [each for each, kept in shelf.items.items() if passes(kept.payload)]
            asked: dict[str, Any] = {"filter": document}
        else:
            asked = {"ids": self._ids(12)}
            chosen = [each for each in asked["ids"] if each in shelf.items]
        body = {**asked, "payload": payload, "merge": merge}
        assert self._ask("PATCH", f"/{name}/items", json=body)["updated"] == len(chosen)
        for each in chosen:
            shelf.change(each, payload, merge=merge)
            if isinstance(self.client, ClusterClient):  # puts it again
                shelf.items[each] = shelf.items.pop(each)

    def delete_one(self, name: str) -> None:
        [item_id] = self._ids(1)
        shelf, path = self.shelves[name], f"/{name}/items/{item_id}"
        if self._random.random() < 1 / 2:
            answer = self._ask("DELETE", f"{path}?if_version={shelf.version(item_id) + 1}", 409)
            assert answer["got"] == shelf.version(item_id)
            path += f"?if_version={shelf.version(item_id)}" if item_id in shelf.items else ""
        there = shelf.remove([item_id])
        self._ask("DELETE", path, 204 if there else 404)

    def delete_where(self, name: str) -> None:
        document, passes = self._condition()
        shelf = self.shelves[name]
        gone = [item_id for item_id, kept in shelf.items.items() if passes(kept.payload)]
        answer = self._ask("POST", f"/{name}/items/delete", json={"filter": document})
        assert answer["deleted"] == shelf.remove(gone) == len(gone)

    # Reading

    def get(self, name: str) -> None:
        [item_id] = self._ids(1)
        shelf = self.shelves[name]
        kept = shelf.items.get(item_id)
        answer = self._ask("GET", f"/{name}/items/{item_id}", 404 if kept is None else 200)
        if kept is not None:
            expected = {"vector": shelf.shown(kept.vector), "payload": kept.payload}
            assert answer == {"id": item_id, **expected, "version": kept.version}

    def page(self, name: str) -> None:
        """All items, those that pass a filter, or some by their ids."""
        shelf, limit = self.shelves[name], self._random.choice([30, 100, 1000])
        with_vector = self._random.random() < 1 / 2
        asked: dict[str, Any] = {"limit": limit, "with_vector": with_vector}
        document, passes = self._condition()
        ids = self._ids(20)
        which = self._random.choice(["all", "passing", "some"])
        if which == "passing":
            asked["filter"] = json.dumps(document)
            found = sum(passes(kept.payload) for kept in shelf.items.values())
            answer = self._ask("POST", f"/{name}/count", json={"filter": document})
            assert answer["count"] == found
        elif which == "some":
            asked["ids"] = ",".join(ids)
        seen, more = [], True
        while more:
            page = self._ask("GET", f"/{name}/items", params=asked)
            seen += page["items"]
            asked["cursor"] = more = page["next_cursor"]
            assert len(page["items"]) == limit or not more
        assert seen == [
            {"id": item_id}
            | ({"vector": shelf.shown(kept.vector)} if with_vector else {})
            | {"payload": kept.payload, "version": kept.version}
            for item_id, kept in shelf.items.items()
            if which == "all" or (passes(kept.payload) if which == "passing" else item_id in ids)
        ]

    def _check_hits(self, name: str, hits: list[Any], expected: list[tuple[str, float]]) -> None:
        assert [(hit["id"], hit["score"]) for hit in hits] == expected
        self._check_payloads(name, hits)

    def _check_payloads(self, name: str, hits: list[Any]) -> None:
        for hit in hits:
            shelf = self.shelves[name]
            kept = shelf.items[hit["id"]]
            assert hit.get("payload") == kept.payload
            assert "vector" not in hit or hit["vector"] == shelf.shown(kept.vector)

    def query(self, name: str) -> None:
        """Several queries at once, one of them of an item there is."""
        shelf, limit = self.shelves[name], self._random.randint(1, 20)
        unfiltered = (None, lambda _: True)
        document, passes = self._condition() if self._random.random() < 1 / 3 else unfiltered
        vectors = [self._vector() for _ in range(self._random.randint(1, 4))]
        if shelf.items:
            vectors.append(self._random.choice(list(shelf.items.values())).vector)
        least = self._random.choice([0.0, 0.0, 0.25, 0.5])
        more = {"limit": limit, "recall": 1, "filter": document, "min_score": least}
        more["with_vector"] = self._random.random() < 1 / 4
        queries = [{"vector": self._sent(shelf, vector), **more} for vector in vectors]
        answer = self._ask("POST", f"/{name}/query/batch", json={"queries": queries})
        for vector, result in zip(vectors, answer["results"], strict=True):
            slots = shelf.slots(vector)
            expected = shelf.ranking(slots, limit=limit, passes=passes, min_score=least)
            self._check_hits(name, result["hits"], expected)
            assert all(("vector" in hit) == more["with_vector"] for hit in result["hits"])

    def query_some(self, name: str) -> None:
        """Less than all may be found, and an item by its own vector always is."""
        shelf = self.shelves[name]
        if not shelf.items:
            return
        wanted = self._random.choice(list(shelf.items))
        kept = shelf.items[wanted]
        query = {"vector": self._sent(shelf, kept.vector), "limit": len(shelf.items)}
        query["recall"] = self._random.choice([0.5, 0.9, 0.99])
        hits = self._ask("POST", f"/{name}/query", json=query)["hits"]
        scores = shelf.scores(kept.slots)
        assert wanted in {hit["id"] for hit in hits}
        assert all(hit["score"] == scores[hit["id"]] for hit in hits)
        ranked = [(-hit["score"], hit["id"]) for hit in hits]
        assert ranked == sorted(set(ranked))
        self._check_payloads(name, hits)

    def query_around(self, name: str) -> None:
        [item_id] = self._ids(1)
        shelf, limit = self.shelves[name], self._random.randint(1, 10)
        kept = shelf.items.get(item_id)
        query = {"id": item_id, "limit": limit, "recall": 1}
        answer = self._ask("POST", f"/{name}/query", 404 if kept is None else 200, json=query)
        if kept is not None:
            expected = shelf.ranking(kept.slots, limit=limit, without=item_id)
            self._check_hits(name, answer["hits"], expected)

    def pairs(self, name: str) -> None:
        shelf = self.shelves[name]
        if len(shelf.items) > _SMALL:
            return
        min_score = self._random.choice([0.4, 0.75, 1.0])
        answer = self._ask("POST", f"/{name}/pairs", json={"min_score": min_score, "recall": 1})
        assert [(each["a"], each["b"], each["score"]) for each in answer] == shelf.pairs(min_score)

    # Comparison backends

    def attach(self, name: str) -> None:
        free = [kind for kind in _ATTACHED if f"my-{kind}" not in self.shelves[name].attached]
        if free:
            kind = self._random.choice(free)
            document = {"kind": kind, "name": f"my-{kind}", "params": _ATTACHED[kind]}
            self._ask("POST", f"/{name}/backends", 201, json=document)
            self.shelves[name].attached.append(f"my-{kind}")

    def detach(self, name: str) -> None:
        attached = self.shelves[name].attached
        if attached:
            gone = self._random.choice(attached)
            self._ask("DELETE", f"/{name}/backends/{gone}", 204)
            attached.remove(gone)

    def query_attached(self, name: str) -> None:
        """With all items as candidates nothing is missed, whatever is estimated."""
        shelf = self.shelves[name]
        for backend in shelf.attached:
            vector, recall = self._vector(), 0.9 if backend == "my-nrff" else 1
            query = {"vector": self._sent(shelf, vector), "recall": recall, "backend": backend}
            query["candidates"] = 2 * _IDS
            hits = self._ask("POST", f"/{name}/query", json=query)["hits"]
            expected = shelf.ranking(shelf.slots(vector), limit=10)
            self._check_hits(name, hits, expected)

    # All of it

    def check(self) -> None:
        shown = self._ask("GET", "")["collections"]
        assert {each["name"] for each in shown} == set(self.shelves)
        for name in self.shelves:
            for look in (self.count, self.page, self.query, self.query_some, self.query_attached):
                look(name)
