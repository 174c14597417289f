import pytest

from gcws_search.index.collection.ids import MAX_ID_LENGTH, check_ids
from gcws_search.index.contracts.errors import InvalidId


def test_ids_of_every_permitted_kind_pass() -> None:
    check_ids([])
    check_ids(["a", "x" * MAX_ID_LENGTH, "日本", "a\x00b", " ", "\U0001f600" * MAX_ID_LENGTH])


@pytest.mark.parametrize(
    ("bad", "got"),
    [
        ("", "0 characters"),
        ("x" * 256, "256 characters"),
        ("\ud800", "a lone surrogate"),
        (7, "int"),
        (None, "NoneType"),
    ],
)
def test_a_bad_id_is_named_by_its_row(bad: str, got: str) -> None:
    with pytest.raises(InvalidId) as caught:
        check_ids(["fine", bad, "fine"], first_row=10)
    assert caught.value.loc == (11, "id")
    assert got in caught.value.got
