"""HTTP itself: JSON routes, dispatch, envelope, timeouts, responses, problems, the OpenAPI page."""
