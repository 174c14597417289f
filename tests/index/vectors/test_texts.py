"""Rows of texts, against scikit-learn's vectorizers."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfTransformer

import gcws_search
from gcws_search.index import CollectionConfig, InvalidVector, TextParams, Transform, VectorSpace
from gcws_search.index.vectors.texts import rows_of_texts, tokens_by_coordinate

CORPUS = [
    "The quick brown fox jumps over the lazy dog; the dog sleeps.",
    "the the THE, der die das",
    "Straße, ΣΊΣΥΦΟΣ and ﬁne İstanbul   naïve cafe\u0301",
    "日本語 テスト_1 𝒳² ½ x",
    "tab\tand\n\nnewlines\r\n  and \u00a0 blanks\u2003\u2003here",
    "a",
    "0012 12 1.5e3 under_score _ -",
    "😀😀 smile 😀",
    "word " * 5000,
]
"""The first two have stop words; the last is longer than the bytes of a block."""
SETTINGS: list[dict[str, Any]] = [
    {},
    {"weights": "counts"},
    {"lowercase": False, "weights": "counts"},
    {"ngrams": (1, 3), "weights": "counts"},
    {"ngrams": (2, 2)},
    {"stop_words": ("the", "der", "and"), "weights": "counts"},
    {"stop_words": ("The", "dog"), "ngrams": (1, 2), "lowercase": False},
    {"tokens": "characters"},
    {"tokens": "characters", "ngrams": (1, 4), "weights": "counts"},
    {"tokens": "characters", "ngrams": (16, 16), "lowercase": False},
]


def arguments(params: TextParams) -> dict[str, Any]:
    """Return the same settings as scikit-learn has them."""
    of_words = {"analyzer": "word", "token_pattern": r"(?u)\b\w+\b"}
    return {
        **(of_words if params.tokens == "words" else {"analyzer": "char"}),
        "ngram_range": params.ngrams,
        "lowercase": params.lowercase,
        "stop_words": [*params.stop_words] or None,
        "binary": params.weights == "set",
    }


def usable(params: TextParams) -> list[str]:
    """Return the texts that have an n-gram."""
    split = CountVectorizer(**arguments(params)).build_analyzer()
    return [text for text in CORPUS if split(text)]


@pytest.mark.parametrize("given", SETTINGS)
def test_rows_are_those_of_scikit_learn(given: dict[str, Any]) -> None:
    params = TextParams(**given)
    texts = usable(params)
    assert len(texts) > 1
    hashing = HashingVectorizer(
        n_features=2**31 - 1, alternate_sign=False, norm=None, **arguments(params)
    )
    expected = hashing.transform(texts).tocsr()
    expected.sort_indices()
    rows = rows_of_texts(texts, params)
    assert rows.indptr.tolist() == expected.indptr.tolist()
    assert rows.indices.tolist() == expected.indices.tolist()
    assert rows.values.tolist() == expected.data.tolist()


@pytest.mark.parametrize("given", SETTINGS)
def test_coordinates_are_named_by_the_tokens_that_scikit_learn_counts(
    given: dict[str, Any],
) -> None:
    params = TextParams(**given)
    texts = usable(params)
    counting = CountVectorizer(**arguments(params))
    matrix = counting.fit_transform(texts).toarray()
    words = counting.get_feature_names_out()
    rows, names = rows_of_texts(texts, params), tokens_by_coordinate(texts, params)
    for row in range(len(texts)):
        entries = slice(rows.indptr[row], rows.indptr[row + 1])
        tokens = [names[coordinate] for coordinate in rows.indices[entries].tolist()]
        found = Counter(dict(zip(tokens, rows.values[entries].tolist(), strict=True)))
        present = np.flatnonzero(matrix[row])
        assert found == dict(zip(words[present], matrix[row, present], strict=True))


def test_idf_is_that_of_scikit_learn() -> None:
    texts = [" ".join(CORPUS[number % 5 :][:3]) + f" n{number % 7}" for number in range(60)]
    items = gcws_search.Collection.open(":memory:", text={"weights": "idf", "ngrams": [1, 2]})
    assert items.config.transform.weights == "idf"
    items.add(texts=texts)
    items.fit()
    params = TextParams(weights="counts", ngrams=(1, 2))
    rows = (
        TfidfTransformer(norm=None)
        .fit_transform(CountVectorizer(**arguments(params)).fit_transform(texts))
        .toarray()
    )
    hits = items.query(text=texts[3], limit=60, recall=1)
    least, most = np.minimum(rows, rows[3]).sum(axis=1), np.maximum(rows, rows[3]).sum(axis=1)
    expected = dict(zip(map(str, range(60)), least / most, strict=True))
    assert dict(zip(hits.ids, hits.scores, strict=True)) == pytest.approx(expected, rel=1e-6)
    with pytest.raises(gcws_search.InvalidParameter, match="idf"):
        items.fit("max")
    with pytest.raises(gcws_search.InvalidParameter, match="idf"):
        CollectionConfig(
            dim=None, text=TextParams(weights="idf"), transform=Transform(weights="max")
        )


def test_many_texts_have_the_rows_that_each_has_alone(rng: np.random.Generator) -> None:
    words = [f"w{number}" for number in range(500)]
    texts = [" ".join(rng.choice(words, size=rng.integers(1, 60))) for _ in range(8000)]
    texts[4000] = "long " * 300_000
    params = TextParams(weights="counts", ngrams=(1, 2))
    rows = rows_of_texts(texts, params)
    assert len(rows) == len(texts)
    for row in (0, 1, 3999, 4000, 4001, 7999):
        alone = rows_of_texts([texts[row]], params)
        assert rows[row : row + 1].indices.tolist() == alone.indices.tolist()
        assert rows[row : row + 1].values.tolist() == alone.values.tolist()
    texts[7000] = "…"
    with pytest.raises(InvalidVector) as refused:
        rows_of_texts(texts, params)
    assert refused.value.loc == (7000,)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, ""),
        ({}, " -!? "),
        ({"ngrams": (2, 3)}, "one"),
        ({"stop_words": ("the",)}, "The the"),
        ({"tokens": "characters"}, ""),
        ({"tokens": "characters", "ngrams": (3, 3)}, "ab"),
    ],
)
def test_a_text_that_gives_no_row_is_refused_by_its_number(
    given: dict[str, Any], text: str
) -> None:
    space = VectorSpace.of(CollectionConfig(dim=None, text=TextParams(**given)))
    with pytest.raises(InvalidVector) as refused:
        space.from_texts(["a fine text", text])
    assert refused.value.loc == (1,)
