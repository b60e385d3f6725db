"""The records of streams groups: encoded as Kafka's bytes, decoded again, and malformed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.coordinator.group.epoch_group import AssignmentEpoch
from seqgate.gateway.coordinator.group.records import UnreadableRecord, decode, encode
from seqgate.gateway.coordinator.rows import RowRecord
from seqgate.gateway.coordinator.streams import records as streams_records
from seqgate.gateway.coordinator.streams.records import (
    ROWS,
    StreamsCurrentValue,
    StreamsEndpoint,
    StreamsGroupValue,
    StreamsMemberState,
    StreamsMemberValue,
)
from seqgate.gateway.coordinator.streams.task_assignor import HeldTasks, TaskAssignment, TaskId
from seqgate.gateway.coordinator.streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology
from seqgate.gateway.coordinator.streams.topology_description import StoredDescription
from tests.gateway.coordinator.group.record_properties import check_cut, check_key, check_value

texts = st.text(st.characters(codec="utf-8"), max_size=12)
epochs = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
int16s = st.integers(-(2**15), 2**15 - 1)
pairs = st.lists(st.tuples(texts, texts), max_size=3).map(tuple)
task_ids = st.builds(TaskId, texts, st.integers(0, 2**31 - 1))
tasks = st.frozensets(task_ids, max_size=5)
held = st.builds(HeldTasks, st.dictionaries(task_ids, epochs, max_size=5), tasks, tasks)
members = st.builds(
    StreamsMemberValue,
    st.none() | texts,
    st.none() | texts,
    texts,
    texts,
    epochs,
    epochs,
    texts,
    st.none() | st.builds(StreamsEndpoint, texts, st.integers(0, 2**16 - 1)),
    pairs,
)
topics = st.lists(st.builds(TopicInfo, texts, epochs, int16s, pairs), max_size=3).map(tuple)
names = st.lists(texts, max_size=3).map(tuple)
indexes = st.lists(int16s, max_size=3).map(tuple)
copartition_groups = st.lists(st.builds(CopartitionGroup, indexes, indexes, indexes), max_size=2).map(tuple)
subtopologies = st.builds(Subtopology, texts, names, names, topics, names, topics, copartition_groups)
topologies = st.builds(Topology, epochs, st.lists(subtopologies, max_size=2).map(tuple))
current = st.builds(StreamsCurrentValue, epochs, epochs, st.sampled_from(StreamsMemberState), held, held)
records: st.SearchStrategy[RowRecord] = st.one_of(
    st.builds(
        streams_records.GROUP.of,
        texts,
        st.none() | st.builds(StreamsGroupValue, epochs, int64s, epochs, pairs, epochs, epochs),
    ),
    st.builds(streams_records.MEMBER.of, texts, texts, st.none() | members),
    st.builds(streams_records.ASSIGNMENT.of, texts, st.none() | st.builds(AssignmentEpoch, epochs, int64s)),
    st.builds(
        streams_records.TARGET.of, texts, texts, st.none() | st.builds(TaskAssignment, tasks, tasks, tasks)
    ),
    st.builds(streams_records.CURRENT.of, texts, texts, st.none() | current),
    st.builds(streams_records.TOPOLOGY.of, texts, st.none() | topologies),
    st.builds(
        streams_records.DESCRIPTION.of, texts, st.none() | st.builds(StoredDescription, epochs, st.binary())
    ),
)


@given(records)
def test_every_record_is_decoded_as_it_was_encoded(record: RowRecord) -> None:
    assert decode(*encode(record)) == record


@given(records, st.data())
def test_a_truncated_record_is_refused(record: RowRecord, data: st.DataObject) -> None:
    check_cut(record, data)


@given(st.sampled_from([row.kind for row in ROWS]), texts, texts, st.binary(max_size=80))
def test_any_value_is_decoded_or_refused(kind: int, group_id: str, member_id: str, value: bytes) -> None:
    check_value(kind, (group_id, member_id)[: 1 if kind in {17, 20, 23} else 2], value)


@given(
    st.sampled_from([row.kind for row in ROWS]), st.binary(max_size=40), st.none() | st.binary(max_size=20)
)
def test_any_key_is_decoded_or_refused(kind: int, rest: bytes, value: bytes | None) -> None:
    check_key(kind, rest, value)


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (
            streams_records.GROUP.of("app", StreamsGroupValue(3, -2, 0, (("num.standby.replicas", "1"),))),
            "0011 0003 617070",
            (
                "0000 00000003 fffffffffffffffe 02 00 04 00000000"
                "01 19 02 15 6e756d2e7374616e6462792e7265706c69636173 02 31 00"
            ),
        ),
        (
            streams_records.GROUP.of("app", StreamsGroupValue(2, 0)),
            "0011 0003 617070",
            "0000 00000002 0000000000000000 01 01 01 01",
        ),
        (
            streams_records.GROUP.of("app", StreamsGroupValue(2, 0, 0, (), 3, 4)),
            "0011 0003 617070",
            "0000 00000002 0000000000000000 04 00 04 00000000 01 01 01 02 04 00000003 03 04 00000004",
        ),
        (
            streams_records.DESCRIPTION.of("app", StoredDescription(3, b"\1\1\0")),
            "4e7d 0003 617070",
            "0000 00000003 04 010100 00",
        ),
        (
            streams_records.MEMBER.of(
                "app",
                "m",
                StreamsMemberValue(
                    None, "r", "c", "/h", 300_000, 0, "p", StreamsEndpoint("host", 40_000), (("zone", "a"),)
                ),
            ),
            "0013 0003 617070 0001 6d",
            (
                "0000 00 02 72 02 63 03 2f68 000493e0 00000000 02 70 01 05 686f7374 9c40 00 02 05 7a6f6e65 "
                "02 61 "
                "00 00"
            ),
        ),
        (
            streams_records.MEMBER.of("app", "m", StreamsMemberValue()),
            "0013 0003 617070 0001 6d",
            "0000 00 00 01 01 ffffffff ffffffff 01 ff 01 00",
        ),
        (
            streams_records.ASSIGNMENT.of("app", AssignmentEpoch(5, 1)),
            "0014 0003 617070",
            "0000 00000005 01 00 08 0000000000000001",
        ),
        (streams_records.ASSIGNMENT.of("app", AssignmentEpoch(5)), "0014 0003 617070", "0000 00000005 00"),
        (
            streams_records.TARGET.of(
                "app", "m", TaskAssignment(frozenset({TaskId("0", 1), TaskId("0", 0)}))
            ),
            "0015 0003 617070 0001 6d",
            "0000 02 02 30 03 00000000 00000001 00 01 01 00",
        ),
        (
            streams_records.CURRENT.of(
                "app",
                "m",
                StreamsCurrentValue(
                    4,
                    3,
                    StreamsMemberState.UNREVOKED_TASKS,
                    HeldTasks({TaskId("0", 1): 4}),
                    HeldTasks(standby=frozenset({TaskId("1", 0)})),
                ),
            ),
            "0016 0003 617070 0001 6d",
            (
                "0000 00000004 00000003 02 02 02 30 02 00000001 01 00 05 02 00000004 01 01"
                "01 02 02 31 02 00000000 00 01 00"
            ),
        ),
        (
            streams_records.TOPOLOGY.of(
                "app",
                Topology(
                    0,
                    (
                        Subtopology(
                            "0",
                            ("in",),
                            (),
                            (TopicInfo("log", 0, -1, (("a", "b"),)),),
                            ("out",),
                            (),
                            (CopartitionGroup((0,), (), ()),),
                        ),
                    ),
                ),
            ),
            "0017 0003 617070",
            (
                "0000 00000000 02 02 30 02 03 696e 01 02 04 6c6f67 00000000 ffff 02 02 61 02 62 00 00"
                "02 04 6f7574 01 02 02 0000 01 01 00 00 00"
            ),
        ),
    ],
)
def test_the_bytes_are_those_of_kafka(record: RowRecord, key: str, value: str) -> None:
    assert encode(record) == (bytes.fromhex(key), bytes.fromhex(value))


def test_a_record_without_assignment_epochs_has_the_member_epoch() -> None:
    value = bytes.fromhex("0000 00000004 00000003 01 02 02 30 02 00000001 00 01 01 01 01 01 00")
    record = decode(bytes.fromhex("0016 0003 617070 0001 6d"), value)
    assert record.row is streams_records.CURRENT
    assert record.value is not None
    assert record.value.assigned.active == {TaskId("0", 1): 4}


def test_a_state_of_a_later_release_is_unknown() -> None:
    value = bytes.fromhex("0000 00000004 00000003 09 01 01 01 01 01 01 00")
    record = decode(bytes.fromhex("0016 0003 617070 0001 6d"), value)
    assert record.row is streams_records.CURRENT
    assert record.value is not None
    assert record.value.state is StreamsMemberState.UNKNOWN


def test_a_newer_version_is_refused() -> None:
    with pytest.raises(UnreadableRecord):
        decode(bytes.fromhex("0014 0003 617070"), bytes.fromhex("0001 00000005 00"))
