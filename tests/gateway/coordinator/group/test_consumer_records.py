"""The records of the consumer protocol: encoded as Kafka's bytes, decoded again, and malformed."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.coordinator.group import consumer_group
from seqgate.gateway.coordinator.group.consumer_group import (
    ROWS,
    ClassicMember,
    CurrentValue,
    MemberState,
    MemberValue,
)
from seqgate.gateway.coordinator.group.epoch_group import AssignmentEpoch
from seqgate.gateway.coordinator.group.records import UnreadableRecord, decode, encode
from seqgate.gateway.coordinator.rows import RowRecord
from tests.gateway.coordinator.group.record_properties import check_cut, check_key, check_value

texts = st.text(st.characters(codec="utf-8"), max_size=12)
maybe_texts = st.none() | texts
epochs = st.integers(-(2**31), 2**31 - 1)
places = st.frozensets(
    st.tuples(st.uuids() | st.just(uuid.UUID(int=1)), st.integers(0, 2**31 - 1)), max_size=6
)
classics = st.builds(
    ClassicMember, epochs, st.lists(st.tuples(texts, st.binary(max_size=9)), max_size=3).map(tuple)
)
members = st.builds(
    MemberValue,
    maybe_texts,
    maybe_texts,
    texts,
    texts,
    st.lists(texts, max_size=4).map(tuple),
    maybe_texts,
    epochs,
    maybe_texts,
    st.none() | classics,
)


@st.composite
def currents(draw: st.DrawFn) -> CurrentValue:
    head = draw(epochs), draw(epochs), draw(st.sampled_from(MemberState))
    assigned, pending_revocation = draw(places), draw(places)
    held = assigned | pending_revocation
    return CurrentValue(*head, assigned, pending_revocation, {place: draw(epochs) for place in held})


records: st.SearchStrategy[RowRecord] = st.one_of(
    st.builds(consumer_group.GROUP_EPOCH.of, texts, st.none() | epochs),
    st.builds(consumer_group.ASSIGNMENT.of, texts, st.none()),
    st.builds(
        consumer_group.ASSIGNMENT.of, texts, st.builds(AssignmentEpoch, epochs, st.integers(0, 2**63 - 1))
    ),
    st.builds(consumer_group.MEMBER.of, texts, texts, st.none() | members),
    st.builds(consumer_group.TARGET.of, texts, texts, st.none() | places),
    st.builds(consumer_group.CURRENT.of, texts, texts, st.none() | currents()),
)


@given(records)
def test_every_record_is_decoded_as_it_was_encoded(record: RowRecord) -> None:
    assert decode(*encode(record)) == record


@given(records, st.data())
def test_a_truncated_record_is_refused(record: RowRecord, data: st.DataObject) -> None:
    check_cut(record, data)


@given(st.sampled_from([row.kind for row in ROWS]), texts, texts, st.binary(max_size=80))
def test_any_value_is_decoded_or_refused(kind: int, group_id: str, member_id: str, value: bytes) -> None:
    check_value(kind, (group_id, member_id)[: 1 if kind in {3, 6} else 2], value)


@given(st.sampled_from([row.kind for row in ROWS]), st.binary(max_size=40), st.none() | st.binary(max_size=8))
def test_any_key_is_decoded_or_refused(kind: int, rest: bytes, value: bytes | None) -> None:
    check_key(kind, rest, value)


@pytest.mark.parametrize("kind", [5, 7, 8])
def test_a_member_without_a_name_in_the_key(kind: int) -> None:
    with pytest.raises(UnreadableRecord):
        decode(kind.to_bytes(2, "big") + b"\0\1g", None)


def test_a_count_larger_than_the_value() -> None:
    key, value = encode(consumer_group.TARGET.of("g", "m", frozenset()))
    assert value is not None
    with pytest.raises(UnreadableRecord):
        decode(key, value[:2] + b"\xff\xff\xff\xff\x0f")


def test_an_unknown_state_is_refused() -> None:
    value = CurrentValue(4, 3, MemberState.STABLE, frozenset(), frozenset(), {})
    key, stored = encode(consumer_group.CURRENT.of("g", "m", value))
    assert stored is not None
    assert decode(key, stored) == consumer_group.CURRENT.of("g", "m", value)
    with pytest.raises(UnreadableRecord, match="MemberState"):
        decode(key, stored[:10] + b"\x46" + stored[11:])


def test_a_newer_version_is_refused() -> None:
    key, value = encode(consumer_group.GROUP_EPOCH.of("g", 1))
    assert value is not None
    with pytest.raises(UnreadableRecord):
        decode(key, b"\0\1" + value[2:])


def test_a_too_long_name_is_refused() -> None:
    with pytest.raises(ValueError, match="too long"):
        encode(consumer_group.MEMBER.of("g", "m" * 40_000, None))


def test_as_kafka_writes_them() -> None:
    topic_id = uuid.UUID(int=5)
    assert encode(consumer_group.GROUP_EPOCH.of("g", 7)) == (b"\0\3\0\1g", b"\0\0\0\0\0\7\0")
    assert encode(consumer_group.ASSIGNMENT.of("g", None)) == (b"\0\6\0\1g", None)
    assert encode(consumer_group.ASSIGNMENT.of("g", AssignmentEpoch(7))) == (b"\0\6\0\1g", b"\0\0\0\0\0\7\0")
    made = consumer_group.ASSIGNMENT.of("g", AssignmentEpoch(7, 258))
    assert encode(made) == (b"\0\6\0\1g", b"\0\0\0\0\0\7" + b"\1\0\x08" + bytes(6) + b"\1\2")
    assert decode(*encode(made)) == made
    key, value = encode(consumer_group.TARGET.of("g", "m", frozenset([(topic_id, 2), (topic_id, 1)])))
    assert key == b"\0\7\0\1g\0\1m"
    assert value == b"\0\0\2" + topic_id.bytes + b"\3\0\0\0\1\0\0\0\2\0\0"


class TestAssignmentEpochs:
    """The tag in which Kafka 4.3 stores the epoch of each partition (KIP-1251)."""

    TOPIC_ID = uuid.UUID(int=5)
    ASSIGNED = frozenset([(TOPIC_ID, 1), (TOPIC_ID, 2)])
    HEAD = b"\0\0" + b"\0\0\0\7" + b"\0\0\0\6" + b"\0"
    PARTITIONS = b"\3\0\0\0\1\0\0\0\2"

    def read(self, tags: bytes, *, member_epoch: int = 7) -> CurrentValue:
        head = self.HEAD[:2] + member_epoch.to_bytes(4, "big", signed=True) + self.HEAD[6:]
        value = head + b"\2" + self.TOPIC_ID.bytes + self.PARTITIONS + tags + b"\1\0"
        found = decode(b"\0\x08\0\1g\0\1m", value)
        assert found.row is consumer_group.CURRENT
        assert found.value is not None
        assert found.value.assigned == self.ASSIGNED
        return found.value

    def test_as_kafka_writes_them(self) -> None:
        epochs = {(self.TOPIC_ID, 1): 3, (self.TOPIC_ID, 2): 7}
        current = CurrentValue(7, 6, MemberState.STABLE, self.ASSIGNED, frozenset(), epochs)
        _, value = encode(consumer_group.CURRENT.of("g", "m", current))
        tags = b"\1\0\x09\3\0\0\0\3\0\0\0\7"
        assert value == self.HEAD + b"\2" + self.TOPIC_ID.bytes + self.PARTITIONS + tags + b"\1\0"
        assert self.read(tags) == current

    @pytest.mark.parametrize(
        "tags", [b"\0", b"\1\0\1\0", b"\1\0\5\2\0\0\0\3"], ids=["an earlier release", "null", "too few"]
    )
    def test_without_one_for_each_partition_the_member_epoch_counts(self, tags: bytes) -> None:
        assert self.read(tags).assignment_epochs == dict.fromkeys(self.ASSIGNED, 7)
        assert self.read(tags, member_epoch=-2).assignment_epochs == dict.fromkeys(self.ASSIGNED, 0)
