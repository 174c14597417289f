"""Clients that write until their server ends: what their items may be, by what it acknowledged."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tests.crashes.servers import Asking, Ended
from tests.model.shelf import CONFIGS, DIM, sparse

SHARED: Final = "shared"
"""A collection that all writers write to, each to items of its own."""
BESIDE: Final = "beside"
"""A comparison backend that comes and goes."""
CHUNK_ROWS: Final = 8
"""Rows a commit of a load."""

_IDS: Final = 60
_VALUES: Final = (-2.0, -1.5, -1.0, -0.5, -0.25, 0.25, 0.5, 1.0, 1.5, 2.0)
_ITEMS: Final = "/v1/collections/{}/items"
_MAX_AT_ONCE: Final = 20

Item = tuple[tuple[float, ...], Any]
"""A vector and a payload."""
Items = Mapping[str, Item]


def config_of(number: int) -> dict[str, Any]:
    """Return the configuration of a writer's own collection."""
    return [*CONFIGS.values()][number % len(CONFIGS)]


@dataclass(frozen=True)
class State:
    """All that one writer has made.

    ``items``: of the shared collection the writer's own items. ``beside``: whether the comparison
    backend is attached; one writer alone does that. ``snapshot``: what the one snapshot of the
    writer's own collection holds; None where there is none.
    """

    items: Mapping[str, Items] = field(default_factory=lambda: {SHARED: {}})
    beside: bool = False
    snapshot: Items | None = None

    def having(self, collection: str, items: Items | None) -> State:
        """Return the state with other items of a collection, None for no such collection."""
        others = {name: held for name, held in self.items.items() if name != collection}
        return replace(self, items=others if items is None else {**others, collection: items})


@dataclass(frozen=True)
class Request:
    """A change, and what it comes to.

    ``method``: LOAD for a request that is answered line by line, SNAPSHOT for one about the one
    snapshot there is: its name is put between ``path`` and ``document``. ``document``: JSON of the
    body; for a load the body itself. ``after``: after each step; only the last for a request that
    is all or nothing. ``status``: that the answer must have.
    """

    method: str
    path: str
    document: Any
    after: list[State]
    status: int = 200


def vector_of(answer: Any) -> tuple[float, ...]:  # noqa: ANN401
    """Return a vector as it was answered, dense."""
    if isinstance(answer, list):
        return tuple(answer)
    found = dict(zip(answer["indices"], answer["values"], strict=True))
    return tuple(found.get(place, 0.0) for place in range(max(DIM, 1 + max(found))))


