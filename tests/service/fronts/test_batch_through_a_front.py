"""What tests of routes say of an application holds through a front too."""

from tests.service.api.test_batch import *  # noqa: F403
