"""Where work runs.

- `pools`: bounded pools of threads, a full queue is refused (429); puts awaited on the event loop
- `searches`: searches of this process's collections
- `startup`: kernels compiled and collections opened in the background
"""
