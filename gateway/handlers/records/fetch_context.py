"""Chooses the partitions that a fetch reads and those that its answer names, for whole requests and for
sessions (KIP-227).

    session id  session epoch   the fetch is
    0           −1              whole, without a session
    0           0               whole, and asks for a session
    n           −1              whole, and ends session n
    n           0               whole, and replaces session n
    n           e > 0           incremental in session n, when e is its next epoch

Source: Kafka's FetchManager.newContext and its FetchContext classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.api import RequestContext
from gateway.handlers.records.fetch_rights import FetchRights
from gateway.protocol.fetch_codec import FetchRow, TopicRows
from gateway.protocol.fetch_request import FetchPosition, FetchRequest
from gateway.runtime.partitions.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SESSIONLESS,
    FetchSession,
    PartitionKey,
    SessionPartition,
)
from gateway.runtime.services import PartitionServices

FIRST_SESSION_VERSION = 7
FIRST_TOPIC_ID_VERSION = 13


class FetchContext:
    """A fetch without a session, or the first of one: every partition that it names is read and answered."""

    rights: FetchRights | None = None
    """The rights of the client; None where it may read everything."""

    def __init__(
        self, positions: dict[PartitionKey, FetchPosition], *, wants_session: bool, uses_topic_ids: bool
    ) -> None:
        self.positions = positions
        self.wants_session = wants_session
        self.uses_topic_ids = uses_topic_ids

    @property
    def count(self) -> int:
        """Return the number of partitions to read."""
        return len(self.positions)

    @property
    def session_id(self) -> int:
        """The id of the session that the fetch belongs to already."""
        return SESSIONLESS

    def wanted(self) -> Iterable[tuple[PartitionKey, FetchPosition]]:
        """Return the partitions to read, in order."""
        return self.positions.items()

    def known_name(self, key: PartitionKey) -> str | None:
        """Return the name that the fetch session has kept for a topic id; None without a session."""
        del key
        return None

    def answer(
        self, rows: Sequence[tuple[PartitionKey, FetchRow]], context: RequestContext[PartitionServices]
    ) -> tuple[int, list[TopicRows]]:
        """Return the session id for the answer, and its rows by topic."""
        session_id = SESSIONLESS
        if self.wants_session:
            room = context.services.fetch_sessions.room
            session = None
            if room.has(len(rows)):
                session = context.services.fetch_sessions.create(
                    self.uses_topic_ids, context.node.clock.now_ms()
                )
            if session is not None:
                room.partitions += len(rows)
                session_id = session.session_id
                registry = context.services.registry
                for key, row in rows:
                    cached = SessionPartition(self.positions[key])
                    cached.topic_name = registry.name_of(key[0])
                    _has_news(cached, row)
                    session.partitions[key] = cached
        return session_id, by_topic(rows)


class IncrementalFetchContext(FetchContext):
    """A fetch in a session: all partitions of the session are read, those with news are answered."""

    def __init__(self, session: FetchSession) -> None:
        super().__init__({}, wants_session=False, uses_topic_ids=session.uses_topic_ids)
        self.session = session

    @property
    def count(self) -> int:
        return len(self.session.partitions)

    @property
    def session_id(self) -> int:
        return self.session.session_id

    def wanted(self) -> Iterable[tuple[PartitionKey, FetchPosition]]:
        return [(key, cached.position) for key, cached in self.session.partitions.items()]

    def known_name(self, key: PartitionKey) -> str | None:
        cached = self.session.partitions.get(key)
        return None if cached is None else cached.topic_name

    def answer(
        self, rows: Sequence[tuple[PartitionKey, FetchRow]], context: RequestContext[PartitionServices]
    ) -> tuple[int, list[TopicRows]]:
        news = []
        partitions = self.session.partitions
        for key, row in rows:
            cached = partitions.get(key)
            if cached is None:
                continue
            if cached.topic_name is None:
                cached.topic_name = context.services.registry.name_of(key[0])
            if not _has_news(cached, row):
                continue
            news.append((key, row))
            if row.records:
                # partitions that got data go last, so that every partition has its turn
                partitions.move_to_end(key)
        return self.session.session_id, by_topic(news)


def open_context(
    context: RequestContext[PartitionServices], request: FetchRequest
) -> tuple[FetchContext | None, ErrorCode]:
    """Return the context of a fetch request, or the error that answers the whole request."""
    version = context.api_version
    uses_topic_ids = version >= FIRST_TOPIC_ID_VERSION
    if version < FIRST_SESSION_VERSION:
        return FetchContext(request.positions, wants_session=False, uses_topic_ids=False), ErrorCode.none
    cache = context.services.fetch_sessions
    if request.session_epoch in {FINAL_EPOCH, INITIAL_EPOCH}:
        if request.session_id != SESSIONLESS:
            cache.remove(request.session_id)
        wants_session = request.session_epoch == INITIAL_EPOCH
        whole = FetchContext(request.positions, wants_session=wants_session, uses_topic_ids=uses_topic_ids)
        return whole, ErrorCode.none
    session = cache.get(request.session_id)
    if session is None:
        return None, ErrorCode.fetch_session_id_not_found
    if session.session_epoch != request.session_epoch:
        return None, ErrorCode.invalid_fetch_session_epoch
    if session.uses_topic_ids != uses_topic_ids:
        return None, ErrorCode.fetch_session_topic_id_error
    if not cache.room.has(sum(key not in session.partitions for key in request.positions)):
        # a client without a session sends whole requests
        cache.remove(session.session_id)
        return None, ErrorCode.fetch_session_id_not_found
    before = len(session.partitions)
    _update(session, request)
    cache.room.partitions += len(session.partitions) - before
    cache.touch(session, context.node.clock.now_ms())
    if not session.partitions:
        cache.remove(session.session_id)
        # A partition that the request both names and forgets is read once more.
        whole = FetchContext(request.positions, wants_session=False, uses_topic_ids=uses_topic_ids)
        return whole, ErrorCode.none
    session.advance()
    return IncrementalFetchContext(session), ErrorCode.none


def _update(session: FetchSession, request: FetchRequest) -> None:
    """Add the named partitions to the session and drop the forgotten partitions."""
    for key, position in request.positions.items():
        cached = session.partitions.get(key)
        if cached is None:
            session.partitions[key] = SessionPartition(position)
        else:
            cached.position = position
    for key in request.forgotten:
        session.partitions.pop(key, None)


def _has_news(cached: SessionPartition, row: FetchRow) -> bool:
    return cached.has_news(
        row.error_code,
        len(row.records),
        row.high_watermark,
        row.log_start_offset,
        row.diverging_epoch is not None or row.preferred_read_replica >= 0,
    )


def by_topic(rows: Sequence[tuple[PartitionKey, FetchRow]]) -> list[TopicRows]:
    """Group consecutive rows of the same topic."""
    topics: list[tuple[str | bytes, list[FetchRow]]] = []
    for (topic_key, _), row in rows:
        if not topics or topics[-1][0] != topic_key:
            topics.append((topic_key, []))
        topics[-1][1].append(row)
    return list(topics)
