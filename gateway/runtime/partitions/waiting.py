"""Requests that wait for a flush: Produces, coordinators and transactions use the same value, `Waiting`.

A record batch comes back as an answer on this way, in the event loop but for the flush itself:

    Partition.append ─────────► LogFlusher.mark_dirty      the next round makes the log durable
    Partition.when_decided ───► LogFlusher.wait(Waiting)   the Waiting joins the round that has its offset
                                ... the round flushes in worker threads, or becomes objects in a bucket ...
    Partition.flush_finished ◄─ LogFlusher                 the high watermark follows what is durable
    then(persisted?) ◄───────── Waiting.resolve         and every request that waited for this round gets its result

A fetch that waits for records yet to be written waits for no flush: it watches the high watermark
(`Partition.watch`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from seqgate.log import PartitionLog


class LogOwner(Protocol):
    """The owner of a log that is flushed. The flusher calls all methods in the event loop."""

    @property
    def log(self) -> PartitionLog: ...

    def flush_finished(self) -> None:
        """Handle the end of a flush, successful or not."""

    def is_persisted(self, offset: int) -> bool:
        """Whether the log will keep its records up to `offset`."""


class Waiting:
    """A request that waits for the flush which decides about the records of one log up to `offset`."""

    __slots__ = ("_then", "offset", "owner")

    def __init__(self, owner: LogOwner, offset: int, then: Callable[[bool], None]) -> None:
        self.owner = owner
        self.offset = offset
        self._then = then

    def resolve(self) -> None:
        """Tell the request whether the records are persisted.

        Call this at the end of the flush: a log that is reopened later may hold other records at `offset`.
        """
        self._then(self.owner.is_persisted(self.offset))
