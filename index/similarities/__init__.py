"""Exact similarities of vectors.

- `gmm`: GMM of a query and rows
- `kernels`: the other kernels, and which of them users may name
- `distances`: sums and products over coordinates
- `polya`, `polya_curves`: kernels of random binning, exact and tabulated
- `public`: kernels as users call them
"""
