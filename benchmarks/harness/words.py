"""Vectors of words, and of sentences made of them: real numbers of high intrinsic dimension.

Words are rows of the positive pointwise mutual information of words and documents, reduced by a
truncated singular value decomposition. Source: Levy & Goldberg, "Neural Word Embedding as Implicit
Matrix Factorization" (2014): the square root of the singular values is the weight of a dimension.
"""

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Counts: TypeAlias = Any
"""A CSR matrix of documents by words; scipy is untyped."""

_ITERATIONS: Final = 5
_MIN_WORDS, _MAX_WORDS = 5, 20


def positive_information(counts: Counts) -> Counts:
    """Return max(0, ln(p(d, w) / (p(d) p(w)))) of each count of a word in a document, CSR."""
    of_documents = np.asarray(counts.sum(axis=1)).ravel()
    of_words = np.asarray(counts.sum(axis=0)).ravel()
    total = of_documents.sum()
    document = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    ratio = counts.data * total / (of_documents[document] * of_words[counts.indices])
    information = sparse.csr_matrix(
        (np.maximum(np.log(ratio), 0.0), counts.indices, counts.indptr),
        shape=counts.shape,
        copy=True,
    )
    information.eliminate_zeros()
    return information


def word_vectors(counts: Counts, dim: int) -> NDArray[np.float32]:
    """Return (words, dim): a vector a word, from counts by document and word; always the same."""
    from sklearn.decomposition import TruncatedSVD  # noqa: PLC0415  # of the extra "bench" alone

    reduced = TruncatedSVD(dim, n_iter=_ITERATIONS, random_state=0)
    scaled = reduced.fit_transform(positive_information(counts).T.tocsr())
    return np.asarray(scaled / np.sqrt(reduced.singular_values_), np.float32)


def sentences(
    words: NDArray[np.float32], counts: Counts, *, rows: int, seed: int = 1
) -> NDArray[np.float32]:
    """Return (rows, dim): means of the vectors of 5 to 20 words that come from one document.

    Words are drawn as often as the document has them.
    """
    rng = np.random.default_rng(seed)
    holders = np.flatnonzero(np.diff(counts.indptr))
    documents = rng.choice(holders, rows)
    lengths = rng.integers(_MIN_WORDS, _MAX_WORDS + 1, rows)
    before = np.concatenate([[0.0], np.cumsum(counts.data, dtype=np.float64)])
    of_token = np.repeat(documents, lengths)
    first, last = before[counts.indptr[of_token]], before[counts.indptr[of_token + 1]]
    drawn = first + rng.random(len(of_token)) * (last - first)
    entries = np.minimum(np.searchsorted(before, drawn, side="right") - 1, len(counts.data) - 1)
    starts = np.cumsum(lengths) - lengths
    vectors = np.empty((rows, words.shape[1]), np.float32)
    for column in range(words.shape[1]):  # all tokens at once would take 1 GB
        tokens = words[counts.indices[entries], column]
        vectors[:, column] = np.add.reduceat(tokens, starts) / lengths
    return vectors
