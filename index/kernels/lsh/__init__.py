"""Band tables, compiled.

- `tables`: built, merged, looked up
- `probe`: deepest prefixes first, until the recall is proven
- `connect`: groups from one table
- `gather`: candidates by depth
- `bucket_join`: pairs that share a bucket
- `band_join`: queries and rows that share a band of another width
"""
