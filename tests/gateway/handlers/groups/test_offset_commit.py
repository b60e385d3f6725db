"""OffsetCommit in every version: decoded, known as a repeat, and handled in a task."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from seqgate.gateway.coordinator.group.records import CommittedOffset
from seqgate.gateway.handlers.answering.api import Deferred
from seqgate.gateway.handlers.groups import offset_commit
from seqgate.gateway.handlers.groups.offset_commit import (
    FIRST_VERSION,
    FIRST_WITH_LEADER_EPOCH,
    MAX_CHANGES,
    MAX_FRAME_BYTES,
)
from seqgate.gateway.protocol.frames import parse_request_header, skip_tagged_fields
from seqgate.gateway.protocol.messages import encode_response, is_flexible
from seqgate.gateway.server.dispatcher import Dispatcher
from tests.gateway.handlers.requests import create, delete
from tests.gateway.handlers.support import NOW_MS, Node, open_node, versions
from tests.support.wire import encode

API = offset_commit.API
GROUP = "g"
CORRELATION_ID = 7
LARGEST_METADATA = 4096
Topics = dict[str, dict[int, str]]
"""The metadata to commit, by topic and partition."""


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with open_node(tmp_path, "offsets.topic.num.partitions=1") as opened:
        await create(opened, "t", 2)
        await opened.services.coordinators.groups.ensure_topic()
        yield opened


def asked(
    node: Node,
    version: int,
    topics: Topics,
    generation_id: int = -1,
    *,
    group_id: str = GROUP,
    offset: int = 5,
    leader_epoch: int = 3,
    correlation_id: int = CORRELATION_ID,
) -> memoryview:
    """Return the frame of a request to commit one offset in all partitions."""
    known = node.services.partitions.registry.by_name
    fields: dict[str, Any] = {
        "group_id": group_id,
        "generation_id_or_member_epoch": generation_id,
        "member_id": "",
        "group_instance_id": None,
        "topics": [
            {
                "name": name,
                "topic_id": str(known[name].topic_id if name in known else uuid.UUID(int=9)),
                "partitions": [
                    {
                        "partition_index": index,
                        "committed_offset": offset,
                        "committed_leader_epoch": leader_epoch,
                        "committed_metadata": metadata,
                    }
                    for index, metadata in partitions.items()
                ],
            }
            for name, partitions in topics.items()
        ],
    }
    return memoryview(encode("offset_commit", version, fields, correlation_id=correlation_id))


class Gateway:
    """Dispatches requests, and counts those that it decodes."""

    def __init__(self, node: Node) -> None:
        assert API.reader is not None
        self._reader_of = API.reader
        self._peer = node.peer
        self._dispatcher = Dispatcher([replace(API, reader=self._counting_reader)], node.services)
        self.decoded = 0

    def _counting_reader(self, version: int) -> Any:
        read = self._reader_of(version)

        def counting(frame: memoryview, position: int) -> Any:
            self.decoded += 1
            return read(frame, position)

        return counting

    def begin(self, frame: memoryview) -> object:
        return self._dispatcher.begin(frame, self._peer)

    async def answer(self, frame: memoryview) -> bytes:
        """Return the frame of the answer."""
        found = self.begin(frame)
        if isinstance(found, Deferred):
            if found.answer is None:
                resolved = asyncio.Event()
                found.on_resolved = resolved.set
                await resolved.wait()
            assert not found.failed
            found = found.answer
        assert isinstance(found, bytes)
        return found


async def handled(node: Node, version: int, frame: memoryview) -> bytes:
    """Return the frame of the answer that `handle` gives."""
    assert API.reader is not None
    position = parse_request_header(frame).body_position
    if is_flexible(API.key, version):
        position = skip_tagged_fields(frame, position)
    response = await offset_commit.handle(node.context(API, version), API.reader(version)(frame, position)[0])
    return encode_response(API.key, CORRELATION_ID, response)


async def committed(node: Node, group_id: str = GROUP) -> dict[tuple[str, int], CommittedOffset]:
    return await node.services.coordinators.groups.read_durable(
        group_id, lambda shard: dict(shard.offsets.of(group_id))
    )


def id_of_t(node: Node) -> bytes:
    """Return the id of the topic that is called "t" now."""
    return node.services.partitions.registry.by_name["t"].topic_id_bytes


REQUESTS = {
    "known": {"t": {0: "", 1: "some"}},
    "too long": {"t": {0: "x" * LARGEST_METADATA, 1: "x" * (LARGEST_METADATA + 1)}},
    "unknown too": {"none": {0: ""}, "t": {0: "", 2: ""}},
    "only unknown": {"none": {0: "", 1: ""}},
    "nothing": {},
}


@pytest.mark.parametrize("version", versions(API))
@pytest.mark.parametrize("topics", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("generation_id", [-1, 4])
async def test_decoded_requests_and_repeats_get_equal_answers(
    node: Node, version: int, topics: Topics, generation_id: int
) -> None:
    frame = asked(node, version, topics, generation_id)
    gateway = Gateway(node)
    first = await gateway.answer(frame)
    assert first == await handled(node, version, frame)
    assert first == await gateway.answer(frame)
    later = await gateway.answer(asked(node, version, topics, generation_id, correlation_id=-2))
    assert later[4:8] == b"\xff\xff\xff\xfe"
    assert (later[:4], later[8:]) == (first[:4], first[8:])
    assert gateway.decoded == (1 if topics == REQUESTS["known"] and version >= FIRST_VERSION else 3)


@pytest.mark.parametrize("version", versions(API))
async def test_what_is_committed(node: Node, version: int) -> None:
    await Gateway(node).answer(asked(node, version, {"t": {0: "", 1: "some"}}))
    leader_epoch = 3 if version >= FIRST_WITH_LEADER_EPOCH else -1
    found = await committed(node)
    topic_id = id_of_t(node)
    assert {place: value._replace(expire_timestamp_ms=-1) for place, value in found.items()} == {
        ("t", 0): CommittedOffset(5, leader_epoch, "", NOW_MS, topic_id=topic_id),
        ("t", 1): CommittedOffset(5, leader_epoch, "some", NOW_MS, topic_id=topic_id),
    }


async def test_nothing_is_committed_with_too_long_metadata(node: Node) -> None:
    await Gateway(node).answer(asked(node, 9, REQUESTS["too long"]))
    assert set(await committed(node)) == {("t", 0)}


async def test_a_commit_without_a_coordinator_is_refused(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        await create(node, "t", 1)
        request = asked(node, 9, {"t": {0: ""}})
        gateway = Gateway(node)
        frame = await gateway.answer(request)
        assert frame == await handled(node, 9, request) == await gateway.answer(request)
        assert b"\x00\x0f" in frame, "COORDINATOR_NOT_AVAILABLE"
        assert gateway.decoded == 1


class TestRepeats:
    """Commits that differ from an earlier commit only in their offsets."""

    @pytest.mark.parametrize("version", range(FIRST_VERSION, 11))
    async def test_a_repeat_commits_its_own_offsets(self, node: Node, version: int) -> None:
        gateway = Gateway(node)
        topics = {"t": {1: "some", 0: ""}}
        await gateway.answer(asked(node, version, topics))
        node.clock.time_ms += 9
        await gateway.answer(asked(node, version, topics, offset=2**40, leader_epoch=4))
        assert gateway.decoded == 1
        assert await committed(node) == {
            ("t", 0): CommittedOffset(2**40, 4, "", NOW_MS + 9, topic_id=id_of_t(node)),
            ("t", 1): CommittedOffset(2**40, 4, "some", NOW_MS + 9, topic_id=id_of_t(node)),
        }

    @pytest.mark.parametrize(
        "other",
        [{"t": {0: "x"}}, {"t": {1: ""}}, {"t": {0: "", 1: ""}}, {"u": {0: ""}}, {"t": {2: ""}}],
        ids=["metadata", "partition", "partitions", "topic", "no such partition"],
    )
    @pytest.mark.parametrize("version", [9, 10])
    async def test_commits_that_differ_in_more_than_offsets_are_decoded(
        self, node: Node, version: int, other: Topics
    ) -> None:
        await create(node, "u", 1)
        gateway = Gateway(node)
        await gateway.answer(asked(node, version, {"t": {0: ""}}))
        frame = asked(node, version, other)
        assert await gateway.answer(frame) == await handled(node, version, frame)
        assert gateway.decoded == 2

    async def test_another_generation_is_decoded_and_refused(self, node: Node) -> None:
        gateway = Gateway(node)
        await gateway.answer(asked(node, 9, {"t": {0: ""}}))
        refused = asked(node, 9, {"t": {0: ""}}, generation_id=4)
        assert await gateway.answer(refused) == await gateway.answer(refused)
        assert gateway.decoded == 2
        assert b"\x00\x16" in await gateway.answer(refused), "ILLEGAL_GENERATION"

    @pytest.mark.parametrize("version", [9, 10])
    async def test_a_repeat_for_a_deleted_topic(self, node: Node, version: int) -> None:
        gateway = Gateway(node)
        frame = asked(node, version, {"t": {0: ""}})
        await gateway.answer(frame)
        await delete(node, "t")
        assert await gateway.answer(frame) == await handled(node, version, frame)
        assert gateway.decoded == 2
        await create(node, "t", 1)
        assert await gateway.answer(frame) == await handled(node, version, frame)
        if version == 9:  # a client that names ids would still ask for the old topic
            assert (await committed(node))["t", 0].topic_id == id_of_t(node)

    async def test_a_repeat_whose_answer_fails_is_given_up(
        self, node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        gateway = Gateway(node)
        await gateway.answer(asked(node, 9, {"t": {0: ""}}))

        def fail(*_: object) -> bytes:
            raise LookupError("a bug")

        monkeypatch.setattr(offset_commit, "encode_offset_commit_response", fail)
        found = gateway.begin(asked(node, 9, {"t": {0: ""}}))
        assert isinstance(found, Deferred)
        node.services.coordinators.groups.stop()
        assert found.failed
        assert gateway.decoded == 1
        assert "a bug" in caplog.text

    async def test_commits_of_changing_partitions_are_decoded(self, node: Node) -> None:
        gateway = Gateway(node)
        for number in range(MAX_CHANGES):
            await gateway.answer(asked(node, 9, {"t": {number % 2: ""}}))
        assert gateway.decoded == MAX_CHANGES
        kept, other = (asked(node, 9, {"t": {number % 2: ""}}) for number in (MAX_CHANGES - 1, MAX_CHANGES))
        for _ in range(3):
            assert await gateway.answer(kept) == await handled(node, 9, kept)
            assert await gateway.answer(other) == await handled(node, 9, other)
        assert gateway.decoded == MAX_CHANGES + 3, "the last remembered shape must be kept"

    @pytest.mark.parametrize("group_id", ["g" * 126, "g" * 127, "g" * 400, "g" * MAX_FRAME_BYTES, "ü" * 90])
    @pytest.mark.parametrize("version", [7, 9])
    async def test_long_ids(self, node: Node, version: int, group_id: str) -> None:
        gateway = Gateway(node)
        for offset in (1, 2, 3):
            await gateway.answer(asked(node, version, {"t": {0: ""}}, group_id=group_id, offset=offset))
            found = await committed(node, group_id)
            assert found == {("t", 0): CommittedOffset(offset, 3, "", NOW_MS, topic_id=id_of_t(node))}

    async def test_commits_of_two_groups_on_one_connection_are_not_confused(self, node: Node) -> None:
        gateway = Gateway(node)
        for offset, group_id in ((1, "a"), (2, "b"), (3, "a"), (4, "b")):
            await gateway.answer(asked(node, 9, {"t": {0: ""}}, group_id=group_id, offset=offset))
        assert gateway.decoded == 2
        assert [(await committed(node, name))["t", 0].offset for name in "ab"] == [3, 4]
