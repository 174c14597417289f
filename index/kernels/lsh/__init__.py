"""Band tables, compiled.

- `tables`: build, merge and look up sorted tables
- `probe`: probe the deepest prefixes first, until the recall is proven
- `connect`: groups from one table
- `gather`: candidates by depth
- `bucket_join`: pairs that share a bucket
- `band_join`: queries and rows that share a band of another width
"""
