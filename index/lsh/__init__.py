"""Hash tables over bands.

- `band_keys`: from vectors to band keys
- `tables`: sorted segments of keys, merged as they grow
- `probe`: search by tables until the recall is proven
- `gather`: candidates by depth, without a proof
"""
