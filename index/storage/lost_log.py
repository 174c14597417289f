"""Commits in a log that SQLite will not read, because bytes before them were changed.

SQLite takes the first frame with a wrong checksum for the end of the log, as after a power cut. But
a write is synced before the next one begins: where frames of a later commit follow, it was
acknowledged. The format is https://sqlite.org/fileformat2.html#walformat.
"""

from __future__ import annotations

import filecmp
import shutil
from itertools import count
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from gcws_search.index.storage.data_directory import sync_file
from gcws_search.index.storage.opened_files import LOG

Words = npt.NDArray[np.uint32]

_MAGIC: Final = 0x377F0682
"""A log's first word; one more if its checksums are of big-endian words."""
_HEADER_WORDS: Final = 8
"""Of a log: four that are not needed here, two salts, a checksum of the first six."""
_FRAME_WORDS: Final = 6
"""Before each page: its number, 0 unless it ends a commit, two salts, a checksum of the first two,
the page and all frames before."""
_FRAMES_A_READ: Final = 1024


def keep_lost_commits(path: Path) -> str | None:
    """Copy the log of a closed file if commits in it will be lost; return one clause about it.

    Raises OSError.
    """
    log = path.with_name(path.name + LOG)
    damage = _find_damage(path, log)
    if damage is None:
        return None
    for number in count(1):
        kept = log.with_name(f"{log.name}.damaged-{number}")
        if not kept.exists():
            try:
                shutil.copyfile(log, kept)
                sync_file(kept)
                sync_file(kept.parent)
            except BaseException:
                kept.unlink(missing_ok=True)
                raise
        if filecmp.cmp(log, kept, shallow=False):
            break
    return (
        f"{log.name} is damaged behind byte {damage:,}, and commits from there on are lost "
        f"(it was copied to {kept.name})"
    )


def _find_damage(path: Path, log: Path) -> int | None:
    """Return where the first frame is that cannot be read, None unless a commit follows it."""
    if not (log.is_file() and path.is_file()):
        return None
    with path.open("rb") as file:
        page_bytes = int.from_bytes(file.read(18)[16:], "big")
    page_words = (1 << 16 if page_bytes == 1 else page_bytes) // 4
    follows, commits = [np.empty(0, bool)], [np.empty(0, bool)]
    with log.open("rb") as file:
        data = file.read(4 * _HEADER_WORDS)
        if len(data) < 4 * _HEADER_WORDS or not page_words:
            return None  # nothing was written to one of them yet
        header = np.frombuffer(data, ">u4")
        order = ">u4" if header[0] == _MAGIC | 1 else "<u4"
        weights, _ = _weights(_HEADER_WORDS - 2)
        sums = header.view(order)[:-2].astype(np.uint32) @ weights
        is_header_sound = header[0] | 1 == _MAGIC | 1 and np.array_equal(sums, header[-2:])
        salts, before = header[4:6] if is_header_sound else None, header[-2:].astype(np.uint32)
        weights, carry = _weights(page_words + 2)
        frame_bytes = 4 * (_FRAME_WORDS + page_words)
        while len(data := file.read(_FRAMES_A_READ * frame_bytes)) >= frame_bytes:
            whole = memoryview(data)[: len(data) // frame_bytes * frame_bytes]
            frames = np.frombuffer(whole, ">u4").reshape(-1, frame_bytes // 4)
            if salts is None:
                salts = frames[0, 2:4]
            commits.append(frames[:, 1] != 0)
            is_of_age = (frames[:, 2:4] == salts).all(axis=1)
            words = np.delete(frames.view(order), np.s_[2:6], axis=1).astype(np.uint32)
            sums = frames[:, 4:6].astype(np.uint32)
            expected = words @ weights + np.vstack((before, sums[:-1])) @ carry
            follows.append((sums == expected).all(axis=1) & is_of_age)
            before = sums[-1]
    follow, commit = np.concatenate(follows), np.concatenate(commits)
    first = int(np.argmin([*follow, False])) if is_header_sound else 0
    if not (commit[first:-1] & follow[first + 1 :]).any():
        return None
    return 4 * _HEADER_WORDS + first * frame_bytes if is_header_sound else 0


def _weights(words: int) -> tuple[Words, Words]:
    """Return what a checksum adds of each word, and of the checksum before; modulo 2^32.

    For two words x and y: a += x + b; b += y + a.
    """
    weights = np.empty((words, 2), np.uint32)
    step = np.array([[1, 1], [1, 2]], np.uint32)
    power = np.eye(2, dtype=np.uint32)
    for x in range(words - 2, -1, -2):
        weights[x], weights[x + 1] = power.sum(axis=0), power[1]
        power = power @ step
    return weights, power
