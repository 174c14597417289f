"""What tests of routes say of an application holds through a front too."""

from tests.service.guards.test_keys import *  # noqa: F403
