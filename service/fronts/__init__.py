"""Several processes, one service: fronts speak HTTP, the owner has the collections.

A front checks keys, reads and validates bodies, and writes answers. What it asks the owner goes
over a Unix socket in a folder that is this user's alone.

- `channel`: both ends of that connection, and what they say
- `app`: the application of a front; hot routes as messages, all others forwarded as streams
- `processes`: starts the processes, starts one again that ended, stops them
"""
