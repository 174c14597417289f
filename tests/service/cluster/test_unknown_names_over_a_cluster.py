"""What tests of routes say of an application holds over a cluster too."""

from tests.service.api.test_unknown_names import *  # noqa: F403
