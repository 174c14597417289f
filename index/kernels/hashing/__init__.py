"""Samples and their keys, compiled.

- `randomness`: a function of seed, slot and sample
- `gcws_table`: samples and keys of dense vectors, by tabulated parameters
- `gcws_stream`: samples without a table
- `band_keys`: samples packed into 64 bits
- `binning`: random bins
- `tokens`: coordinates of texts' tokens
- `fourier`: random numbers and cosines of Fourier features
"""
