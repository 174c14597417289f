"""Exact similarities: GMM first, then the other kernels, and GMM as an estimator of correlation."""
