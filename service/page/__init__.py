"""The page in a browser: files that hold no data, and ask the API for all they show.

- `routes`: the page at the root, the API page, and their files, below an address that names them
"""
