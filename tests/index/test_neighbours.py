"""Through how many tables walks enter."""

import pytest

from index.neighbours import entered


@pytest.mark.parametrize(
    ("rows", "bands", "tables"),
    [
        (0, 32, 8), (150_000, 32, 8), (150_001, 32, 16), (1_000_000, 32, 16),
        (2_000_000, 32, 32), (10**9, 32, 32), (10**6, 12, 12), (10**6, 4, 4), (1000, 4, 4),
    ],
)  # fmt: skip
def test_the_more_rows_the_more_tables_as_far_as_there_are(
    rows: int, bands: int, tables: int
) -> None:
    assert entered(rows, bands) == tables
