"""How far uploads are, for people."""

from __future__ import annotations

import msgspec


class UploadProgress(msgspec.Struct, frozen=True):
    """The content that only the write-ahead log of the session has, and the end of the last round of uploads."""

    wal_objects: int
    """The objects of the log that are not deleted yet."""
    wal_bytes: int
    """The bytes of records and side files that no manifest has yet."""
    oldest_ms: int | None
    """How long the oldest of them has been in the log; None without any."""
    round_ended_ms_ago: int | None
    """How long ago the last round ended; None before the first one has ended."""
    round_took_ms: int
    """How long the last round took."""
    error: str | None
    """Why the last round ended early, or left partitions out; None where it did neither."""
    running_ms: int | None
    """How long the present round has run; None between two rounds."""
