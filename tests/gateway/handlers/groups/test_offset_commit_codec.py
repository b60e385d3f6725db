"""The hand-written codec of OffsetCommit does what the one made from kio's schemas does, in every version."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_response_schema
from kio.serial import entity_reader

from seqgate.gateway.handlers.groups.offset_commit import (
    FIRST_VERSION,
    PREFIX_START,
    CommitShape,
    OffsetCommitRequest,
    PartitionOffset,
    TopicErrors,
    TopicOffsets,
    encode_offset_commit_response,
    offset_commit_reader,
    prefix_end,
)
from seqgate.gateway.protocol.frames import MalformedRequest, parse_request_header, skip_tagged_fields
from seqgate.gateway.protocol.messages import is_flexible, milliseconds, request_schema
from tests.support.wire import Plain, encode

API_KEY = 8
FIRST_WITH_TOPIC_IDS = 10
LONGEST_WAIT_MS = 2**31 - 1
versions = pytest.mark.parametrize("version", range(2, 11))
ids = st.text("ab-ü", max_size=9) | st.sampled_from(["g" * 126, "g" * 127, "g" * 300])
numbers = st.integers(-1, 2**31 - 1)
offsets = st.integers(-1, 2**63 - 1)
rows = st.lists(st.tuples(numbers, offsets, numbers, st.none() | ids), max_size=4)
topics = st.lists(st.tuples(ids, rows), max_size=3)


def topic_id(name: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_OID, name)


def request(version: int, who: tuple[str, int, str, str | None], wanted: list[Any]) -> bytes:
    fields: Plain = dict(
        zip(("group_id", "generation_id_or_member_epoch", "member_id", "group_instance_id"), who, strict=True)
    )
    fields["topics"] = [
        {
            "name": name,
            "topic_id": str(topic_id(name)),
            "partitions": [
                {
                    "partition_index": index,
                    "committed_offset": offset,
                    "committed_leader_epoch": leader_epoch,
                    "committed_metadata": metadata,
                }
                for index, offset, leader_epoch, metadata in entries
            ],
        }
        for name, entries in wanted
    ]
    if version <= 4:
        fields["retention_time"] = who[1]
    return encode("offset_commit", version, fields)


def body_of(frame: bytes, version: int) -> int:
    position = parse_request_header(memoryview(frame)).body_position
    return skip_tagged_fields(frame, position) if is_flexible(API_KEY, version) else position


def read_by_schema(frame: bytes, version: int) -> tuple[OffsetCommitRequest, int]:
    """Return what the reader made from kio's schema decodes, without positions."""
    read, end = request_schema(API_KEY, version).read(memoryview(frame), body_of(frame, version))
    found = [
        TopicOffsets(
            (read_topic.topic_id or uuid.UUID(int=0)).bytes
            if version >= FIRST_WITH_TOPIC_IDS
            else read_topic.name,
            [
                PartitionOffset(
                    entry.partition_index,
                    entry.committed_offset,
                    entry.committed_leader_epoch if version >= 6 else -1,
                    entry.committed_metadata or "",
                    0,
                )
                for entry in read_topic.partitions
            ],
        )
        for read_topic in read.topics
    ]
    decoded = OffsetCommitRequest(
        read.group_id,
        read.generation_id_or_member_epoch,
        read.member_id,
        read.group_instance_id if version >= 7 else None,
        _bounded(milliseconds(read.retention_time)) if version <= 4 else -1,
        found,
    )
    return decoded, end


def read_by_hand(frame: bytes, version: int) -> tuple[OffsetCommitRequest, int]:
    """Return what the hand-written reader decodes. Check the positions of offsets, and set them to 0."""
    view = memoryview(frame)
    decoded, end = offset_commit_reader(version)(view, body_of(frame, version))
    plain = []
    for topic in decoded.topics:
        for entry in topic.partitions:
            assert (
                int.from_bytes(view[entry.position : entry.position + 8], "big", signed=True) == entry.offset
            )
        entries = [entry._replace(position=0) for entry in topic.partitions]
        plain.append(TopicOffsets(topic.key, entries))
    return decoded._replace(topics=plain, retention_ms=_bounded(decoded.retention_ms)), end


def _bounded(retention_ms: int) -> int:
    """Return the time, or the longest that is compared: the schema's reader has durations of Python, which
    can't hold every time.
    """
    return max(-LONGEST_WAIT_MS, min(retention_ms, LONGEST_WAIT_MS))


def outcome(read: Any, frame: bytes, version: int) -> Any:
    try:
        return read(frame, version)
    except MalformedRequest:
        return MalformedRequest


@versions
@settings(max_examples=60)
@given(who=st.tuples(ids, numbers, ids, st.none() | ids), wanted=topics)
def test_reads_what_the_schema_reads(
    version: int, who: tuple[str, int, str, str | None], wanted: Any
) -> None:
    frame = request(version, who, wanted)
    decoded, end = read_by_hand(frame, version)
    assert (decoded, end) == read_by_schema(frame, version)
    assert end == len(frame)


@pytest.mark.tier("all")
@versions
@settings(max_examples=120)
@given(
    wanted=topics,
    size=st.integers(0, 400),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=2),
)
def test_reads_and_refuses_damaged_requests_as_the_schema_does(
    version: int, wanted: Any, size: int, changes: list[tuple[int, int]]
) -> None:
    whole = request(version, ("group", 3, "member", None), wanted)
    head = body_of(whole, version)
    damaged = bytearray(whole[: head + size])
    for position, value in changes:
        if head + position < len(damaged):
            damaged[head + position] = value
    frame = bytes(damaged)
    assert outcome(read_by_hand, frame, version) == outcome(read_by_schema, frame, version)


