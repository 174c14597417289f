"""Python imports this at its start, in processes that Ray starts too."""

from tests.crashes.cluster_points import watch_imports

watch_imports()
