"""The page in a browser: files that hold no data, and ask the API for all they show.

- `assets`: the files of the page, in memory, below an address that names their contents
- `routes`: the page at the root, the API page, and their files
"""
