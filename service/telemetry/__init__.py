"""What the service reports.

- `metrics`: numbers as Prometheus reads them
- `logs`: log lines
"""
