"""What tests of routes say of an application holds through a front too."""

from tests.service.guards.test_limits import *  # noqa: F403

del test_bodies_under_way_are_counted_together_and_given_back  # noqa: F821  # by each process