class Changes:
    """Draws the changes of one writer.

    ``number``: of the writer.
    """

    def __init__(self, number: int, random_: random.Random) -> None:
        self._number = number
        self._random = random_
        self._own = f"own-{number}"
        self._version = random_.randrange(1 << 40)
        kinds: dict[Callable[[State, str], Request], int] = {
            self._upsert: 10, self._insert: 3, self._delete: 3, self._delete_one: 3,
            self._delete_where: 1, self._change: 2, self._change_where: 1, self._load: 2,
            self._recreate: 1, self._snapshot: 2,
            self._fit: 1,
        }  # fmt: skip
        if number == 0:
            kinds[self._attach] = 2
        self._kinds, self._weights = list(kinds), list(kinds.values())

    def draw(self, state: State) -> Request:
        if self._own not in state.items:
            return self._recreate(state, self._own)
        [kind] = self._random.choices(self._kinds, self._weights)
        return kind(state, self._random.choice([SHARED, self._own]))

    def _item(self, collection: str) -> tuple[Item, dict[str, Any]]:
        self._version += 1
        count = self._random.randint(1, DIM)
        vector = self._random.choices(_VALUES, k=count) + [0.0] * (DIM - count)
        self._random.shuffle(vector)
        payload = {
            "writer": self._number, "version": self._version, "n": self._random.randrange(5),
            "text": "ä" * self._random.randrange(40),
        }  # fmt: skip
        shape = config_of(0 if collection == SHARED else self._number)
        # Dense where that is possible for every other one.
        is_dense = count % 2 and shape["dim"] == DIM
        sent = vector if is_dense else sparse(vector)
        return (tuple(vector), payload), {"vector": sent, "payload": payload}

    def _ids(self, most: int = _MAX_AT_ONCE) -> list[str]:
        numbers = self._random.sample(range(_IDS), self._random.randint(1, most))
        return [f"w{self._number}-{number}" for number in numbers]

    def _put(self, state: State, collection: str, ids: list[str], mode: str) -> Request:
        items, sent = dict(state.items[collection]), []
        for item_id in ids:
            items[item_id], told = self._item(collection)
            sent.append({"id": item_id, **told})
        document = {"items": sent, "mode": mode}
        after = state.having(collection, items)
        return Request("PUT", _ITEMS.format(collection), document, [after])

    def _upsert(self, state: State, collection: str) -> Request:
        return self._put(state, collection, self._ids(), "upsert")

    def _insert(self, state: State, collection: str) -> Request:
        ids = self._ids(3)
        request = self._put(state, collection, ids, "insert")
        if state.items[collection].keys().isdisjoint(ids):
            return request
        return replace(request, after=[state], status=409)

    def _without(self, state: State, collection: str, gone: set[str]) -> list[State]:
        items = state.items[collection].items()
        return [state.having(collection, {key: each for key, each in items if key not in gone})]

    def _delete(self, state: State, collection: str) -> Request:
        ids = self._ids()
        path = f"{_ITEMS.format(collection)}/delete"
        return Request("POST", path, {"ids": ids}, self._without(state, collection, set(ids)))

    def _delete_one(self, state: State, collection: str) -> Request:
        [item_id] = self._ids(1)
        status = 204 if item_id in state.items[collection] else 404
        after = self._without(state, collection, {item_id})
        return Request("DELETE", f"{_ITEMS.format(collection)}/{item_id}", None, after, status)

    def _where(self, state: State, collection: str) -> tuple[dict[str, Any], set[str]]:
        """Return a filter on the writer's own items, and those that pass."""
        n = self._random.randrange(5)
        wanted = {"writer": self._number, "n": n}
        conditions = [{"key": key, "match": {"value": value}} for key, value in wanted.items()]
        chosen = {key for key, (_, held) in state.items[collection].items() if held["n"] == n}
        return {"filter": {"must": conditions}}, chosen

    def _delete_where(self, state: State, collection: str) -> Request:
        document, gone = self._where(state, collection)
        path = f"{_ITEMS.format(collection)}/delete"
        return Request("POST", path, document, self._without(state, collection, gone))

    def _change(self, state: State, collection: str) -> Request:
        """Merge a version into the payload of one item."""
        [item_id] = self._ids(1)
        status = 200 if item_id in state.items[collection] else 404
        return self._changed(state, collection, {item_id}, f"/{item_id}", {}, status)

    def _change_where(self, state: State, collection: str) -> Request:
        document, chosen = self._where(state, collection)
        return self._changed(state, collection, chosen, "", document)

    def _changed(
        self,
        state: State,
        collection: str,
        ids: set[str],
        path: str,
        document: dict[str, Any],
        status: int = 200,
    ) -> Request:
        self._version += 1
        change = {"version": self._version, "n": self._random.randrange(5)}
        after = state.having(
            collection,
            {
                key: (vector, {**payload, **change}) if key in ids else (vector, payload)
                for key, (vector, payload) in state.items[collection].items()
            },
        )
        path = _ITEMS.format(collection) + path
        return Request("PATCH", path, {**document, "payload": change}, [after], status)

    def _load(self, state: State, collection: str) -> Request:
        ids = [f"w{self._number}-{number}" for number in self._random.sample(range(_IDS), 30)]
        items, lines, after = dict(state.items[collection]), [], []
        for count, item_id in enumerate(ids, 1):
            items[item_id], told = self._item(collection)
            lines.append(json.dumps({"id": item_id, **told}) + "\n")
            if count % CHUNK_ROWS == 0 or count == len(ids):
                after.append(state.having(collection, dict(items)))
        path = f"/v1/collections/{collection}/load"
        return Request("LOAD", path, "".join(lines).encode(), after)

    def _recreate(self, state: State, _collection: str) -> Request:
        path = f"/v1/collections/{self._own}"
        if self._own in state.items:
            return Request("DELETE", path, None, [state.having(self._own, None)], 204)
        after = state.having(self._own, {})
        return Request("PUT", path, config_of(self._number), [after], 201)

    def _snapshot(self, state: State, _collection: str) -> Request:
        """Make the snapshot, restore it, or remove it."""
        path, held = f"/v1/collections/{self._own}/snapshots", state.snapshot
        if held is None:
            after = replace(state, snapshot=state.items[self._own])
            return Request("POST", path, None, [after], 201)
        if self._random.random() < 1 / 2:
            return Request("SNAPSHOT", path, "DELETE ", [replace(state, snapshot=None)], 204)
        return Request(
            "SNAPSHOT", path, "POST /restore?replace=true", [state.having(self._own, held)]
        )

    def _fit(self, state: State, _collection: str) -> Request:
        """Give all coordinates one weight, a power of two: no score changes, all codes do."""
        weights = [2.0 ** self._random.randint(-8, 8)] * DIM
        path = f"/v1/collections/{SHARED}/transform/fit"
        return Request("POST", path, {"weights": weights}, [state])

    def _attach(self, state: State, _collection: str) -> Request:
        path = f"/v1/collections/{SHARED}/backends"
        after = [replace(state, beside=not state.beside)]
        if state.beside:
            return Request("DELETE", f"{path}/{BESIDE}", None, after, 204)
        document = {"kind": "exact", "name": BESIDE}
        return Request("POST", path, document, after, 201)


