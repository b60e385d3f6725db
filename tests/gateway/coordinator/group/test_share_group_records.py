"""The records of share groups: encoded as Kafka's bytes, decoded again, and malformed."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.coordinator.group import share_group
from seqgate.gateway.coordinator.group.epoch_group import AssignmentEpoch
from seqgate.gateway.coordinator.group.records import UnreadableRecord, decode, encode
from seqgate.gateway.coordinator.group.share_group import (
    ROWS,
    BegunTopic,
    ShareCurrentValue,
    ShareMemberValue,
)
from seqgate.gateway.coordinator.rows import RowRecord
from tests.gateway.coordinator.group.record_properties import check_cut, check_key, check_value

texts = st.text(st.characters(codec="utf-8"), max_size=12)
epochs = st.integers(-(2**31), 2**31 - 1)
topic_ids = st.uuids() | st.just(uuid.UUID(int=1))
indexes = st.integers(0, 2**31 - 1)
places = st.frozensets(st.tuples(topic_ids, indexes), max_size=6)
members = st.builds(ShareMemberValue, st.none() | texts, texts, texts, st.lists(texts, max_size=4).map(tuple))
begun = st.lists(
    st.builds(BegunTopic, topic_ids, texts, st.lists(indexes, max_size=4).map(tuple)), max_size=3
)
records: st.SearchStrategy[RowRecord] = st.one_of(
    st.builds(share_group.GROUP_EPOCH.of, texts, st.none() | epochs),
    st.builds(share_group.ASSIGNMENT.of, texts, st.none()),
    st.builds(
        share_group.ASSIGNMENT.of, texts, st.builds(AssignmentEpoch, epochs, st.integers(0, 2**63 - 1))
    ),
    st.builds(share_group.MEMBER.of, texts, texts, st.none() | members),
    st.builds(share_group.TARGET.of, texts, texts, st.none() | places),
    st.builds(
        share_group.CURRENT.of, texts, texts, st.none() | st.builds(ShareCurrentValue, epochs, epochs, places)
    ),
    st.builds(share_group.BEGUN.of, texts, st.none() | begun.map(tuple)),
)


@given(records)
def test_every_record_is_decoded_as_it_was_encoded(record: RowRecord) -> None:
    assert decode(*encode(record)) == record


@given(records, st.data())
def test_a_truncated_record_is_refused(record: RowRecord, data: st.DataObject) -> None:
    check_cut(record, data)


@given(st.sampled_from([row.kind for row in ROWS]), texts, texts, st.binary(max_size=80))
def test_any_value_is_decoded_or_refused(kind: int, group_id: str, member_id: str, value: bytes) -> None:
    check_value(kind, (group_id, member_id)[: 1 if kind in {11, 12, 15} else 2], value)


@given(st.sampled_from([row.kind for row in ROWS]), st.binary(max_size=40), st.none() | st.binary(max_size=8))
def test_any_key_is_decoded_or_refused(kind: int, rest: bytes, value: bytes | None) -> None:
    check_key(kind, rest, value)


@pytest.mark.parametrize("kind", [10, 13, 14])
def test_a_member_without_a_name_in_the_key(kind: int) -> None:
    with pytest.raises(UnreadableRecord):
        decode(kind.to_bytes(2, "big") + b"\0\1g", None)


def test_a_newer_version_is_refused() -> None:
    key, value = encode(share_group.GROUP_EPOCH.of("g", 1))
    assert value is not None
    with pytest.raises(UnreadableRecord):
        decode(key, b"\0\1" + value[2:])


def test_a_too_long_name_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        encode(share_group.MEMBER.of("g", "m" * 40_000, None))


def test_as_kafka_writes_them() -> None:
    topic_id = uuid.UUID(int=5)
    assert encode(share_group.GROUP_EPOCH.of("g", 7)) == (
        b"\0\x0b\0\1g",
        b"\0\0" + b"\0\0\0\7" + bytes(8) + b"\0",
    )
    assert encode(share_group.ASSIGNMENT.of("g", AssignmentEpoch(7))) == (b"\0\x0c\0\1g", b"\0\0\0\0\0\7\0")
    assert encode(share_group.MEMBER.of("g", "m", ShareMemberValue(None, "c", "/h", ("t",)))) == (
        b"\0\x0a\0\1g\0\1m",
        b"\0\0\0\2c\3/h\2\2t\0",
    )
    place = topic_id.bytes + b"\2\0\0\0\1\0"
    target = share_group.TARGET.of("g", "m", frozenset([(topic_id, 1)]))
    assert encode(target) == (b"\0\x0d\0\1g\0\1m", b"\0\0\2" + place + b"\0")
    current = share_group.CURRENT.of("g", "m", ShareCurrentValue(4, 3, frozenset([(topic_id, 1)])))
    assert encode(current) == (b"\0\x0e\0\1g\0\1m", b"\0\0" + b"\0\0\0\4\0\0\0\3\0" + b"\2" + place + b"\0")
    begun_topic = topic_id.bytes + b"\2t\2\0\0\0\1\0"
    assert encode(share_group.BEGUN.of("g", (BegunTopic(topic_id, "t", (1,)),))) == (
        b"\0\x0f\0\1g",
        b"\0\0\1\2" + begun_topic + b"\1\0",
    )
    # Kafka also names partitions whose share state it is about to create, and topics that it is about to
    # delete
    told = b"\0\0\2" + begun_topic + b"\2" + begun_topic + b"\2" + topic_id.bytes + b"\2t\0" + b"\0"
    assert decode(b"\0\x0f\0\1g", told) == share_group.BEGUN.of("g", (BegunTopic(topic_id, "t", (1,)),))
    stamped = b"\0\0\0\0\0\7" + b"\1\0\x08" + bytes(6) + b"\1\2"
    assert decode(b"\0\x0c\0\1g", stamped) == share_group.ASSIGNMENT.of("g", AssignmentEpoch(7, 258))
    assert encode(share_group.ASSIGNMENT.of("g", AssignmentEpoch(7, 258))) == (b"\0\x0c\0\1g", stamped)
    assert decode(b"\0\x0c\0\1g", None) == share_group.ASSIGNMENT.of("g", None)
