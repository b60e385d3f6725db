"""The fetch session that a request continues: how it ends, and how it finds room."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.records import fetch
from seqgate.gateway.handlers.records.fetch import Fetch, open_fetch
from seqgate.gateway.protocol.fetch_codec import FetchPosition, FetchRequest
from seqgate.gateway.runtime.partitions.fetch_sessions import (
    EVICTION_AGE_MS,
    SESSIONLESS,
    FetchSession,
    SessionPartition,
)
from tests.gateway.handlers.support import Node, open_node

VERSION = 12
PLACE = ("t", 0)
POSITION = FetchPosition(15, 1 << 20, -1, -1)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as opened:
        yield opened


def begun(node: Node) -> FetchSession:
    """Return a new session with one partition."""
    cache = node.services.partitions.fetch_sessions
    session = cache.create(False, node.clock.now_ms())
    assert session is not None
    session.partitions[PLACE] = SessionPartition(POSITION)
    cache.partitions += 1
    return session


def continuing(
    node: Node,
    session: FetchSession,
    positions: dict[tuple[str, int], FetchPosition],
    forgotten: Sequence[tuple[str, int]] = (),
) -> tuple[Fetch | None, ErrorCode]:
    """Return the fetch of the session's next request."""
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=session.session_id,
        session_epoch=session.session_epoch,
        positions=dict(positions),
        forgotten=list(forgotten),
        replica_id=-1,
    )
    return open_fetch(node.context(fetch.API, VERSION), request)


def forgetting(node: Node, positions: dict[tuple[str, int], FetchPosition]) -> Fetch:
    """Remove the only partition of a session in a request that names `positions`; the session must end."""
    session = begun(node)
    found, error = continuing(node, session, positions, [PLACE])
    assert error is ErrorCode.none
    assert found is not None
    assert found.grouped([])[0] == SESSIONLESS
    assert node.services.partitions.fetch_sessions.get(session.session_id) is None
    return found


async def test_partitions_that_the_last_request_names_are_read_once_more(node: Node) -> None:
    assert dict(forgetting(node, {PLACE: POSITION}).wanted()) == {PLACE: POSITION}


async def test_a_last_request_without_partitions_reads_nothing(node: Node) -> None:
    assert not dict(forgetting(node, {}).wanted())


async def test_a_session_that_grows_after_a_pause_gets_the_room_of_another(node: Node) -> None:
    cache = node.services.partitions.fetch_sessions
    cache.most_partitions = 2
    growing, idle = begun(node), begun(node)
    node.clock.time_ms += EVICTION_AGE_MS
    found, error = continuing(node, growing, {("t", 1): POSITION})
    assert (error, found is None) == (ErrorCode.none, False)
    assert cache.get(idle.session_id) is None
    assert (cache.get(growing.session_id), cache.partitions) == (growing, 2)
