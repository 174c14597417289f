"""Who may do what, and how much.

- `keys`: API keys (401, 403)
- `admission`: requests, bodies, memory and disk (503, 507); `execution.pools` has the 429
- `limits`: what one request may ask for (422)
"""
