"""What tests of routes say of an application holds over a cluster too."""

from tests.service.api.test_backends import *  # noqa: F403
