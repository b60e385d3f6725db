"""The counts of the local cache, for people."""

from __future__ import annotations

import msgspec


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
