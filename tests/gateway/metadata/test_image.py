from __future__ import annotations

import uuid

import pytest

from seqgate.gateway.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from seqgate.gateway.metadata.producer_ids import claim_block, move_next
from seqgate.gateway.metadata.records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from seqgate.gateway.metadata.topics import TopicCreation
from tests.gateway.metadata.support import image_with, replay


def test_a_topic_is_found_by_name_and_by_id() -> None:
    image = image_with(TopicCreation(name="a", num_partitions=3, replication_factor=1))
    topic = image.topics_by_name["a"]
    assert image.topics_by_id[topic.topic_id] is topic
    assert list(topic.partitions) == [0, 1, 2]
    assert image.partition_count == 3
    assert topic.partitions[0].leader_epoch == 0


def test_removal_also_removes_partitions_configs_and_collisions() -> None:
    image = image_with(TopicCreation(name="a.b", num_partitions=2, configs=[("retention.ms", "1")]))
    assert image.topic_configs("a.b") == {"retention.ms": "1"}
    assert image.colliding_topic("a_b") == "a.b"
    image.replay(RemoveTopicRecord(image.topics_by_name["a.b"].topic_id))
    assert image.topics_by_name == {}
    assert image.topics_by_id == {}
    assert image.partition_count == 0
    assert image.topic_configs("a.b") == {}
    assert image.colliding_topic("a_b") is None


def test_records_of_an_unknown_topic_change_nothing() -> None:
    image = MetadataImage()
    stranger = uuid.UUID(int=9)
    image.replay(RemoveTopicRecord(stranger))
    image.replay(
        PartitionRecord(partition_id=0, topic_id=stranger, replicas=(1,), isr=(1,), leader=1, leader_epoch=0)
    )
    assert image.partition_count == 0


def test_a_partition_record_again_sets_leadership_and_counts_once() -> None:
    image = image_with(TopicCreation(name="a"))
    topic = image.topics_by_name["a"]
    image.replay(
        PartitionRecord(
            partition_id=0, topic_id=topic.topic_id, replicas=(1,), isr=(1,), leader=1, leader_epoch=7
        )
    )
    assert image.partition_count == 1
    assert topic.partitions[0].leader_epoch == 7


def test_a_configuration_without_value_is_removed() -> None:
    image = MetadataImage()
    image.replay(ConfigRecord(BROKER_RESOURCE, "", "message.max.bytes", "5"))
    assert image.configs(BROKER_RESOURCE, "") == {"message.max.bytes": "5"}
    assert image.configs(TOPIC_RESOURCE, "") == {}
    image.replay(ConfigRecord(BROKER_RESOURCE, "", "message.max.bytes", None))
    image.replay(ConfigRecord(BROKER_RESOURCE, "", "message.max.bytes", None))
    assert image.configs(BROKER_RESOURCE, "") == {}


def test_topics_that_collide_may_exist_by_replay() -> None:
    image = MetadataImage()
    image.replay(TopicRecord("a.b", uuid.UUID(int=1)))
    image.replay(TopicRecord("a_b", uuid.UUID(int=2)))
    image.replay(RemoveTopicRecord(uuid.UUID(int=1)))
    assert image.colliding_topic("a.b") == "a_b"


class TestProducerIds:
    def test_blocks_follow_each_other(self) -> None:
        image = MetadataImage()
        for number in range(3):
            decision = claim_block(image, size=1000, owner="n1", now_ms=number, broker_id=1)
            assert decision.answer.first_producer_id == number * 1000
            assert decision.answer.next_producer_id == (number + 1) * 1000
            replay(image, decision)
        assert [record.claimed_at_ms for record in image.producer_id_blocks] == [0, 1, 2]

    def test_moving_next_claims_nothing(self) -> None:
        image = MetadataImage()
        replay(image, move_next(image, next_producer_id=500, broker_id=1))
        assert image.producer_id_blocks == []
        assert claim_block(image, size=10, owner="", now_ms=0, broker_id=1).answer.first_producer_id == 500
        assert move_next(image, next_producer_id=500, broker_id=1).records == ()

    def test_next_never_moves_back(self) -> None:
        image = MetadataImage()
        replay(image, claim_block(image, size=10, owner="", now_ms=0, broker_id=1))
        with pytest.raises(ValueError, match="not 9"):
            move_next(image, next_producer_id=9, broker_id=1)

    @pytest.mark.parametrize("size", [0, -1, 2**63])
    def test_impossible_sizes(self, size: int) -> None:
        with pytest.raises(ValueError):
            claim_block(MetadataImage(), size=size, owner="", now_ms=0, broker_id=1)

    def test_the_last_id_can_be_claimed_and_no_more(self) -> None:
        image = MetadataImage()
        replay(image, move_next(image, next_producer_id=2**62 - 11, broker_id=1))
        replay(image, claim_block(image, size=10, owner="", now_ms=0, broker_id=1))
        assert image.next_producer_id == 2**62 - 1
        with pytest.raises(ValueError, match="are left"):
            claim_block(image, size=1, owner="", now_ms=0, broker_id=1)
