"""Rows with 8 or 16 bits per value, compiled.

- `quantize`: converts floats to bytes or int16
- `l1_distance`: sums of absolute differences of bytes
- `rows`: approximate GMM scores for the graph
- `scan`: the exact scan by byte copies
- `folded`: rows that may be near enough, by sums of groups of coordinates in bytes
"""