def test_a_retention_time_that_no_duration_holds() -> None:
    frame = bytearray(request(4, ("g", 0, "", None), []))
    frame[-12:-4] = (2**62).to_bytes(8, "big")
    decoded, _ = offset_commit_reader(4)(memoryview(frame), body_of(bytes(frame), 4))
    assert decoded.retention_ms == 2**62


@versions
@settings(max_examples=40)
@given(
    answered=st.lists(
        st.tuples(ids, st.lists(st.tuples(numbers, st.sampled_from([0, 3, 12, 25])), max_size=3)), max_size=3
    )
)
def test_kio_decodes_the_encoded_rows(version: int, answered: Any) -> None:
    with_ids = version >= FIRST_WITH_TOPIC_IDS
    given_rows: list[TopicErrors] = [
        (topic_id(name).bytes if with_ids else name, topic_rows) for name, topic_rows in answered
    ]
    frame = encode_offset_commit_response(version, -77, given_rows)
    assert frame[:8] == (len(frame) - 4).to_bytes(4, "big") + (-77).to_bytes(4, "big", signed=True)
    schema: Any = load_response_schema(API_KEY, version)
    position = 9 if schema.__flexible__ else 8
    entity, size = entity_reader(schema)(frame, position)
    assert position + size == len(frame)
    assert [
        (
            topic.topic_id if with_ids else topic.name,
            [(row.partition_index, int(row.error_code)) for row in topic.partitions],
        )
        for topic in entity.topics
    ] == [(topic_id(name) if with_ids else name, topic_rows) for name, topic_rows in answered]


class TestShape:
    """A known shape reads the same offsets from a request as the decoder; any other request does not match
    the shape.
    """

    def learned(self, frame: bytes, version: int) -> tuple[CommitShape, OffsetCommitRequest]:
        decoded, _ = offset_commit_reader(version)(memoryview(frame), body_of(frame, version))
        positions = [entry.position for topic in decoded.topics for entry in topic.partitions]
        return CommitShape(frame, positions), decoded

    @pytest.mark.parametrize("version", range(FIRST_VERSION, 11))
    @settings(max_examples=60)
    @given(
        wanted=topics.filter(lambda found: any(entries for _, entries in found)),
        later=st.lists(st.tuples(offsets, numbers), min_size=12, max_size=12),
        correlation_id=numbers,
    )
    def test_takes_offsets_and_leader_epochs_out(
        self, version: int, wanted: Any, later: list[tuple[int, int]], correlation_id: int
    ) -> None:
        who = ("group", 3, "member", None)
        shape, _ = self.learned(request(version, who, wanted), version)
        left = iter(later)
        moved = [
            (name, [(index, *next(left), metadata) for index, _, _, metadata in entries])
            for name, entries in wanted
        ]
        frame = bytearray(request(version, who, moved))
        frame[4:8] = correlation_id.to_bytes(4, "big", signed=True)
        count = sum(len(entries) for _, entries in wanted)
        found = shape.numbers(memoryview(frame))
        assert found is not None
        assert list(zip(*found, strict=True)) == later[:count]

    @pytest.mark.tier("all")
    @pytest.mark.parametrize("version", range(FIRST_VERSION, 11))
    @settings(max_examples=120)
    @given(
        wanted=topics.filter(lambda found: any(entries for _, entries in found)),
        changed=st.integers(0, 400),
        value=st.integers(0, 255),
    )
    def test_a_changed_byte_is_another_shape_or_another_number(
        self, version: int, wanted: Any, changed: int, value: int
    ) -> None:
        frame = bytearray(request(version, ("group", 3, "member", "instance"), wanted))
        shape, before = self.learned(bytes(frame), version)
        at = PREFIX_START + changed % (len(frame) - PREFIX_START)
        frame[at] = value
        found = shape.numbers(memoryview(frame))
        if found is None:
            return
        after, _ = offset_commit_reader(version)(memoryview(frame), body_of(bytes(frame), version))
        entries = [entry for topic in after.topics for entry in topic.partitions]
        assert list(zip(*found, strict=True)) == [(entry.offset, entry.leader_epoch) for entry in entries]
        assert _without_numbers(after) == _without_numbers(before)

    @pytest.mark.parametrize("version", range(FIRST_VERSION, 11))
    @settings(max_examples=40)
    @given(group_id=st.text("ab-ü", max_size=60), member_id=st.text("ab-ü", max_size=60))
    def test_the_prefix_ends_behind_short_ids(self, version: int, group_id: str, member_id: str) -> None:
        frame = request(version, (group_id, 3, member_id, None), [("t", [(0, 1, 1, "")])])
        client_id_bytes = int.from_bytes(frame[8:10], "big", signed=True)
        end = prefix_end(memoryview(frame), version, client_id_bytes)
        assert frame[:end].endswith(member_id.encode())
        assert len(frame) - end < 60


def _without_numbers(decoded: OffsetCommitRequest) -> OffsetCommitRequest:
    plain = [
        TopicOffsets(topic.key, [entry._replace(offset=0, leader_epoch=0) for entry in topic.partitions])
        for topic in decoded.topics
    ]
    return decoded._replace(topics=plain)
