"""Classify counts with scikit-learn: by neighbours under GMM, and linearly on GMM features.

Needs the extra `learn`.
"""

import numpy as np
from sklearn.linear_model import RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from gcws_search.sklearn import GcwsFeatures, GmmKNeighborsTransformer


def main() -> None:
    """Tell three kinds of count profiles apart."""
    rng = np.random.default_rng(3)
    kinds = rng.integers(0, 3, size=900)
    profiles = rng.gamma(0.5, size=(3, 40))
    counts = rng.poisson(2 * profiles[kinds])
    learn, test = slice(0, 600), slice(600, None)
    neighbours = make_pipeline(
        GmmKNeighborsTransformer(n_neighbors=5),
        KNeighborsClassifier(n_neighbors=5, metric="precomputed"),
    )
    linear = make_pipeline(GcwsFeatures(samples=256, bits=8), RidgeClassifier())
    for name, model in (("neighbours", neighbours), ("linear", linear)):
        share = model.fit(counts[learn], kinds[learn]).score(counts[test], kinds[test])
        print(f"{name}: {share:.2f} of the test profiles")


if __name__ == "__main__":
    main()
