"""The command line; each command is imported when it is called.

- `app`: the list of commands and their modules
- `options`: what commands share: options, errors, printed answers, progress on a terminal
- `load`: files into a collection
- `query`: ``query``, ``find``, ``explain``, ``compare``, ``backends`` and ``recall``
- `items`: ``create``, ``fit``, ``get``, ``count``, ``delete`` and ``payload``
- `groups`: ``groups`` and ``pairs`` of near-duplicates; ``join`` with the rows of a file
- `server`: ``collections``, ``names``, ``export``, ``health``, ``version``, ``snapshot``; of files
  alone ``check`` and ``vacuum``
- `dedupe`: near-duplicates of files, without a server
- `bulk`: ``bulk load`` and ``bulk drop``: files into a new collection of a cluster
- `demo`: a server with three collections
"""
