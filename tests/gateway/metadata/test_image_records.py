"""The records that an image is turned into give the same image again, and are not more than those that made
the image.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seqgate.gateway.metadata.image import MetadataImage, records_of
from seqgate.gateway.metadata.records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    SnapshotRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    decode_record,
    encode_record,
)
from seqgate.gateway.security.acls.access import Operation, PatternType, Permission, ResourceType
from tests.gateway.metadata.clusters import broker
from tests.gateway.metadata.test_replay_properties import STEPS, contents, decide

NODES = st.integers(1, 3)
EPOCHS = st.integers(1, 6)
NAMES = st.sampled_from(["a", "b"])
OTHERS = st.one_of(
    st.builds(lambda node, epoch, fenced: _fenced(broker(node, epoch), fenced), NODES, EPOCHS, st.booleans()),
    st.builds(
        BrokerRegistrationChangeRecord, NODES, EPOCHS, st.sampled_from([-1, 0, 1]), st.sampled_from([0, 1])
    ),
    st.builds(UnregisterBrokerRecord, NODES, EPOCHS),
    st.builds(FeatureLevelRecord, st.sampled_from(["seqgate.cluster.version", "x"]), st.integers(1, 9)),
    st.builds(
        AccessControlEntryRecord,
        st.integers(1, 3).map(lambda number: uuid.UUID(int=number)),
        st.just(2),
        NAMES,
        st.just(3),
        st.just("User:a"),
        st.just("*"),
        st.just(3),
        st.just(3),
    ),
    st.builds(RemoveAccessControlEntryRecord, st.integers(1, 3).map(lambda number: uuid.UUID(int=number))),
    st.builds(
        UserScramCredentialRecord,
        NAMES,
        st.sampled_from([1, 2]),
        st.binary(),
        st.binary(),
        st.binary(),
        st.just(4096),
    ),
    st.builds(RemoveUserScramCredentialRecord, NAMES, st.sampled_from([1, 2])),
    st.builds(
        DelegationTokenRecord,
        st.just("User:a"),
        st.just("User:b"),
        st.just(("User:c",)),
        st.just(1),
        st.integers(2, 9),
        st.integers(2, 9),
        NAMES,
    ),
    st.builds(RemoveDelegationTokenRecord, NAMES),
)


def _fenced(record: RegisterBrokerRecord, fenced: bool) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        record.broker_id, record.incarnation_id, record.broker_epoch, record.end_points, fenced=fenced
    )


def _entry(number: int) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        uuid.UUID(int=number),
        ResourceType.TOPIC,
        "a",
        PatternType.LITERAL,
        "User:a",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )


def everything(image: MetadataImage) -> Any:
    return (
        *contents(image)[:6],
        {kind: values for kind, values in image._configs.items() if values},
        image._unified_names,
        image.acls.by_id,
        image.acls._times,
        image.acls._by_name,
        image.users.by_name,
        image.tokens.by_id,
        image.brokers.by_id,
        image.brokers.ended,
        image.brokers.cluster_version,
    )


def replayed(records: list[MetadataRecord]) -> MetadataImage:
    image = MetadataImage()
    for record in records:
        image.replay(decode_record(encode_record(record)))
    return image


@given(st.lists(st.one_of(STEPS, OTHERS), max_size=25))
@example([_fenced(broker(1, 1), fenced=True), ("create", [("a", 1)])])
@example([_entry(1), _entry(2), RemoveAccessControlEntryRecord(uuid.UUID(int=1))])
def test_the_records_of_an_image_give_the_image(steps: list[Any]) -> None:
    image, count = MetadataImage(), 0
    for step in steps:
        for record in decide(image, step) if isinstance(step, tuple) else [step]:
            image.replay(record)
            count += 1
    records = list(records_of(image))
    again = replayed(records)
    assert everything(again) == everything(image)
    assert list(again.topics_by_name) == list(image.topics_by_name)
    assert len(records) <= count
    for record in [SnapshotRecord(), *records]:
        image.replay(decode_record(encode_record(record)))
    assert everything(image) == everything(again), "a snapshot behind its own history"


def test_a_partition_that_moves_keeps_its_order() -> None:
    topic_id = uuid.UUID(int=7)
    image = replayed(
        [TopicRecord("t", topic_id), PartitionRecord(0, topic_id, (1, 2), (1, 2), 1, 3, 4, (2,), (1,), 2)]
    )
    assert everything(replayed(list(records_of(image)))) == everything(image)


@pytest.mark.parametrize("is_removed", [False, True])
def test_ended_sessions_that_nobody_needs_are_left_out(is_removed: bool) -> None:
    records: list[MetadataRecord] = [broker(1, 1), broker(1, 2), broker(1, 3), broker(2, 4)]
    if is_removed:
        records.append(UnregisterBrokerRecord(1, 3))
    image = replayed(records)
    again = replayed(list(records_of(image, {2, 4})))
    assert again.brokers.ended == {2: 1}
    assert again.brokers.by_id == image.brokers.by_id
