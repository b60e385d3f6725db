"""Fetch sessions (KIP-227): the partitions that a consumer asked for, and the last answer for each.

A session lets a consumer name only the partitions whose position changed, and lets the gateway answer only the
partitions that have news.
Source: Kafka's FetchSession and FetchManager.
"""

from __future__ import annotations

import random
from collections import OrderedDict

from gateway.protocol.fetch_codec import FetchPosition, TopicKey

SESSIONLESS = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EVICTION_AGE_MS = 120_000
"""A session idle for less than this is not evicted for a new one (Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS)."""


class SessionPartition:
    """A partition of a session: the last request for it and the last answer."""

    __slots__ = ("high_watermark", "log_start_offset", "position", "topic_name")

    def __init__(self, position: FetchPosition) -> None:
        self.position = position
        self.topic_name: str | None = None
        """The name of the topic, kept after its deletion; None until a topic has the consumer's topic id."""
        self.high_watermark = -1
        self.log_start_offset = -1

    def has_news(
        self, error_code: int, record_bytes: int, high_watermark: int, log_start_offset: int, must_tell: bool
    ) -> bool:
        """Whether the incremental answer must name this partition; remembers the new answer.

        `must_tell`: the answer has a diverging epoch or a preferred read replica. Without an error, −1 stands for a watermark that is not
        known yet, which is no news.
        """
        news = record_bytes > 0 or must_tell
        if high_watermark != self.high_watermark and (high_watermark >= 0 or error_code):
            self.high_watermark = high_watermark
            news = True
        if log_start_offset != self.log_start_offset and (log_start_offset >= 0 or error_code):
            self.log_start_offset = log_start_offset
            news = True
        if error_code:
            # −1 never equals a real watermark, so the next answer names the partition again until the error is gone
            self.high_watermark = -1
            news = True
        return news


class SessionRoom:
    """The number of partitions that the fetch sessions of all clients hold, and its limit."""

    __slots__ = ("limit", "partitions")

    def __init__(self, limit: int = 2**63 - 1) -> None:
        self.limit = limit
        self.partitions = 0

    def has(self, more: int) -> bool:
        """Whether there is room for `more` partitions."""
        return self.partitions + more <= self.limit


PartitionKey = tuple[TopicKey, int]


class FetchSession:
    """One consumer's fetch session. `partitions` keeps the order in which they are read."""

    __slots__ = ("last_used_ms", "partitions", "session_epoch", "session_id", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.session_epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.last_used_ms = now_ms
        self.partitions: OrderedDict[PartitionKey, SessionPartition] = OrderedDict()

    def advance(self) -> None:
        """Advance the session epoch by one. After 2³¹ − 1 follows 1, as in Kafka's `FetchMetadata.nextEpoch`."""
        self.session_epoch = 1 if self.session_epoch == 2**31 - 1 else self.session_epoch + 1


class FetchSessionCache:
    """Holds at most `slots` sessions and evicts the longest idle first.

    `room` limits the partitions of all sessions.
    """

    def __init__(self, slots: int, room: SessionRoom | None = None) -> None:
        self.slots = slots
        self.room = room or SessionRoom()
        self.evictions = 0
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        """Return a new session, or None when there is no room; the consumer then sends whole requests."""
        if self.slots <= 0:
            return None
        if len(self._sessions) >= self.slots:
            oldest = next(iter(self._sessions.values()))
            if now_ms - oldest.last_used_ms < EVICTION_AGE_MS:
                return None
            self.remove(oldest.session_id)
            self.evictions += 1
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
            self.room.partitions -= len(session.partitions)
