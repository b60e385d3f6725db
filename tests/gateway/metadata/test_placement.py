from __future__ import annotations

import uuid
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.metadata.topics import new_partition, new_partitions

topic_ids = st.uuids()
broker_lists = st.lists(st.integers(0, 100), min_size=1, max_size=9, unique=True).map(sorted)


@given(topic_ids, broker_lists, st.integers(1, 40), st.data())
def test_leaders_are_spread_evenly_and_replicas_differ(
    topic_id: uuid.UUID, brokers: list[int], count: int, data: st.DataObject
) -> None:
    replication_factor = data.draw(st.integers(1, len(brokers)))
    records = list(new_partitions(topic_id, range(count), brokers, replication_factor))
    leaders = Counter(record.leader for record in records)
    assert max(leaders.values()) - min(leaders[broker] for broker in brokers) <= 1
    for index, record in enumerate(records):
        assert record.partition_id == index
        assert record.leader == record.replicas[0]
        assert record.isr == record.replicas
        assert len(set(record.replicas)) == replication_factor
        assert set(record.replicas) <= set(brokers)


@given(topic_ids, broker_lists, st.integers(1, 20), st.integers(1, 20))
def test_partitions_that_are_added_later_are_placed_as_if_they_had_been_there(
    topic_id: uuid.UUID, brokers: list[int], before: int, more: int
) -> None:
    at_once = list(new_partitions(topic_id, range(before + more), brokers))
    later = list(new_partitions(topic_id, range(before, before + more), brokers))
    assert at_once[before:] == later


def test_topics_of_one_partition_are_spread() -> None:
    leaders = Counter(
        next(iter(new_partitions(uuid.uuid5(uuid.NAMESPACE_OID, str(number)), range(1), [1, 2, 3]))).leader
        for number in range(300)
    )
    assert min(leaders[node_id] for node_id in (1, 2, 3)) > 60


def test_the_first_replica_that_is_given_leads() -> None:
    record = new_partition(uuid.UUID(int=4), 7, (3, 1))
    assert (record.partition_id, record.leader, record.leader_epoch, record.isr) == (7, 3, 0, (3, 1))
