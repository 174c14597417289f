"""What tests of routes say of an application holds through a front too."""

from tests.service.ingest.test_load_progress import *  # noqa: F403
