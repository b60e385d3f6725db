"""Fetch sessions (KIP-227): the partitions that a consumer asked for, and the last answer for each.

A session lets a consumer name only the partitions whose position changed, and lets the gateway answer only
the partitions that have news. Source: Kafka's FetchSession and FetchManager.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from seqgate.gateway.protocol.fetch_codec import FetchPosition, TopicKey
from seqgate.gateway.runtime.partitions.partition import Partition

SESSIONLESS = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EVICTION_AGE_MS = 120_000
"""A session idle for less stays (Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS)."""


class SessionPartition(msgspec.Struct, eq=False):
    """A partition of a session: the last request for it and the last answer."""

    position: FetchPosition
    topic_name: str | None = None
    """The name of the topic, kept after its deletion; None until a topic has the consumer's topic id."""
    high_watermark: int = -1
    log_start_offset: int = -1


PartitionKey = tuple[TopicKey, int]


class FetchSession(msgspec.Struct, eq=False):
    """One consumer's fetch session. `partitions` keeps the order in which they are read."""

    session_id: int
    uses_topic_ids: bool
    last_used_ms: int
    session_epoch: int = 1
    partitions: OrderedDict[PartitionKey, SessionPartition] = msgspec.field(default_factory=OrderedDict)

    def advance(self) -> None:
        """Advance the session epoch by one, from 2³¹ − 1 to 1: Kafka's `FetchMetadata.nextEpoch`."""
        self.session_epoch = 1 if self.session_epoch == 2**31 - 1 else self.session_epoch + 1


class FetchSessionCache:
    """Holds at most `slots` sessions with at most `most_partitions`; evicts the longest idle first."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.most_partitions = 2**63 - 1
        self.partitions = 0
        """The partitions of all sessions."""
        self.evictions = 0
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def make_room(self, more: int, now_ms: int) -> bool:
        """Evict idle sessions until there is room for `more` partitions; return whether there is."""
        if more > self.most_partitions:
            return False
        while self.partitions + more > self.most_partitions:
            if not self._evict(now_ms):
                return False
        return True

    def _evict(self, now_ms: int) -> bool:
        """Evict the session that is idle for longest; return whether one was idle for long enough."""
        oldest = next(iter(self._sessions.values()), None)
        # negative after the clock was set back
        if oldest is None or abs(now_ms - oldest.last_used_ms) < EVICTION_AGE_MS:
            return False
        self.remove(oldest.session_id)
        self.evictions += 1
        return True

    def create(self, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        """Return a new session, or None when there is no room; the consumer then sends whole requests."""
        if self.slots <= 0:
            return None
        if len(self._sessions) >= self.slots and not self._evict(now_ms):
            return None
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = random.randrange(1, 2**31)
        session = FetchSession(session_id, uses_topic_ids, now_ms)
        self._sessions[session_id] = session
        return session

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def touch(self, session: FetchSession, now_ms: int) -> None:
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session.session_id)

    def remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= len(session.partitions)


class DelayedFetch:
    """Waits on partitions and completes once, by progress or by timeout (Kafka's DelayedFetch).

    Progress is `min_bytes` more bytes than at the start, in all partitions together. A partition that goes
    offline or is deleted counts as progress, too, because the reader should learn of it. While written
    records wait for their flush, every flush counts as progress, because these records may be enough. For a
    reader of committed records (`committed_only`) only a last stable offset that moved is progress.
    """

    __slots__ = (
        "_committed_only",
        "_complete",
        "_grown_bytes",
        "_lags",
        "_loop",
        "_min_bytes",
        "_partitions",
        "_sizes",
        "_stable",
        "_timer",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        partitions: Sequence[Partition],
        *,
        min_bytes: int,
        max_wait_ms: int,
        committed_only: bool = False,
        complete: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._partitions = partitions
        self._min_bytes = min_bytes
        self._complete: Callable[[], None] | None = complete
        self._sizes = [partition.log.size_bytes for partition in partitions]
        self._grown_bytes = 0
        self._committed_only = committed_only
        self._stable = self._stable_offsets()
        visible = self._stable or [partition.log.high_watermark for partition in partitions]
        self._lags = any(
            end_offset < partition.log.log_end_offset
            for end_offset, partition in zip(visible, partitions, strict=True)
        )
        for index, partition in enumerate(partitions):
            partition.watch(self, partial(self._progress, index))
        self._timer = loop.call_later(max_wait_ms / 1000, self._finish)

    def _stable_offsets(self) -> list[int]:
        if not self._committed_only:
            return []
        return [partition.log.last_stable_offset for partition in self._partitions]

    def _progress(self, index: int) -> None:
        """Check one partition for progress: all at each append would cost a large fetch too much."""
        partition = self._partitions[index]
        log = partition.log
        ended = partition.closed or log.offline
        if self._committed_only and not ended and log.last_stable_offset == self._stable[index]:
            return
        if self._min_bytes > 1 and not ended and not self._lags:
            size_bytes = log.size_bytes
            self._grown_bytes += size_bytes - self._sizes[index]
            self._sizes[index] = size_bytes
            if 0 <= self._grown_bytes < self._min_bytes:
                return
        self._finish()

    def _finish(self) -> None:
        complete, self._complete = self._complete, None
        if complete is None:
            return
        self.cancel()
        # Complete later in this turn, so that all partitions that one flush round makes visible are read
        # together.
        self._loop.call_soon(complete)

    def cancel(self) -> None:
        """Stop waiting; the callback is not called any more."""
        self._complete = None
        self._timer.cancel()
        for partition in self._partitions:
            partition.unwatch(self)
