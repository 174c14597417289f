"""What tests of routes say of an application holds through a front too."""

from tests.service.api.test_health import *  # noqa: F403

del test_metrics_count_requests_searches_and_items  # noqa: F821  # HTTP itself refuses its method
