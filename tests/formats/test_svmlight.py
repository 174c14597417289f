"""svmlight as scikit-learn reads it; where coordinates count from; bad lines."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from gcws_search.formats.files import CHOICES, FORMATS, BadFile
from tests.support.files import items, source
from tests.support.service.client import Json

ROWS = 2500
"""More than a batch has."""


@pytest.mark.parametrize("zero_based", [True, False])
@pytest.mark.parametrize("with_queries", [True, False])
def test_rows_are_those_of_scikit_learn(
    tmp_path: Path, rng: np.random.Generator, with_queries: bool, zero_based: bool
) -> None:
    numbers = rng.normal(size=(ROWS, 40)) * (rng.random((ROWS, 40)) < 0.2)
    numbers[:, 7] = 1  # no row is empty
    matrix = sparse.csr_matrix(numbers)
    labels, queries = rng.normal(size=ROWS), np.arange(ROWS) // 7
    path = str(tmp_path / "a.svm")
    dump_svmlight_file(
        matrix,
        labels,
        path,
        zero_based=zero_based,
        query_id=queries if with_queries else None,
        comment="as scikit-learn writes it",
    )
    wanted, told = load_svmlight_file(path, zero_based=zero_based, n_features=40)
    found = items(Path(path), zero_based=zero_based)
    rows = np.zeros((ROWS, 40), np.float32)
    for row, (_, vector, _) in enumerate(found):
        rows[row, vector["indices"]] = vector["values"]
    assert np.array_equal(rows, wanted.toarray().astype(np.float32))
    assert [payload["label"] for _, _, payload in found] == told.tolist()
    if with_queries:
        assert [payload["qid"] for _, _, payload in found] == queries.tolist()
    else:
        assert all(payload.keys() == {"label"} for _, _, payload in found)


VECTOR = {"indices": [0, 2], "values": [2.5, 1]}


@pytest.mark.parametrize(
    ("line", "choice", "told", "vector"),
    [
        ("1 1:2.5 3:1", None, "from 1; the first lines have no 0, and --zero-based", VECTOR),
        ("1 0:2.5 2:1", None, "from 0", VECTOR),
        ("1 1:2.5 3:1", False, "from 1", VECTOR),
        ("1 1:2.5 3:1", True, "from 0", {"indices": [1, 3], "values": [2.5, 1]}),
    ],
)
def test_where_coordinates_count_from_is_shown(
    tmp_path: Path, line: str, choice: bool | None, told: str, vector: Json
) -> None:
    path = tmp_path / "a.svm.gz"
    path.write_bytes(gzip.compress(f"# a comment\n\n{line} # another\n".encode()))
    found = source(path, zero_based=choice)
    shown = dict(found.guess)["vector"]
    assert told in shown
    assert ("--" in shown) == ("--" in told)
    for _ in range(2):  # as often as one asks
        [batch] = found.batches()
        assert list(batch.rows.json()) == [vector]
    found.file.close()


@pytest.mark.parametrize("label", [12345678901234567890, -(10**30), 2**53 + 1])
def test_whole_labels_keep_all_digits(tmp_path: Path, label: int) -> None:
    (tmp_path / "a.svm").write_text(f"{label} 1:2\n")
    assert items(tmp_path / "a.svm")[0][2] == {"label": label}


def test_labels_may_be_several(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1,3 qid:7 1:2\n-1.5 qid:8 2:1\n")
    assert items(tmp_path / "a") == [
        (None, {"indices": [0], "values": [2]}, {"label": [1, 3], "qid": 7}),
        (None, {"indices": [1], "values": [1]}, {"label": -1.5, "qid": 8}),
    ]


@pytest.mark.parametrize("choice", CHOICES)
def test_other_files_have_no_such_choice(tmp_path: Path, choice: str) -> None:
    takers = [each.name for each in FORMATS.values() if choice in each.choices]
    assert takers
    (tmp_path / "a.fps").write_text("#FPS1\n01\tx\n")
    told: dict[str, Json] = {choice: 1}
    words = rf"expected {takers[0]}.* for {CHOICES[choice]}, got fps"
    with pytest.raises(BadFile, match=words):
        items(tmp_path / "a.fps", **told)
    assert len(items(tmp_path / "a.fps", id="")) == 1


BAD: dict[str, tuple[str, str]] = {
    "no-pairs": ("1 2 3", "expected 'label index:value"),
    "two-colons": ("1 2:3:4 5", "expected 'label index:value"),
    "word": ("1 2:x", "invalid number: .*x"),
    "grouped": ("1 2:1_000", "invalid number: .*1_000"),
    "label": ("one 2:3", "invalid number: .*one"),
    "endless-label": ("1e400 2:3", "invalid number: 1e400"),
    "long-qid": (f"1 qid:{'1' * 5000} 2:3", "expected 'label index:value"),
    "long-coordinate": (f"1 {10**30}:3", "expected 'label index:value"),
    "negative": ("1 -2:3", "expected 'label index:value"),
    "fraction": ("1 2.5:3", "expected 'label index:value"),
    "zero": ("1 0:3", "expected coordinates from 1 on.* --zero-based"),
    "twice": ("1 2:3 2:4", "distinct coordinates, got 1 twice"),
    "nan": ("1 2:nan", "expected numbers, got nan"),
    "nothing": ("1", "at least one number other than 0"),
    "zeros": ("1 2:0", "at least one number other than 0"),
    "bytes": ("1 2:\udcff", "invalid number"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_line_is_named_or_left_out(tmp_path: Path, case: str) -> None:
    line, words = BAD[case]
    path = tmp_path / "a.svm"
    path.write_text(f"1 1:2\n# a comment\n{line}\n2 3:4\n", errors="surrogateescape")
    with pytest.raises(BadFile, match=rf"a\.svm: row 1: line 3: .*{words}"):
        items(path, zero_based=False)
    found = source(path, zero_based=False, lenient=True)
    assert sum(map(len, found.batches())) == 2
    [left_out] = found.unreadable
    assert (left_out.row, left_out.text[:1]) == (1, line[:1])


def test_a_file_of_comments_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("# nothing\n")
    with pytest.raises(BadFile, match="expected lines of 'label index:value"):
        items(tmp_path / "a.svm")
