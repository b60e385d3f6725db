"""A fetch session ends with the request that removes its last partition."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.records import fetch
from seqgate.gateway.handlers.records.fetch import Fetch, open_fetch
from seqgate.gateway.protocol.fetch_codec import FetchPosition, FetchRequest
from seqgate.gateway.runtime.partitions.fetch_sessions import SESSIONLESS, SessionPartition
from tests.gateway.handlers.support import Node, open_node

VERSION = 12
PLACE = ("t", 0)
POSITION = FetchPosition(15, 1 << 20, -1, -1)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as opened:
        yield opened


def forgetting(node: Node, positions: dict[tuple[str, int], FetchPosition]) -> Fetch:
    """Remove the only partition of a session in a request that names `positions`; the session must end."""
    session = node.services.partitions.fetch_sessions.create(False, node.clock.now_ms())
    assert session is not None
    session.partitions[PLACE] = SessionPartition(POSITION)
    node.services.partitions.fetch_sessions.partitions += 1
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=session.session_id,
        session_epoch=session.session_epoch,
        positions=dict(positions),
        forgotten=[PLACE],
        replica_id=-1,
    )
    context = node.context(fetch.API, VERSION)
    found, error = open_fetch(context, request)
    assert error is ErrorCode.none
    assert found is not None
    assert found.grouped([])[0] == SESSIONLESS
    assert node.services.partitions.fetch_sessions.get(session.session_id) is None
    return found


async def test_partitions_that_the_last_request_names_are_read_once_more(node: Node) -> None:
    assert dict(forgetting(node, {PLACE: POSITION}).wanted()) == {PLACE: POSITION}


async def test_a_last_request_without_partitions_reads_nothing(node: Node) -> None:
    assert not dict(forgetting(node, {}).wanted())
