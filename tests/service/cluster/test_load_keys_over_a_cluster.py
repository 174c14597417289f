"""What tests of loads say of an application holds over a cluster too."""

from tests.service.ingest.test_load_keys import *  # noqa: F403
