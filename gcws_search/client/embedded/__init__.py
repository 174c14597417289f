"""A collection of this process: in a file, or in memory.

- `operations`: what a collection can do, here
- `files`: the file, and the folder that it shares with others
"""
