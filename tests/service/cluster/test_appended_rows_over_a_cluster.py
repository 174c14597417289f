"""What tests of rows without ids say of an application holds over a cluster too."""

from tests.service.ingest.test_appended_rows import *  # noqa: F403
