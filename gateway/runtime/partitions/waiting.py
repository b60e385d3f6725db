"""What waits for a flush: one value for Produces, coordinators and transactions.

A record batch comes back as an answer on this way, in the event loop but for the flush itself:

    Partition.append ─────────► Flusher.mark_dirty      the next round flushes the log
    Partition.when_decided ───► Flusher.wait(Waiting)   the Waiting joins the round that flushes its offset
                                ... the round flushes in worker threads ...
    Partition.flush_finished ◄─ Flusher                 the high watermark follows what is durable
    then(persisted?) ◄───────── Waiting.resolve         and now each one who waited for this round knows

A fetch that waits for records yet to be written waits for no flush: it watches the high watermark (`Partition.watch`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from log import PartitionLog


class LogOwner(Protocol):
    """Who serves a log that is flushed. The flusher calls all methods in the event loop."""

    @property
    def log(self) -> PartitionLog: ...

    def flush_finished(self) -> None:
        """Learn that a flush is over, well or badly."""

    def is_persisted(self, offset: int) -> bool:
        """Whether the log keeps its records up to `offset` from now on."""


class Waiting:
    """Waits for the flush that decides the records of one log up to `offset`."""

    __slots__ = ("_then", "offset", "owner")

    def __init__(self, owner: LogOwner, offset: int, then: Callable[[bool], None]) -> None:
        self.owner = owner
        self.offset = offset
        self._then = then

    def resolve(self) -> None:
        """Tell whether the records are persisted. Call at the end of their flush: a log that is reopened later may have
        other records at `offset`.
        """
        self._then(self.owner.is_persisted(self.offset))
