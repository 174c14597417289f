"""Ids in arrays, against a list of them and a dictionary."""

from hypothesis import example, given, strategies as st

from gcws_search.index.collection.ids import Ids

FEW = [
    *(
        "0",
        "7",
        "07",
        "-7",
        "+7",
        " 7",
        "7 ",
        "7.0",
        "1e3",
        "1_0",
        "\u0667",
        "a",
        "A",
        "a\0",
        "a\0b",
    ),
    *("999999999999999999", "1000000000000000000", "9223372036854775807", "9223372036854775808"),
    *("18446744073709551616", "日本", "é", "e\u0301", "\U0001f600" * 255, "x" * 255, "x" * 254),
]
"""Ids that could be taken for each other."""
TEXTS = st.sampled_from(FEW) | st.text(min_size=1, max_size=5) | st.integers(0, 40).map(str)
CHANGES = st.lists(st.tuples(st.booleans(), st.lists(TEXTS, unique=True, max_size=30)), max_size=12)


@given(st.lists(TEXTS, unique=True, max_size=60), st.data())
def test_the_first_rows_are_those_of_the_lowest_ids(some: list[str], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.sampled_from(range(len(some))), unique=True)) if some else []
    count = data.draw(st.integers(0, 70))
    assert Ids(some).first(rows, count) == sorted(rows, key=some.__getitem__)[:count]


@given(CHANGES)
@example([(True, FEW), (False, FEW[::2]), (True, FEW[::3]), (True, [*map(str, range(300))])])
def test_ids_are_those_of_a_list_and_a_dictionary(changes: list[tuple[bool, list[str]]]) -> None:
    ids, by_row, by_id = Ids(), list[str](), dict[str, int]()
    for puts, some in changes:
        if puts:
            by_id.update((each, row) for row, each in enumerate(some, len(by_row)))
            ids.append(some)
            by_row += some
        else:
            ids.remove(some)
            for each in some:
                by_id.pop(each, None)
        assert len(ids) == len(by_row)
        assert ids.rows([*FEW, *by_row]) == [by_id.get(each) for each in [*FEW, *by_row]]
    rows = [*range(len(by_row))][::-2]
    assert ids.of(rows) == by_row[::-2] == [ids[row] for row in rows]
    plain = [row for row in rows if by_row[row].isascii()]
    assert ids.of(33 * plain) == 33 * [by_row[row] for row in plain]
    assert [*ids] == ids[:] == by_row
    assert ids[1:-1] == by_row[1:-1]


def test_an_id_that_no_item_can_have_has_no_row() -> None:
    ids = Ids(["a", "\ufffd", "7"])
    assert ids.rows(["\ud800", "x" * 5000, "7" * 5000, ""]) == [None] * 4


def test_ids_come_and_go_a_hundred_thousand_times_in_few_slots() -> None:
    ids = Ids(["stays"])
    for number in range(1000):
        some = [f"{number} {each}" for each in range(100)]
        ids.append(some)
        ids.remove(some)
    assert ids.rows(["stays", "999 99"]) == [0, None]
    ids.append(["999 99", "999 98"])
    assert ids.rows(["999 98", "stays", "999 99"]) == [100_002, 0, 100_001]


def test_ids_of_numbers_take_few_bytes() -> None:
    numbers = [*map(str, range(10**5, 2 * 10**5))]
    ids = Ids(numbers)
    assert ids[:] == numbers
    assert ids.nbytes < 24 * len(ids)


def test_an_id_that_comes_again_takes_no_more_text() -> None:
    ids = Ids(["a long id, as addresses of pages are"] * 20)
    before = ids.nbytes
    for _ in range(40):
        ids.append(["a long id, as addresses of pages are"])
    assert ids.rows(["a long id, as addresses of pages are"]) == [59]
    assert ids.nbytes - before < 40 * 36


@given(st.lists(TEXTS, unique=True, max_size=60), TEXTS | st.just(""), st.integers(0, 70))
@example(FEW, "9223372036854775807", 0)
@example(FEW, "1" * 5000, 0)
@example(["1", "2", "13", "20", "100", "200"], "1", 0)
@example(["a", "b", "ab"], "ab", 0)
@example([*FEW, "10", "00"], "0", 3)
@example([*FEW, "日本語"], "日", 2)
def test_ids_that_begin_with_a_text_are_found(some: list[str], text: str, start: int) -> None:
    some = [*dict.fromkeys(some)]
    found = Ids(some).beginning_with(text, start, len(some))
    expected = [row for row in range(start, len(some)) if some[row].startswith(text)]
    assert found.tolist() == expected
