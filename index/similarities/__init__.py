"""Exact similarities of vectors.

- `gmm`: GMM of one or many vectors and others
- `kernels`: the other kernels
- `polya`: kernels of random binning, exact and tabulated
- `public`: kernels as users call and name them
"""