class Writer:
    """Writes items that are its own, one request after the other.

    ``possible``: what its items may be by now: one, but while a request is under way.
    ``acknowledged``: writes that have been answered. ``unanswered``: requests that were under way
    when a server ended.
    """

    def __init__(self, number: int, seed: int) -> None:
        self.number = number
        self.possible = [State()]
        self.acknowledged = 0
        self.unanswered = 0
        self._changes = Changes(number, random.Random(f"{seed} {number}"))
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self, port: int) -> None:
        """Write until the server ends."""
        [state] = self.possible
        self._thread = threading.Thread(target=self._run, args=(port, state))
        self._thread.start()

    def join(self) -> None:
        """Wait for the server's end; raise what went wrong before."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            raise self._error

    def _run(self, port: int, state: State) -> None:
        try:
            with Asking(port) as asking:
                while True:
                    request = self._changes.draw(state)
                    self.possible = [state, *request.after]
                    self._make(asking, request)
                    state = request.after[-1]
                    self.possible = [state]
                    self.acknowledged += 1
        except Ended:
            self.unanswered += 1
        except BaseException as error:
            self._error = error

    def _make(self, asking: Asking, request: Request) -> None:
        if request.method == "LOAD":
            self._load(asking, request)
            return
        if request.method == "SNAPSHOT":
            [only] = asking.success("GET", request.path)["snapshots"]
            method, _, rest = request.document.partition(" ")
            status, answer = asking.ask(method, f"{request.path}/{only['name']}{rest}")
        else:
            status, answer = asking.ask(request.method, request.path, request.document)
        if status == 503 and answer["code"] == "shutting_down":
            raise Ended(str(answer))
        if status != request.status:
            raise AssertionError(f"{request}: {status} {answer}")

    def _load(self, asking: Asking, request: Request) -> None:
        line = None
        for done, line in enumerate(asking.lines(request.path, request.document)):
            if "seconds" not in line:
                self.possible = request.after[done:]
        if line is None or "seconds" not in line or "error" in line:
            raise Ended(f"a load was broken off: {line}")
