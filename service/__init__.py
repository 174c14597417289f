"""The REST service: HTTP in, HTTP out. It knows the index only by what ``index`` itself exports.

- `app`: the application, built of its parts
- `contract`: what routes call
- `settings`: ``GCWS_*`` variables and flags
- `cli`: the commands ``serve``, ``check``, ``vacuum``
"""
