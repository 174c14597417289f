"""Converts the numbers of clients to rows.

- `space`: converts input to arrays, checks it, applies the transform
- `weights`: weights of coordinates, given or learned
- `inputs`: unchecked vectors
- `texts`: the tokens of texts, and their coordinates
- `names`: names of coordinates
- `growing_rows`: growing arrays of rows, in memory or in mapped files; their byte copies
- `quantization`: rows with 8 or 16 bits per value, for the graph
- `equal_rows`: groups of equal rows
"""
