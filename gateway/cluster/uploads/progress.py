"""How far uploads are, for people."""

from __future__ import annotations

from collections.abc import Callable

import msgspec


class UploadProgress(msgspec.Struct, frozen=True):
    """The content that only the session's write-ahead log has, and the end of the last round of uploads."""

    wal_objects: int
    """The objects of the log that are not deleted yet."""
    wal_bytes: int
    """The bytes of records and side files that no manifest has yet."""
    oldest_ms: int | None
    """How long the oldest of them has been in the log; None without any."""
    round_ended_ms_ago: int | None
    """How long ago the last round ended; None before the first one has ended."""
    round_took_ms: int
    error: str | None
    """Why the last round ended early, or left partitions out; None where it did neither."""
    running_ms: int | None
    """How long the present round has run; None between two rounds."""


class Rounds:
    """Notes the begin, the end and the error of the present round, or of the last one."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        """`seconds` is a clock that is never set."""
        self._seconds = seconds
        self._left_out: list[str] = []
        """Why the round could not upload partitions; one reason for each."""
        self._begun_s: float | None = None
        self._ended_s: float | None = None
        self._took_s = 0.0
        self._error: str | None = None

    def begin(self) -> None:
        self._begun_s, self._left_out = self._seconds(), []

    def left_out(self, reason: str) -> None:
        self._left_out.append(reason)

    def end(self, error: Exception | None = None) -> None:
        """Note that the present round has ended, early if there is an error."""
        now_s, reasons = self._seconds(), self._left_out
        why = None
        if error is not None:
            why = str(error) or type(error).__name__
        elif reasons:
            why = f"partitions that can't be uploaded now: {len(reasons)}; for example, {reasons[0]}"
        self._took_s = 0.0 if self._begun_s is None else now_s - self._begun_s
        self._begun_s, self._ended_s, self._error = None, now_s, why

    def progress(self, wal_objects: int, wal_bytes: int, oldest_s: float | None) -> UploadProgress:
        now_s = self._seconds()
        return UploadProgress(
            wal_objects=wal_objects,
            wal_bytes=wal_bytes,
            oldest_ms=None if oldest_s is None else _ms(now_s - oldest_s),
            round_ended_ms_ago=None if self._ended_s is None else _ms(now_s - self._ended_s),
            round_took_ms=_ms(self._took_s),
            error=self._error,
            running_ms=None if self._begun_s is None else _ms(now_s - self._begun_s),
        )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
