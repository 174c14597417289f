"""The REST service: HTTP in, HTTP out. It knows the index only by what ``index`` itself exports."""
