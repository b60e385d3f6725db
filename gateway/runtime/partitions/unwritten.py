"""Counts the appended bytes that no object is known to have. Beyond a limit producers must wait, so that a
store which does not answer fills neither the memory nor the disk.

Limits how many objects a flusher creates per second, and how many at a time. Pure: knows no clock.

Full objects take nothing from the budget. To wait would not make them fewer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from seqgate.gateway.config import Config
from seqgate.log import PartitionLog

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
        size_bytes = log.unflushed.unsent_bytes(log.segments)
        self.unsent_bytes += size_bytes - self._unsent.get(log, 0)
        self._unsent[log] = size_bytes
        if not self.is_too_much and self.size_bytes >= self._max_bytes:
            self._check()

    def sent(self, size_bytes: int) -> None:
        """Note that a round has taken all that the logs had; `size_bytes` of them are in its tickets."""
        self._unsent.clear()
        self.unsent_bytes = 0
        self.sent_bytes += size_bytes
        self._check()

    def settled(self, size_bytes: int) -> None:
        """Note that the tickets of a round are durable, or failed."""
        self.sent_bytes -= size_bytes
        self._check()

    def _check(self) -> None:
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


SOON_S: Final = 1e-4
"""A wait that is shorter is none: timers are no more exact."""


class PutLimits(NamedTuple):
    """The limits on the objects of a write-ahead log, and on the bytes that wait for them."""

    puts_per_second: float = 10.0
    puts_in_flight: int = 4
    put_max_bytes: int = 8 << 20
    """The size at which an object ends. A single larger batch has an object of its own."""
    unwritten_max_bytes: int = 64 << 20
    """Appended bytes that no object is known to have; beyond, producers are refused."""

    @classmethod
    def of(cls, config: Config) -> PutLimits:
        return cls(
            puts_per_second=config.int("seqgate.cluster.puts.per.second"),
            puts_in_flight=config.int("seqgate.cluster.puts.in.flight"),
            put_max_bytes=config.int("seqgate.cluster.put.max.bytes"),
            unwritten_max_bytes=config.int("seqgate.cluster.unwritten.max.bytes"),
        )

    @property
    def linger_s(self) -> float:
        """How long a round gathers at most while earlier objects are in flight."""
        return 1.0 / self.puts_per_second


class PutBudget:
    """A token bucket: it fills with `puts_per_second`, up to one second's puts, at least one."""

    def __init__(self, now_s: float) -> None:
        """Begin full, at a time of a clock that is never set."""
        self._filled_s = now_s
        self._tokens = float("inf")

    def wait_s(self, now_s: float, limits: PutLimits) -> float:
        """Return in how many seconds the next put may begin; 0 if it may now."""
        self._fill(now_s, limits)
        wait_s = (1.0 - self._tokens) / limits.puts_per_second
        return wait_s if wait_s > SOON_S else 0.0

    def take(self, now_s: float, limits: PutLimits) -> None:
        self._fill(now_s, limits)
        self._tokens -= 1.0

    def _fill(self, now_s: float, limits: PutLimits) -> None:
        gained = (now_s - self._filled_s) * limits.puts_per_second
        self._tokens = min(self._tokens + gained, max(1.0, limits.puts_per_second))
        self._filled_s = now_s
