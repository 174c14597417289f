"""Ids that are permitted, and rows by id as a dictionary would have them."""

import numpy as np
import pytest

from gcws_search.index.collection.ids import MAX_ID_LENGTH, RowsById, check_ids
from gcws_search.index.contracts.errors import InvalidId


def test_ids_of_every_permitted_kind_pass() -> None:
    check_ids([])
    check_ids([None, "a", None])  # these are given one
    check_ids(["a", "x" * MAX_ID_LENGTH, "日本", "a\x00b", " ", "\U0001f600" * MAX_ID_LENGTH])


@pytest.mark.parametrize(
    ("bad", "got"),
    [
        ("", "0 characters"),
        ("x" * 256, "256 characters"),
        ("\ud800", "a lone surrogate"),
        (7, "int"),
    ],
)
def test_a_bad_id_is_named_by_its_row(bad: str, got: str) -> None:
    with pytest.raises(InvalidId) as caught:
        check_ids(["fine", bad, "fine"], first_row=10)
    assert caught.value.loc == (11, "id")
    assert got in caught.value.got


def test_rows_by_id_agree_with_a_dictionary(rng: np.random.Generator) -> None:
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
        assert rows.rows(names) == [plain.get(name) for name in names]


def test_an_unknown_id_cannot_be_removed() -> None:
    with pytest.raises(KeyError):
        RowsById(["a"]).remove("b")
