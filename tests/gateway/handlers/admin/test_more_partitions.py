"""Partitions that are added to a topic: which requests are refused, as by Kafka."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from seqgate.gateway.config import load_config
from seqgate.gateway.handlers.admin.topics import MorePartitions, create_partitions
from seqgate.gateway.metadata.topics import TopicCreation
from tests.gateway.metadata.clusters import broker
from tests.gateway.metadata.support import NODE_ID, decide_topics, image_with, replay
from tests.gateway.metadata.test_topics import codes


class TestMorePartitions:
    @pytest.mark.parametrize(
        ("topic", "error"),
        [
            (MorePartitions(name="none", count=3), "unknown_topic_or_partition"),
            (MorePartitions(name="a", count=2), "invalid_partitions"),
            (MorePartitions(name="a", count=1), "invalid_partitions"),
            (MorePartitions(name="a", count=-1), "invalid_partitions"),
            (MorePartitions(name="a", count=3, assignments=[(1,), (1,)]), "invalid_replica_assignment"),
            (MorePartitions(name="a", count=3, assignments=[(2,)]), "invalid_replica_assignment"),
            (MorePartitions(name="a", count=3, assignments=[()]), "invalid_replica_assignment"),
            (MorePartitions(name="a", count=3, assignments=[(1,)]), "none"),
            (MorePartitions(name="a", count=4), "none"),
            (MorePartitions(name="a", count=20_000), "policy_violation"),
        ],
    )
    def test_as_kafka_answers(self, topic: MorePartitions, error: str) -> None:
        image = image_with(TopicCreation(name="a", num_partitions=2))
        decision = create_partitions(image, [topic], config=load_config(), node_id=NODE_ID)
        assert codes(decision.answer) == [error]
        replay(image, decision)
        expected = topic.count if error == "none" else 2
        assert list(image.topics_by_name["a"].partitions) == list(range(expected))

    def test_too_many_partitions_in_one_request_enlarge_no_topic(self) -> None:
        image = image_with(TopicCreation(name="a"), TopicCreation(name="b"))
        topics = [MorePartitions(name=name, count=6_000) for name in ("a", "b", "none")]
        decision = create_partitions(image, topics, config=load_config(), node_id=NODE_ID)
        assert codes(decision.answer) == ["policy_violation"] * 3
        assert decision.records == ()
        twice = [MorePartitions(name=name, count=6_000) for name in ("a", "a", "b")]
        decision = create_partitions(image, twice, config=load_config(), node_id=NODE_ID)
        assert codes(decision.answer) == ["invalid_request", "none"]

    def test_clients_retry_while_all_brokers_are_fenced(self) -> None:
        image = image_with(TopicCreation(name="a"))
        image.replay(replace(broker(1, 1), fenced=True))
        created = decide_topics(
            image, TopicCreation(name="b"), TopicCreation(name="c", assignments=[(0, (1,))])
        )
        more = create_partitions(
            image, [MorePartitions(name="a", count=2)], config=load_config(), node_id=NODE_ID
        )
        assert codes(created.answer + more.answer) == ["not_controller"] * 3

    def test_a_topic_twice_is_refused(self) -> None:
        image = image_with(TopicCreation(name="a"))
        decision = create_partitions(
            image,
            [MorePartitions(name="a", count=2), MorePartitions(name="a", count=3)],
            config=load_config(),
            node_id=NODE_ID,
        )
        assert codes(decision.answer) == ["invalid_request"]

    def test_validate_only(self) -> None:
        image = image_with(TopicCreation(name="a"))
        decision = create_partitions(
            image,
            [MorePartitions(name="a", count=2)],
            config=load_config(),
            node_id=NODE_ID,
            validate_only=True,
        )
        assert codes(decision.answer) == ["none"]
        assert decision.records == ()
