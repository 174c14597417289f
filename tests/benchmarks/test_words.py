"""Vectors of words and sentences that benchmarks make of counts."""

import numpy as np
import pytest
from scipy import sparse

from benchmarks.harness.words import positive_information, sentences, word_vectors


def test_information_is_the_logarithm_of_how_much_more_often_a_word_comes_than_by_chance() -> None:
    counts = sparse.csr_matrix(np.array([[2.0, 0.0, 1.0], [1.0, 4.0, 0.0]]))
    found = positive_information(counts).toarray()
    # Of 8 words 3 are in the first document, 3 are the first word: 2 of them are both.
    assert found[0, 0] == pytest.approx(np.log(2 * 8 / (3 * 3)))
    assert found[0, 2] == pytest.approx(np.log(1 * 8 / (3 * 1)))
    assert found[1, 1] == pytest.approx(np.log(4 * 8 / (5 * 4)))
    assert counts.nnz == 4  # these are not touched
    assert found[1, 0] == found[0, 1] == found[1, 2] == 0  # less often than by chance, or never


def test_word_vectors_have_the_products_of_the_information_and_are_always_the_same(
    rng: np.random.Generator,
) -> None:
    pytest.importorskip("sklearn")
    counts = sparse.csr_matrix(rng.poisson(0.7, (12, 40)).astype(np.float32))
    vectors = word_vectors(counts, 12)
    u, s, _ = np.linalg.svd(positive_information(counts).toarray().T, full_matrices=False)
    expected = (u * s) @ u.T  # of rank 12 nothing is cut off
    assert vectors.shape == (40, 12)
    assert vectors @ vectors.T == pytest.approx(expected, abs=1e-4)
    assert np.array_equal(vectors, word_vectors(counts, 12))


def test_a_sentence_is_the_mean_of_words_of_one_document_drawn_as_often_as_it_has_them() -> None:
    counts = sparse.csr_matrix(np.array([[3.0, 1.0, 0.0, 0.0], [0, 0, 0, 0], [0.0, 0.0, 2.0, 2.0]]))
    found = sentences(np.eye(4, dtype=np.float32), counts, rows=4000)
    assert found.sum(axis=1) == pytest.approx(1.0)
    of_first = found[:, :2].sum(axis=1) > 0.5
    assert not found[of_first, 2:].any()
    assert not found[~of_first, :2].any()
    # 2,000 sentences of 12.5 words: the mean's standard error is below .005.
    assert of_first.mean() == pytest.approx(0.5, abs=0.04)
    assert found[of_first, 0].mean() == pytest.approx(0.75, abs=0.015)
    assert found[~of_first, 2].mean() == pytest.approx(0.5, abs=0.015)
    assert np.array_equal(found, sentences(np.eye(4, dtype=np.float32), counts, rows=4000))
