"""The caches of a bucket on the local disk: where those of its workers are, and what a cache counts.

The workers' caches are directories in the data directory, beside a file with their number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

CACHES: Final = "caches"
COUNT: Final = "count"
"""The file in `caches` with the number of workers of the last start; more directories may be there."""
_PRIVATE: Final = 0o700


def cache_of(root: Path, number: int) -> Path:
    """Return the data directory of a worker, which counts from 1."""
    return root / CACHES / str(number)


def begin_caches(root: Path, count: int) -> None:
    """Create the directory of the caches, and write the number of workers. Raises OSError."""
    directory = root / CACHES
    for path in (root, directory):
        path.mkdir(_PRIVATE, parents=True, exist_ok=True)
    (directory / COUNT).write_text(f"{count}\n")


def caches_in(root: Path) -> list[Path]:
    """Return the data directories of the workers that were started last; none without workers of a bucket."""
    try:
        count = int((root / CACHES / COUNT).read_text())
    except (OSError, ValueError):
        return []
    return [cache_of(root, number) for number in range(1, count + 1)]


class CacheState(msgspec.Struct, frozen=True):
    """The blocks and bytes of segments on the local disk, and those that came and went since the start."""

    local_bytes: int
    """The bytes of segments on the local disk, as of the last check."""
    max_bytes: int | None
    """The limit of `local_bytes`; None where only the disk limits them."""
    blocks_fetched: int
    """The blocks of 1 MiB that were fetched from the bucket."""
    blocks_waited_for: int
    """Those of them that a thread waited for, because nobody had fetched them before."""
    bytes_evicted: int
