"""Rounds of moves: which workers stop, and what happens once they have, or have not."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from pathlib import Path

import pytest
from msgspec.structs import replace

from seqgate.gateway.metadata.records import PartitionRecord, TopicRecord
from seqgate.gateway.workers.directory_storage import RETRY_S, STOP_LIMIT_S, Moves, ordered
from seqgate.gateway.workers.metadata_writer import MetadataWriter
from seqgate.gateway.workers.worker_brokers import registration
from seqgate.log import StorageFailed
from tests.gateway.workers.test_metadata_writer import created, writer

TOPIC_ID = uuid.UUID(int=7)


def order(index: int, leader: int, to: int) -> PartitionRecord:
    return PartitionRecord(index, TOPIC_ID, (to, leader), (leader,), leader, 0, 1, (to,), (leader,), to)


class Scene:
    def __init__(self, root: Path) -> None:
        created(root)
        self.metadata: MetadataWriter = writer(root)
        self.metadata.change([registration(n, n, uuid.uuid4(), {}, None) for n in (1, 2, 3)])
        self.handed: list[tuple[str, int, int]] = []
        self.error: Exception | None = None
        self.moves = Moves(self.metadata, [1, 2, 3], self.hand_on)
        assert self.moves.begin(0.0) == set()

    def hand_on(self, leader: int, to: int, keys: Collection[tuple[str, int]]) -> None:
        if self.error is not None:
            raise self.error
        assert all(self.leaders()[index] == leader for _, index in keys)
        self.handed += [(topic, index, to) for topic, index in sorted(keys)]

    def order(self) -> None:
        self.metadata.change(
            [
                TopicRecord("t", TOPIC_ID),
                order(0, 1, 2),
                PartitionRecord(1, TOPIC_ID, (1,), (1,), 1, 0),
                order(2, 1, 2),
            ]
        )

    def leaders(self) -> list[int]:
        partitions = self.metadata.image.topics_by_id[TOPIC_ID].partitions
        return [partitions[index].leader for index in range(3)]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_both_workers_end_before_anything_moves(scene: Scene) -> None:
    scene.order()
    assert scene.moves.begin(1.0) == {1, 2}
    assert scene.moves.begin(1.0) == set()
    assert scene.moves.is_awaited(2)
    assert not scene.moves.ended(2, 2.0, is_clean=True)
    assert scene.leaders() == [1, 1, 1]
    assert scene.moves.ended(1, 2.0, is_clean=True)
    assert scene.handed == [("t", 0, 2), ("t", 2, 2)]
    assert scene.leaders() == [2, 1, 2]
    partition = scene.metadata.image.topics_by_id[TOPIC_ID].partitions[0]
    assert (partition.leader_epoch, partition.replicas) == (1, (2,))
    assert not ordered(scene.metadata.image, [1, 2, 3])
    assert scene.moves.begin(100.0) == set()


def test_nothing_moves_after_a_death_and_all_is_tried_again(scene: Scene) -> None:
    scene.order()
    scene.moves.begin(1.0)
    scene.moves.ended(1, 2.0, is_clean=False)
    assert scene.moves.ended(2, 2.0, is_clean=True)
    assert not scene.handed
    assert scene.leaders() == [1, 1, 1]
    assert scene.moves.begin(3.0) == set()
    assert scene.moves.begin(2.0 + RETRY_S) == {1, 2}


def test_facts_that_can_not_be_handed_on_leave_the_leader(scene: Scene) -> None:
    scene.order()
    scene.error = StorageFailed("the facts are lost")
    scene.moves.begin(1.0)
    scene.moves.ended(1, 2.0, is_clean=True)
    assert scene.moves.ended(2, 2.0, is_clean=True)
    assert scene.leaders() == [1, 1, 1]
    scene.error = None
    assert scene.moves.begin(2.0 + RETRY_S) == {1, 2}
    scene.moves.ended(1, 9.0, is_clean=True)
    scene.moves.ended(2, 9.0, is_clean=True)
    assert scene.leaders() == [2, 1, 2]


def test_a_worker_that_does_not_end_is_late(scene: Scene) -> None:
    scene.order()
    scene.moves.begin(1.0)
    scene.moves.ended(1, 2.0, is_clean=True)
    assert list(scene.moves.late(1.0 + STOP_LIMIT_S)) == []
    assert list(scene.moves.late(1.1 + STOP_LIMIT_S)) == [2]


def test_a_topic_that_is_deleted_meanwhile_does_not_move(scene: Scene) -> None:
    scene.order()
    scene.moves.begin(1.0)
    scene.moves.ended(1, 2.0, is_clean=True)
    del scene.metadata.image.topics_by_id[TOPIC_ID]
    assert scene.moves.ended(2, 2.0, is_clean=True)
    assert not scene.handed


def test_an_order_that_is_replaced_meanwhile_is_not_carried_out(scene: Scene) -> None:
    scene.order()
    scene.moves.begin(1.0)
    scene.metadata.change([replace(order(0, 1, 3), partition_epoch=2)])
    scene.moves.ended(1, 2.0, is_clean=True)
    assert scene.moves.ended(2, 2.0, is_clean=True)
    assert scene.handed == [("t", 2, 2)]
    assert scene.leaders() == [1, 1, 2]
    assert scene.moves.begin(2.0) == {1, 3}
