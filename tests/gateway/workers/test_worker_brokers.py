from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable

from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.records import MetadataRecord, PartitionRecord, RegisterBrokerRecord
from seqgate.gateway.workers.worker_brokers import (
    died,
    leader_of,
    only_brokers,
    registration,
    serves,
    spread,
    unregistered,
)
from tests.gateway.metadata.clusters import add_topic, cluster, leaders


def worker(node_id: int, epoch: int, port: int = 9092) -> RegisterBrokerRecord:
    return registration(node_id, epoch, uuid.UUID(int=epoch), {"PLAINTEXT": ("host", port)}, None)


def replay(image: MetadataImage, records: Iterable[MetadataRecord]) -> list[MetadataRecord]:
    done = list(records)
    for record in done:
        image.replay(record)
    return done


def seated(image: MetadataImage, *node_ids: int) -> None:
    replay(image, only_brokers(image, [worker(node_id, 100 + node_id) for node_id in node_ids]))
    replay(image, spread(image, node_ids))


def of_one_process() -> MetadataImage:
    image = MetadataImage()
    for number, count in enumerate((6, 1, 1, 4), start=1):
        add_topic(image, number, count)
    return image


def test_what_one_process_led_is_spread() -> None:
    image = of_one_process()
    seated(image, 1, 2)
    assert Counter(leaders(image).values()) == {1: 6, 2: 6}
    assert [image.topics_by_name["t1"].partitions[index].leader_epoch for index in range(6)].count(1) == 3


def test_the_partitions_of_workers_that_are_gone_are_led() -> None:
    image = of_one_process()
    seated(image, 1, 2, 3)
    assert Counter(leaders(image).values()) == {1: 4, 2: 4, 3: 4}
    seated(image, 1, 2)
    assert image.brokers.live(1) == [1, 2]
    assert Counter(leaders(image).values()) == {1: 6, 2: 6}
    seated(image, 1)
    assert set(leaders(image).values()) == {1}


def test_the_same_workers_again_move_nothing() -> None:
    image = of_one_process()
    seated(image, 1, 2, 3)
    before = leaders(image)
    seated(image, 1, 2, 3)
    assert leaders(image) == before


def test_one_process_after_workers_is_alone() -> None:
    image = cluster([1, 2], [4])
    replay(image, unregistered(image))
    assert not image.brokers.by_id


def test_a_dead_worker_is_fenced_until_it_serves_in_the_next_epochs() -> None:
    image = of_one_process()
    seated(image, 1, 2)
    before = leaders(image)
    assert len(replay(image, died(image, 2))) == 1
    assert image.brokers.live(1) == [1]
    assert replay(image, died(image, 2)) == []
    done = replay(image, serves(image, worker(2, 200)))
    assert image.brokers.live(1) == [1, 2]
    assert leaders(image) == before
    raised = [record for record in done if isinstance(record, PartitionRecord)]
    assert len(raised) == 6
    assert {record.leader for record in raised} == {2}
    assert all(
        record.leader_epoch
        == image.topics_by_id[record.topic_id].partitions[record.partition_id].leader_epoch
        for record in raised
    )


def test_a_worker_that_serves_where_it_is_registered_changes_nothing() -> None:
    image = of_one_process()
    seated(image, 1, 2)
    assert list(serves(image, worker(2, 200))) == []
    # a free port is known only when the worker listens
    assert list(serves(image, worker(2, 200, port=5000))) == [worker(2, 200, port=5000)]


def test_a_worker_that_nobody_knows_is_registered() -> None:
    image = of_one_process()
    seated(image, 1)
    assert list(died(image, 7)) == []
    assert list(serves(image, worker(7, 9))) == [worker(7, 9)]


def test_the_leader_of_a_partition() -> None:
    image = cluster([1], [1])
    assert leader_of(image, "t1", 0) == 1
    assert leader_of(image, "t1", 1) is None
    assert leader_of(image, "unknown", 0) is None
