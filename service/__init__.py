"""The REST service: HTTP in, HTTP out. It knows the index only by what ``index`` itself exports.

- `app`: the application, built of its parts
- `contract`: what routes call
- `server`: what every process that serves has
- `settings`: ``GCWS_*`` variables and flags
- `cli`: the command ``serve``
- `startup_answers`: what answers while the application is imported
- `file_commands`: the commands ``check`` and ``vacuum``
"""
