"""Whether a segment needs its files `.index` and `.timeindex`.

A clean stop of very many logs spends most of its time on files. So it writes none for a small segment that has none, whose
indexes the next load rebuilds from a few headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from log.files.storage import Storage

SMALL_BYTES: Final = 64 * 1024
"""The size of a segment up to which rebuilding its indexes takes no longer than reading them from two files."""


def are_needed(storage: Storage, segment_bytes: int, *paths: str) -> bool:
    """Return whether index files must be written: the segment is large, or there is a file at one of the paths, which may be older.

    A segment whose file may have holes always needs them, because a rebuild would fetch its bytes from the bucket.
    """
    if segment_bytes > SMALL_BYTES or storage.sparse is not None:
        return True
    return any(map(storage.exists, paths))
