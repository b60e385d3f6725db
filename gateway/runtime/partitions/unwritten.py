"""Counts the appended bytes that no object is known to have. Beyond a limit producers must wait, so that a store which does not
answer fills neither the memory nor the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from log import PartitionLog

logger = logging.getLogger(__name__)


class Unwritten:
    """The unwritten bytes of all logs. `is_too_much` becomes False again once half of the limit is free."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._unsent: dict[PartitionLog, int] = {}
        self.unsent_bytes = 0
        """The appended bytes that no flush ticket has."""
        self.sent_bytes = 0
        """The bytes of flush tickets whose objects are not confirmed."""
        self.is_too_much = False
        self.when_changed: list[Callable[[bool], None]] = []
        """Called with `is_too_much` when it changes."""

    @property
    def size_bytes(self) -> int:
        """The appended bytes that are in no confirmed object."""
        return self.unsent_bytes + self.sent_bytes

    def appended(self, log: PartitionLog) -> None:
        """Count the bytes that were appended to a log."""
        size_bytes = log.unflushed.unsent_bytes(log.segments)
        self.unsent_bytes += size_bytes - self._unsent.get(log, 0)
        self._unsent[log] = size_bytes
        if not self.is_too_much and self.size_bytes >= self._max_bytes:
            self._look()

    def sent(self, size_bytes: int) -> None:
        """Note that a round has taken all that the logs had; `size_bytes` of them are in its tickets."""
        self._unsent.clear()
        self.unsent_bytes = 0
        self.sent_bytes += size_bytes
        self._look()

    def settled(self, size_bytes: int) -> None:
        """Note that the tickets of a round are durable, or failed."""
        self.sent_bytes -= size_bytes
        self._look()

    def _look(self) -> None:
        limit = self._max_bytes // 2 if self.is_too_much else self._max_bytes
        is_too_much = self.size_bytes >= limit
        if is_too_much == self.is_too_much:
            return
        self.is_too_much = is_too_much
        if is_too_much:
            logger.error(
                "%d bytes of records are not in the bucket yet: producers are refused until half of them are "
                "(seqgate.cluster.unwritten.max.bytes)",
                self.size_bytes,
            )
        else:
            logger.info("the bucket has caught up, %d bytes of records are not in it yet", self.size_bytes)
        for changed in self.when_changed:
            changed(is_too_much)
