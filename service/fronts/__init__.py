"""Several processes, one service: fronts speak HTTP, the owner has the collections.

A front checks keys, reads and validates bodies, and writes answers. What it asks the owner goes
over a Unix socket in a folder that is this user's alone: `channel` has both ends, `messages` what
they say. `forward` streams whole HTTP requests, for all that no message is for.
"""
