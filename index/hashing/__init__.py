"""Samples, codes and bands.

- `gcws`: samples (i*, t*) of a vector; the exact collision law
- `random_binning`: samples that collide as Pólya's kernels say
- `banding`: bands of samples, their keys, what they promise
"""
