"""Fourier features, inner products and the tabulated Pólya kernels.

- `fourier`: cosines of random projections
- `inner_product`: the best rows by inner product
- `polya_curve`: a tabulated function of a distance
"""
