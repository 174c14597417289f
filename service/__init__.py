"""The REST service: HTTP in, HTTP out. It knows the index only by what ``index`` itself exports.

- `app`: the application, built of its parts
- `contract`: what routes call
- `server`: what every process that serves has
- `settings`: ``GCWS_*`` variables and flags
- `cli`: the commands ``serve``, ``check``, ``vacuum``
- `snapshot_commands`: ``gcws-search snapshot``
"""
