"""GMM of dense and sparse rows.

- `dense`, `sparse`: the sums of a query and rows
- `rows`: vectors in the form of kernels; L1 norms and transforms
- `tiled_scan`: dense rows for many queries, in tiles
- `exact_rerank`: the best rows scored in float64
"""
