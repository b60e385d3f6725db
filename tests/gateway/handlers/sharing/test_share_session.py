"""Acknowledgements of several partitions in one request."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqgate.gateway.runtime.partitions.partition import Partition
from seqgate.log import Appended
from seqgate.log.format.records import NewRecord, build_batch
from tests.gateway.handlers.asking import Asking
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import NOW_MS, open_node
from tests.gateway.runtime.share_requests import GROUP, SETTINGS, beat, begin
from tests.support.wire import Plain

PARTITIONS = range(4)
RELEASE = 2


async def test_they_share_one_write_of_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So their flush is waited for once, however many partitions the request has."""
    async with open_node(tmp_path, *SETTINGS) as node:
        await begin(node)
        await create(node, "t", len(PARTITIONS))
        await beat(node, "a", 0, "t")
        topic = node.services.partitions.registry.by_name["t"]
        for index in PARTITIONS:
            partition = topic.get(index)
            assert partition is not None
            info = partition.append(build_batch([NewRecord(b"v", timestamp=NOW_MS)]), NOW_MS)
            assert await partition.persisted(info.last_offset)

        def rows(*said: Plain) -> list[Plain]:
            places = [
                {"partition_index": index, "acknowledgement_batches": list(said)} for index in PARTITIONS
            ]
            return [{"topic_id": str(topic.topic_id), "partitions": places}]

        member = {"group_id": GROUP, "member_id": "a", "is_renew_ack": False}
        client = Asking(node)
        fetched = await client.ask(
            "share_fetch",
            2,
            **member,
            share_session_epoch=0,
            max_wait=0,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=500,
            batch_size=500,
            share_acquire_mode=0,
            topics=rows(),
            forgotten_topics_data=[],
        )
        found = fetched["responses"][0]["partitions"]
        assert [len(row["acquired_records"]) for row in found] == [1] * len(PARTITIONS)
        plain, written = Partition.append, []

        def append(partition: Partition, *said: object, **named: object) -> Appended:
            written.append(partition.topic)
            return plain(partition, *said, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(Partition, "append", append)
        released = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [RELEASE]}
        answer = await client.ask(
            "share_acknowledge", 2, **member, share_session_epoch=1, topics=rows(released)
        )
        found = answer["responses"][0]["partitions"]
        assert [(row["partition_index"], row["error_code"]) for row in found] == [(n, 0) for n in PARTITIONS]
        assert written == ["__share_group_state"]
