"""Which file handles of the process are for connections, and which for files.

Were connections to take the last one, no segment could be opened any more, and partitions would go offline.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SPARE: Final = 64
"""For what is open for a moment, listeners, the event loop, and the worker of compaction."""
FEWEST: Final = 8
"""What either gets even where there is too little."""


class FileHandles(NamedTuple):
    """How many connections and data files may be open at once."""

    connections: int
    files: int


def shared_out(limit: int, wanted_files: int) -> FileHandles:
    """Of the `limit` of a process (RLIMIT_NOFILE), files get what they want, but at most half."""
    available = max(limit - SPARE, 2 * FEWEST)
    files = max(FEWEST, min(wanted_files, available // 2))
    return FileHandles(connections=available - files, files=files)
