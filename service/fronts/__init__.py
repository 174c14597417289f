"""Several processes, one service: fronts speak HTTP, the owner has the collections.

A front checks keys, reads and validates bodies, and writes answers. What it asks the owner goes
over a Unix socket in a folder that is this user's alone.

- `messages`: queries, requests and answers as messages
- `owner`: the owner's side of a connection: what has come together is searched together
- `forward`: whole HTTP requests as streams, for all that no message is for
- `app`: the application of a front
- `processes`: starts the processes, starts one again that ended, stops them
"""
