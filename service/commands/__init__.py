"""Commands that are larger than a function.

- `snapshots`: ``gcws-search snapshot``
- `container`: what the image runs
"""
