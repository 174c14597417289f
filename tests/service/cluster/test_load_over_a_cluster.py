"""What tests of loads say of an application holds over a cluster too."""

from tests.service.ingest.test_load import *  # noqa: F403
