"""Takes a partition log offline after a failed write or flush; a failed read fails only that read.

After a failed write or flush the log is offline until it is reopened: what was durable stays so, what was only written is
undecided. Source: that an fsync is never tried again, PostgreSQL's fsyncgate (2018).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import weakref
from typing import TYPE_CHECKING, Final, Generic, NoReturn, TypeVar

from log.errors import StorageFailed
from log.files.descriptors import NO_DESCRIPTORS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from log.place import LogPlace

_logger = logging.getLogger(__name__)
_PASSING_SHORTAGES: Final = frozenset({errno.ENOSPC, errno.EDQUOT, *NO_DESCRIPTORS})
"""Errors of the operating system that end once disk space, memory or descriptors are free again. A write that fails this way has
acknowledged nothing.
"""

L = TypeVar("L")


class Outage(Generic[L]):
    """The outage of one partition log; `reason` is None while the log serves."""

    __slots__ = ("_log", "_place", "_short_of_room", "reason")

    def __init__(self, place: LogPlace, log: L, short_of_room: dict[L, None]) -> None:
        """Begin online. While the outage is only a shortage, the log is in `short_of_room`."""
        self._place = place
        # A strong reference would make a cycle, which is never freed: `RecordStates` says why.
        self._log = weakref.ref(log)
        self._short_of_room = short_of_room
        self.reason: str | None = None

    def check(self) -> None:
        """Raise StorageFailed if the log is offline."""
        if self.reason is not None:
            raise StorageFailed(f"{self._place} is offline: {self.reason}")

    def fail(self, reason: str, error: BaseException | None = None) -> NoReturn:
        """Take the log offline. Raises StorageFailed."""
        self.begin(reason, error)
        raise StorageFailed(f"{self._place} is offline: {reason}")

    def begin(self, reason: str, error: BaseException | None = None) -> None:
        """Take the log offline: it refuses all requests until `PartitionLog.reopen`. The first reason stays.

        If only disk space, memory or file handles ran out, as `error` says, the owner may reopen once these are free again.
        """
        if self.reason is None:
            self.reason = reason
            log = self._log()
            if log is not None and _is_passing_shortage(error):
                self._short_of_room[log] = None
            _logger.error("%s goes offline: %s", self._place, reason)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Raise the disk's errors as StorageFailed. The log stays online, because its other bytes may be sound."""
        try:
            yield
        except OSError as error:
            raise StorageFailed(f"{self._place} can't be read: {error}") from error

    def end(self) -> None:
        """Bring the log back."""
        self.reason = None
        self._end_shortage()

    def close(self) -> None:
        """Refuse everything for good, because the log is closed."""
        self._end_shortage()
        if self.reason is None:
            self.reason = "it is closed"

    def _end_shortage(self) -> None:
        log = self._log()
        if log is not None:
            self._short_of_room.pop(log, None)


def _is_passing_shortage(error: BaseException | None) -> bool:
    """Return whether the error only says that disk space, memory or file handles ran out."""
    return isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno in _PASSING_SHORTAGES
    )
