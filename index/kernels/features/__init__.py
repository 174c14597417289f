"""Fourier features, inner products and the tabulated Pólya kernels."""
