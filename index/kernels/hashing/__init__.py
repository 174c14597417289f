"""Samples and their keys, compiled.

- `randomness`: a function of seed, slot and sample
- `gcws_table`: samples and keys of dense vectors, with tabulated parameters
- `gcws_stream`: samples without a table
- `band_keys`: samples packed into 64 bits
- `binning`: random bins
- `tokens`: coordinates of texts' tokens
- `ids`: ids in arrays, and the hash table that finds their rows
- `fourier`: random numbers and cosines of Fourier features
"""
