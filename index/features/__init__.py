"""Feature maps whose inner products estimate kernels.

- `fourier`: random Fourier features
- `nystroem`: Nyström features, from landmarks
"""
