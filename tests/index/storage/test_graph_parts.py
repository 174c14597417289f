"""Lists of links as bytes: by key, in parts, of several moments."""

import numpy as np
import pytest

from gcws_search.index.contracts.arrays import Int32s, Int64s, UInt8s
from gcws_search.index.contracts.saved_index import NO_ROW, UNKNOWN
from gcws_search.index.storage.graph_parts import (
    PART_SEQUENCES,
    join_parts,
    pack,
    parts_of,
    rows_of_part,
    unpack,
)

Lists = dict[int, list[int]]
"""The keys that each key's list names."""


def some_links(rng: np.random.Generator, n: int, width: int) -> Int32s:
    """Return lists without gaps, of any length, the empty one included."""
    links = rng.integers(0, n, (n, width)).astype(np.int32)
    lengths = rng.integers(0, width + 1, n)
    return np.where(np.arange(width) < lengths[:, None], links, NO_ROW).astype(np.int32)


def some_keys(rng: np.random.Generator, n: int, spread: int) -> Int64s:
    return np.cumsum(rng.integers(1, spread + 1, n))


def named(keys: Int64s, links: Int32s) -> Lists:
    return {
        int(key): [int(keys[row]) for row in row_links if row >= 0]
        for key, row_links in zip(keys, links, strict=True)
    }


def bytes_of(part: int, keys: Int64s, alive: UInt8s, links: Int32s) -> bytes | None:
    rows = rows_of_part(part, keys)
    return pack(rows, keys, alive, links[rows])


def kept(keys: Int64s, alive: UInt8s, links: Int32s) -> dict[int, bytes]:
    found = {part: bytes_of(part, keys, alive, links) for part in parts_of(keys)}
    return {part: data for part, data in found.items() if data is not None}


def all_alive(keys: Int64s) -> UInt8s:
    return np.ones(len(keys), np.uint8)


# Keys of 4 and of 8 bytes, looked up in a table and by search.
@pytest.mark.parametrize("spread", [1, 3, 1000, 1 << 33])
@pytest.mark.parametrize("width", [1, 2, 9])
def test_lists_are_found_again_under_other_rows(
    rng: np.random.Generator, spread: int, width: int
) -> None:
    keys = some_keys(rng, 3000, spread)
    links = some_links(rng, len(keys), width)
    parts = kept(keys, all_alive(keys), links)
    stay = np.sort(rng.choice(len(keys), 2000, replace=False))
    later = np.append(keys[stay], keys[-1] + 1 + np.arange(5))
    restored, deleted = join_parts(later, [unpack(each, data) for each, data in parts.items()])

    before, names = named(keys, links), dict(enumerate(later.tolist()))
    for number, own in enumerate(np.concatenate([restored, deleted])):
        if number in names and names[number] in before:
            for found, name in zip(own[own >= 0].tolist(), before[names[number]], strict=True):
                assert names.setdefault(found, name) == name
    assert len({*names.values()}) == len(names)
    assert np.flatnonzero(restored[:, 0] == UNKNOWN).tolist() == [*range(2000, 2005)]
    assert restored.shape == (len(later), width)


def test_the_lists_of_dead_rows_remain(rng: np.random.Generator) -> None:
    keys = some_keys(rng, 100, 2)
    links, alive = some_links(rng, 100, 4), all_alive(keys)
    links[5], links[10], links[15] = [10, 3, NO_ROW, NO_ROW], [15, 7, 8, NO_ROW], NO_ROW
    alive[[10, 15]] = 0
    [(number, data)] = kept(keys, alive, links).items()
    rows = np.flatnonzero(alive)
    restored, deleted = join_parts(keys[rows], [unpack(number, data)])
    ten, three, *_ = restored[5].tolist()
    assert three == 3
    fifteen, *others = deleted[ten - len(rows)].tolist()
    assert others == [7, 8, NO_ROW]
    assert (deleted[fifteen - len(rows)] == NO_ROW).all()  # it had none


def test_rows_without_a_list_and_dead_ones_that_name_nothing_are_left_out(
    rng: np.random.Generator,
) -> None:
    keys = some_keys(rng, 100, 2)
    links, alive = some_links(rng, 100, 4), all_alive(keys)
    alive[10:20], links[10:15, 0], links[15:20], links[30:35, 0] = 0, 1, NO_ROW, UNKNOWN
    [part] = [unpack(each, data) for each, data in kept(keys, alive, links).items()]
    gone = {*range(15, 20), *range(30, 35)}
    assert part.sequences.tolist() == [
        key for row, key in enumerate(keys.tolist()) if row not in gone
    ]


def test_a_part_without_lists_is_none(rng: np.random.Generator) -> None:
    keys = np.arange(1, 2 * PART_SEQUENCES, dtype=np.int64)
    links, alive = some_links(rng, len(keys), 2), all_alive(keys)
    alive[: PART_SEQUENCES - 1], links[: PART_SEQUENCES - 1] = 0, NO_ROW
    assert parts_of(keys) == [0, 1]
    assert bytes_of(0, keys, alive, links) is None
    assert bytes_of(2, keys, alive, links) is None


def test_without_parts_every_list_is_unknown() -> None:
    keys = np.array([3, 7], np.int64)
    assert join_parts(keys, [])[0].tolist() == [[UNKNOWN], [UNKNOWN]]
    assert join_parts(keys[:0], [])[0].shape == (0, 1)


def test_many_parts_are_joined(rng: np.random.Generator) -> None:
    keys = np.arange(1, 40 * PART_SEQUENCES, dtype=np.int64)
    links = some_links(rng, len(keys), 3)
    parts = kept(keys, all_alive(keys), links)
    assert len(parts) == 40
    restored, _ = join_parts(keys, [unpack(each, data) for each, data in parts.items()])
    np.testing.assert_array_equal(restored, links)


def test_parts_of_several_widths_are_joined(rng: np.random.Generator) -> None:
    keys = np.arange(1, PART_SEQUENCES + 100, dtype=np.int64)
    narrow, wide = some_links(rng, len(keys), 2), some_links(rng, len(keys), 5)
    parts = [bytes_of(0, keys, all_alive(keys), narrow), bytes_of(1, keys, all_alive(keys), wide)]
    assert all(parts)
    restored, _ = join_parts(keys, [unpack(each, data or b"") for each, data in enumerate(parts)])
    first = PART_SEQUENCES - 1
    assert (restored[:first, :2] == narrow[:first]).all()
    assert (restored[:first, 2:] == NO_ROW).all()
    assert (restored[first:] == wide[first:]).all()


def test_any_damage_is_noticed(rng: np.random.Generator) -> None:
    keys = some_keys(rng, 5, 2)
    data = bytes_of(0, keys, all_alive(keys), some_links(rng, 5, 3))
    assert data is not None
    for place in range(len(data)):
        flipped = data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
        with pytest.raises(ValueError, match=r"."):
            unpack(0, flipped)
        with pytest.raises(ValueError, match=r"."):
            unpack(0, data[:place])
    with pytest.raises(ValueError, match="checksum"):
        unpack(0, data + b"\x00")
