"""What a server must hold, find and answer after its predecessor was killed."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.crashes.servers import Asking
from tests.crashes.states import BESIDE, SHARED, Item, Items, Writer, config_of, vector_of
from tests.model.shelf import Shelf

_PAGE: Final = 10_000
_ASKED: Final = 24
"""So many items are looked for by their own vectors."""
_LIMIT: Final = 5


class Lost(AssertionError):
    """A server does not hold what was acknowledged, or does not find what it holds."""


def expect(holds: object, *told: object) -> None:
    if not holds:
        raise Lost(*told)


def _answer(asking: Asking, method: str, path: str, document: Any = None) -> Any:  # noqa: ANN401
    status, answer = asking.ask(method, path, document)
    expect(status == 200, method, path, status, answer)
    return answer


def held(asking: Asking, collection: str) -> dict[str, Item]:
    path, cursor = f"/v1/collections/{collection}/items", ""
    found: dict[str, Item] = {}
    while True:
        page = _answer(asking, "GET", f"{path}?limit={_PAGE}&with_vector=true{cursor}")
        for item in page["items"]:
            expect(item["id"] not in found, "twice in the pages", item["id"])
            found[item["id"]] = vector_of(item["vector"]), item["payload"]
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


def check(port: int, writers: Sequence[Writer], random_: random.Random) -> None:
    """Compare everything a server holds with what the writers know; they go on from there."""
    with Asking(port) as asking:
        names = [each["name"] for each in _answer(asking, "GET", "/v1/collections")["collections"]]
        known = {SHARED, *(f"own-{writer.number}" for writer in writers)}
        found = {name: held(asking, name) for name in names if name in known}
        backends = _answer(asking, "GET", f"/v1/collections/{SHARED}")["backends"]
        is_beside = any(each["name"] == BESIDE for each in backends)
        for writer in writers:
            path = f"/v1/collections/own-{writer.number}/snapshots"
            snapshots = len(_answer(asking, "GET", path)["snapshots"])
            beside = writer.number == 0 and is_beside
            _settle(writer, found, beside=beside, snapshots=snapshots)
        for name, items in found.items():
            _check_answers(asking, name, items, random_)


def _settle(writer: Writer, found: Mapping[str, Items], *, beside: bool, snapshots: int) -> None:
    """See which of a writer's possible states it is; what a snapshot holds its restoring shows."""
    prefix, own = f"w{writer.number}-", f"own-{writer.number}"
    ours = {key: item for key, item in found[SHARED].items() if key.startswith(prefix)}
    items: dict[str, Items] = {SHARED: ours}
    if own in found:
        items[own] = found[own]
    for state in writer.possible:
        held = int(state.snapshot is not None)
        if (state.items, state.beside, held) == (items, beside, snapshots):
            writer.possible = [state]
            return
    told = [_difference(items, state.items) for state in writer.possible]
    states = [(state.beside, state.snapshot is not None) for state in writer.possible]
    raise Lost(f"writer {writer.number}: none of what is possible", beside, snapshots, states, told)


def _difference(found: Mapping[str, Items], wanted: Mapping[str, Items]) -> dict[str, Any]:
    """Return the items that differ, by collection; None for a collection that there is not."""
    told: dict[str, Any] = {}
    for name in {*found, *wanted}:
        ours, theirs = ({**each.get(name, {None: None})} for each in (found, wanted))
        keys = {key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key)}
        told[name] = {key: (ours.get(key), theirs.get(key)) for key in keys}
    return told


def _check_answers(asking: Asking, name: str, items: Items, random_: random.Random) -> None:
    path = f"/v1/collections/{name}"
    expect(_answer(asking, "GET", path)["items"] == len(items), "another count of", name)
    shelf = Shelf.of(config_of(0 if name == SHARED else int(name.removeprefix("own-"))))
    for key, (vector, payload) in items.items():
        shelf.put(key, vector, payload)
    asked = random_.sample(sorted(items), min(_ASKED, len(items)))
    for recall in (0.9, 1.0) if asked else ():
        queries = [
            {"vector": shelf.shown(items[key][0]), "limit": _LIMIT, "recall": recall}
            for key in asked
        ]
        answer = _answer(asking, "POST", f"{path}/query/batch", {"queries": queries})
        for key, result in zip(asked, answer["results"], strict=True):
            hits = [(hit["id"], hit["score"]) for hit in result["hits"]]
            slots = shelf.items[key].slots
            scores = shelf.scores(slots)
            expect(hits and hits[0][1] == 1.0, name, "finds not its own", key)
            expect(all(scores.get(each) == score for each, score in hits), name, key, hits)
            for hit in result["hits"]:
                expect(hit.get("payload") == items[hit["id"]][1], "another payload", hit)
            ranking = shelf.ranking(slots, limit=_LIMIT)
            expect(recall < 1 or hits == ranking, name, key, hits, ranking)
