"""From ids to rows, as a dictionary would have it."""

import numpy as np
import pytest

from gcws_search.index.collection.rows_by_id import RowsById


def test_it_agrees_with_a_dictionary(rng: np.random.Generator) -> None:
    names = [f"item {number}" for number in range(500)]
    rows, plain = RowsById(names[:100]), {name: row for row, name in enumerate(names[:100])}
    for first in range(100, 4000, 10):
        some = [names[i] for i in rng.choice(500, 10, replace=False)]
        rows.put(some, first)
        plain.update({name: first + place for place, name in enumerate(some)})
        gone = names[int(rng.integers(500))]
        if gone in plain:
            rows.remove(gone)
            del plain[gone]
        assert len(rows) == len(plain)
        assert [rows.get(name) for name in names] == [plain.get(name) for name in names]


def test_an_unknown_id_cannot_be_removed() -> None:
    with pytest.raises(KeyError):
        RowsById(["a"]).remove("b")
