"""Several processes for one service: fronts serve HTTP, the owner has the collections.

A front checks keys, reads and validates bodies, and writes answers. It sends messages to the owner
over a Unix socket in a folder that only this user can access.

- `channel`: both ends of that connection, and its messages
- `app`: the application of a front; frequent routes as messages, all others forwarded as streams
- `processes`: starts, restarts and stops the processes
"""
