"""The row of one partition in the answer to a Fetch, where it has no records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from seqgate.gateway.handlers.records import fetch
from seqgate.gateway.protocol.fetch_codec import FetchPosition, FetchRequest
from seqgate.log import PartitionLog, StorageFailed
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import Node, open_node


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path) as node:
        await create(node, "t")
        yield node


def fetched(node: Node, version: int, position: FetchPosition) -> Any:
    """Return the row of the partition in the answer to a fetch."""
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        positions={("t", 0): position},
        forgotten=[],
        replica_id=-1,
    )
    frame = fetch.begin(node.context(fetch.API, version), request)
    assert isinstance(frame, bytes)
    response, _ = entity_reader(load_response_schema(1, version))(frame, 9 if version >= 12 else 8)
    return response.responses[0].partitions[0]


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (4, ErrorCode.not_leader_or_follower),
        (5, ErrorCode.not_leader_or_follower),
        (6, ErrorCode.kafka_storage_error),
    ],
)
async def test_old_versions_do_not_know_the_storage_error(
    node: Node, version: int, error: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise StorageFailed("a test says so")

    monkeypatch.setattr(PartitionLog, "find", fails)
    assert fetched(node, version, FetchPosition(0, 1 << 20, -1, -1)).error_code is error


async def test_an_offset_below_the_start_is_out_of_range_though_epochs_diverge(node: Node) -> None:
    partition = node.services.partitions.registry.get("t", 0)
    assert partition is not None
    log = partition.log
    log.epochs.assign(1, 0), log.epochs.assign(3, 5)
    log.log_start_offset = 3
    row = fetched(node, 12, FetchPosition(3, 1 << 20, -1, 2))
    assert (row.error_code, row.diverging_epoch.epoch) == (ErrorCode.none, 1)
    assert fetched(node, 12, FetchPosition(2, 1 << 20, -1, 2)).error_code is ErrorCode.offset_out_of_range
