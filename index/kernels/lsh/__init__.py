"""Band tables, compiled.

- `tables`: built, merged, looked up
- `probe`: deepest prefixes first, until the recall is proven
- `gather`: candidates by depth
- `bucket_join`: pairs that share a bucket
"""
