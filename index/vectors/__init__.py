"""Client numbers become rows.

- `space`: from input to arrays; what is wrong with an input; the transform
- `weights`: weights of coordinates, given or learned
- `inputs`: vectors that nobody has checked
- `texts`: the tokens of texts, and their coordinates
- `names`: names of coordinates
- `growing_rows`: rows that grow at their end, in memory or in mapped files; once more in bytes
- `quantization`: rows in 8 or 16 bits a value, for the graph
- `equal_rows`: groups of rows that are equal
"""
