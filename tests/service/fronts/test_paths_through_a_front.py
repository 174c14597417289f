"""What tests of routes say of an application holds through a front too."""

from tests.service.http.test_paths import *  # noqa: F403
