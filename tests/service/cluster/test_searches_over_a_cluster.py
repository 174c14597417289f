"""What tests of routes say of an application holds over a cluster too."""

from tests.service.api.test_searches import *  # noqa: F403
