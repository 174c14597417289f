"""The command line; each command is imported when it is called.

- `app`: which commands exist, and where each is
- `options`: what commands share: options, errors, printed answers
- `load`: files into a collection
- `collections`: ``collections``, ``names`` and ``export``
- `query`: ``query``, ``explain`` and ``compare``
- `snapshots`: ``snapshot``
- `server`: ``health`` and ``version``
- `demo`: a server with three collections
- `bars`: progress on a terminal
"""
