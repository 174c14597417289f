"""The REST service: HTTP in, HTTP out. It knows the index only by what ``index`` itself exports.

- `app`: the application, built of its parts
- `http`: from a request to its endpoint
- `errors`: what can go wrong before the index is asked
- `problems`: errors as RFC 9457 answers, each with its status
- `models`: what bodies are made of, and how JSON becomes one, a long one in pieces
- `responses`: content types, answers as bytes
- `contract`: queries on their way to a collection
- `messages`: what processes say of each other
- `keys`: who may do what (401, 403)
- `limits`: how much one request may ask for, and all together (422, 503, 507)
- `metrics`: numbers as Prometheus reads them
- `pools`: bounded pools of threads, a full queue is refused (429); writes awaited on the event loop
- `searches`: queries answered together by one call; searches of this process's collections
- `startup`: kernels compiled and collections opened in the background
- `server`: what every process that serves has
- `settings`: ``GCWS_*`` variables and flags
- `cli`: the command ``serve``
"""
