"""What tests of routes say of an application holds through a front too."""

from tests.service.api.test_query import *  # noqa: F403
