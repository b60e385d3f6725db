"""The bytes of records that members of share groups acquire count as fetched."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.handlers.support import open_node
from tests.gateway.runtime.share_requests import SETTINGS, TOPIC, begin, fetch, write


async def test_acquired_records_count_once(tmp_path: Path) -> None:
    async with open_node(tmp_path, *SETTINGS) as node:
        topic_id = await begin(node)
        await write(node, 3)
        partition = node.services.partitions.registry.get(TOPIC, 0)
        assert partition is not None
        answer = await fetch(node, topic_id)
        (row,) = answer.responses[0].partitions
        assert partition.fetched_bytes == len(row.records) == partition.log.size_bytes
        await fetch(node, topic_id, session_epoch=1)
        assert partition.fetched_bytes == len(row.records), "nothing more could be acquired"
