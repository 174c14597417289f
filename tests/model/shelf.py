"""What a collection must hold and answer, in a dict and by brute force.

Values are few binary fractions: sums are exact, scores are equal to the bit, and ties are many.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

DIM: Final = 8
CONFIGS: Final[dict[str, dict[str, Any]]] = {
    "dense": {"dim": DIM, "backend": {"kind": "gcws", "params": {"bands": 8}}},
    "sparse": {"dim": None, "backend": {"kind": "gcws", "params": {"bands": 8}}},
    "squared": {"dim": DIM, "transform": {"power": 2.0}, "backend": {"kind": "gcws"}},
    "coded": {
        "dim": 100_000, "backend": {"kind": "gcws", "params": {"bands": 8, "encoding": "b_bit"}}
    },
    "scanned": {"dim": DIM, "backend": {"kind": "exact"}},
}  # fmt: skip
Payload = dict[str, Any] | None
Passes = Callable[[Payload], bool]
Slots = NDArray[np.float64]


@dataclass(frozen=True)
class Kept:
    """An item: its vector as it is answered, its slots after the transform, payload, version."""

    vector: tuple[float, ...]
    slots: Slots
    payload: Payload
    version: int = 1


@dataclass
class Shelf:
    """The items of one collection in the order in which they were put."""

    dim: int | None
    power: float = 1.0
    items: dict[str, Kept] = field(default_factory=dict)
    attached: list[str] = field(default_factory=list)
    next_number: int = 0
    """No item without an id gets a lesser one."""

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Shelf":
        return cls(config["dim"], config.get("transform", {}).get("power", 1.0))

    def slots(self, vector: Iterable[float]) -> Slots:
        """Return the 2D non-negative form of a vector under the collection's transform."""
        row = np.array(tuple(vector))
        slots: Slots = np.stack([np.maximum(row, 0), np.maximum(-row, 0)], axis=1).reshape(-1)
        return slots**self.power

    def put(self, item_id: str, vector: tuple[float, ...], payload: Payload) -> None:
        """Put an item behind all others."""
        version = self.version(item_id) + 1
        self.items.pop(item_id, None)
        self.items[item_id] = Kept(vector, self.slots(vector), payload, version)

    def version(self, item_id: str) -> int:
        """Return the version of an item, 0 where there is none."""
        return self.items[item_id].version if item_id in self.items else 0

    def change(self, item_id: str, payload: Payload, *, merge: bool) -> None:
        """Give an item another payload, in its place."""
        old = self.items[item_id]
        new = {**(old.payload or {}), **(payload or {})} if merge else payload
        self.items[item_id] = replace(old, payload=new, version=old.version + 1)

    def remove(self, ids: Iterable[str]) -> int:
        """Remove items; return how many there were."""
        return sum(self.items.pop(item_id, None) is not None for item_id in ids)

    def scores(self, query: Slots) -> dict[str, float]:
        if not self.items:
            return {}
        rows = np.stack([kept.slots for kept in self.items.values()])
        scores = np.minimum(rows, query).sum(1) / np.maximum(rows, query).sum(1)
        return dict(zip(self.items, scores.tolist(), strict=True))

    def ranking(
        self,
        query: Slots,
        *,
        limit: int,
        passes: Passes = lambda _: True,
        without: str | None = None,
        min_score: float = 0.0,
    ) -> list[tuple[str, float]]:
        """Return the best items that pass, best first, equal scores by id."""
        ranked = sorted(
            (-score, item_id)
            for item_id, score in self.scores(query).items()
            if item_id != without and score >= min_score and passes(self.items[item_id].payload)
        )
        return [(item_id, -score) for score, item_id in ranked[:limit]]

    def pairs(self, min_score: float) -> list[tuple[str, str, float]]:
        """Return all pairs at least so much alike, by falling score, then by ids."""
        found = []
        ids = sorted(self.items)
        for place, a in enumerate(ids):
            scores = self.scores(self.items[a].slots)
            found += [(-scores[b], a, b) for b in ids[place + 1 :] if scores[b] >= min_score]
        return [(a, b, -score) for score, a, b in sorted(found)]

    def shown(self, vector: tuple[float, ...]) -> Any:  # noqa: ANN401
        """Return a vector as the service shows it."""
        return list(vector) if self.dim == DIM else sparse(vector)


def conditions(n: int, tag: str) -> list[tuple[dict[str, Any], Passes]]:
    """Return filters, and what passes them."""
    matches, tagged = (
        {"key": key, "match": {"value": value}} for key, value in (("n", n), ("tags", tag))
    )
    lacking = {"key": "tags", "match": {"any": [tag, 7]}}

    def number(payload: Payload) -> int:
        return int((payload or {}).get("n", -1))

    def has(payload: Payload) -> bool:
        return tag in (payload or {}).get("tags", ())

    return [
        ({"must": [{"key": "n", "range": {"gte": n}}]}, lambda payload: number(payload) >= n),
        ({"should": [matches, tagged]}, lambda payload: number(payload) == n or has(payload)),
        ({"must_not": [lacking]}, lambda payload: not has(payload)),
    ]


def sparse(vector: Sequence[float]) -> Mapping[str, Any]:
    places = [place for place, value in enumerate(vector) if value]
    return {"indices": places, "values": [vector[place] for place in places]}


def lines(items: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(item) + "\n" for item in items).encode()
