"""Samples, codes and bands.

- `gcws`: samples (i*, t*) of a vector; the exact collision law
- `banding`: bands of samples, their keys and collision probabilities
"""
