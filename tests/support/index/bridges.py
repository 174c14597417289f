"""The links of rows once others are gone, in plain Python."""

from collections.abc import Mapping, Sequence

BRIDGES = 4
"""Links that replace a lost one, at most."""
WALKED = 64
"""Deleted rows that are looked at behind one link, at most."""


def bridged(
    row: int, own: Sequence[int], deleted: Mapping[int, Sequence[int]], width: int
) -> list[int]:
    """Return a row's links: those that remain, then the first rows behind each that is gone.

    ``own``: its links, those to deleted rows included. ``deleted``: the links of deleted rows.
    ``width``: no row has more links.
    """
    found = [each for each in own if each not in deleted]
    for lost in (each for each in own if each in deleted):
        last = min(len(found) + BRIDGES, width)
        walked = [lost]
        for step in walked:
            for behind in deleted[step]:
                if len(found) == last:
                    break
                if behind in deleted:
                    if len(walked) < WALKED and behind not in walked:
                        walked.append(behind)
                elif behind != row and behind not in found:
                    found.append(behind)
    return found
