"""Comparison methods: search by other estimates than GCWS, in NumPy.

- `features`: random Fourier features; Nyström features, from landmarks; search by inner products
- `random_binning`: samples of random binning, and search by tables of them
"""
