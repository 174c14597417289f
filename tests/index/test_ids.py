import pytest

from index.errors import InvalidId
from index.ids import MAX_ID_LENGTH, check_ids, id_of


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


def test_an_integer_means_its_decimal_string() -> None:
    assert [id_of(0), id_of(-5), id_of(2**62), id_of("007")] == ["0", "-5", str(2**62), "007"]


@pytest.mark.parametrize("bad", [True, 1.0, None, [], "", 10**300])
def test_what_is_neither_string_nor_integer_is_no_id(bad: object) -> None:
    with pytest.raises(InvalidId):
        id_of(bad, row=3)
