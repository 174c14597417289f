"""Comparison methods: search by other estimates than GCWS, in NumPy.

- `fourier`: random Fourier features
- `nystroem`: Nyström features, from landmarks
- `feature_backend`: search by inner products of features
- `binning`: samples of random binning
- `binning_backend`: search by tables of random bins
"""
