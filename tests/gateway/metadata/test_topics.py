from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from seqgate.gateway.config import load_config
from seqgate.gateway.metadata.image import METADATA_TOPIC, MetadataImage, name_complaint
from seqgate.gateway.metadata.topics import MAX_PARTITIONS_PER_REQUEST, TopicCreation, TopicResult
from tests.gateway.metadata.support import decide_topics, image_with, replay


def code(result: TopicResult) -> str:
    return "none" if result.error is None else result.error.error_code.name


def codes(results: list[TopicResult]) -> list[str]:
    return [code(result) for result in results]


class TestCreate:
    @pytest.mark.parametrize(
        ("topic", "error"),
        [
            (TopicCreation(name="t", num_partitions=3, replication_factor=1), "none"),
            (TopicCreation(name="t"), "none"),
            (TopicCreation(name="t", num_partitions=0), "invalid_partitions"),
            (TopicCreation(name="t", num_partitions=-2), "invalid_partitions"),
            (TopicCreation(name="t", replication_factor=0), "invalid_replication_factor"),
            (TopicCreation(name="t", replication_factor=-2), "invalid_replication_factor"),
            (TopicCreation(name="t", replication_factor=2), "invalid_replication_factor"),
            (TopicCreation(name="t", num_partitions=1, assignments=[(0, (1,))]), "invalid_request"),
            (TopicCreation(name="t", replication_factor=1, assignments=[(0, (1,))]), "invalid_request"),
            (TopicCreation(name="t", assignments=[(0, (1,)), (1, (1,))]), "none"),
            (TopicCreation(name="t", assignments=[(0, (2,))]), "invalid_replica_assignment"),
            (TopicCreation(name="t", assignments=[(0, (1, 1))]), "invalid_replica_assignment"),
            (TopicCreation(name="t", assignments=[(0, ())]), "invalid_replica_assignment"),
            (TopicCreation(name="t", assignments=[(1, (1,))]), "invalid_replica_assignment"),
            (TopicCreation(name="t", assignments=[(0, (1,)), (0, (1,))]), "invalid_replica_assignment"),
            (TopicCreation(name=""), "invalid_topic_exception"),
            (TopicCreation(name="a b"), "invalid_topic_exception"),
            (TopicCreation(name="__cluster_metadata"), "invalid_request"),
            (TopicCreation(name="t", configs=[("retention.ms", None)]), "invalid_config"),
            (TopicCreation(name="t", configs=[("retention.mss", "1")]), "invalid_config"),
            (TopicCreation(name="t", configs=[("segment.bytes", "100")]), "invalid_config"),
            (TopicCreation(name="t", configs=[("cleanup.policy", "compact")]), "none"),
            (TopicCreation(name="t", configs=[("cleanup.policy", "compact,delete")]), "none"),
            (TopicCreation(name="t", configs=[("cleanup.policy", "compact,compress")]), "invalid_config"),
            (
                TopicCreation(
                    name="t", configs=[("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "8")]
                ),
                "invalid_config",
            ),
            (TopicCreation(name="t", configs=[("cleanup.policy", "")]), "none"),
            (TopicCreation(name="t", configs=[("min.insync.replicas", "2")]), "none"),
            (TopicCreation(name="t", num_partitions=MAX_PARTITIONS_PER_REQUEST + 1), "policy_violation"),
        ],
    )
    def test_as_kafka_answers(self, topic: TopicCreation, error: str) -> None:
        decision = decide_topics(MetadataImage(), topic)
        assert codes(decision.answer) == [error]
        assert bool(decision.records) == (error == "none")

    def test_defaults_come_from_the_settings(self) -> None:
        decision = decide_topics(
            MetadataImage(), TopicCreation(name="t"), config=load_config(overrides=["num.partitions=4"])
        )
        assert decision.answer[0].num_partitions == 4

    def test_a_topic_exists_only_after_its_records(self) -> None:
        image = MetadataImage()
        decision = decide_topics(image, TopicCreation(name="t", configs=[("retention.ms", "5")]))
        assert image.topics_by_name == {}
        replay(image, decision)
        assert image.topics_by_name["t"].topic_id == decision.answer[0].topic_id
        assert image.topic_configs("t") == {"retention.ms": "5"}

    def test_the_last_of_a_doubled_configuration_counts(self) -> None:
        image = image_with(TopicCreation(name="t", configs=[("retention.ms", "1"), ("retention.ms", "2")]))
        assert image.topic_configs("t") == {"retention.ms": "2"}

    def test_validate_only_leaves_no_records(self) -> None:
        decision = decide_topics(
            MetadataImage(), TopicCreation(name="t", num_partitions=3), validate_only=True
        )
        assert codes(decision.answer) == ["none"]
        assert decision.answer[0].num_partitions == 3
        assert decision.records == ()

    def test_existing_and_colliding_names(self) -> None:
        image = image_with(TopicCreation(name="a.b"))
        decision = decide_topics(
            image, TopicCreation(name="a.b"), TopicCreation(name="a_b"), TopicCreation(name="a-b")
        )
        assert codes(decision.answer) == ["topic_already_exists", "invalid_topic_exception", "none"]

    def test_names_collide_within_one_request(self) -> None:
        decision = decide_topics(MetadataImage(), TopicCreation(name="a.b"), TopicCreation(name="a_b"))
        assert codes(decision.answer) == ["none", "invalid_topic_exception"]

    def test_a_name_twice_is_refused_once_at_the_end(self) -> None:
        decision = decide_topics(
            MetadataImage(),
            TopicCreation(name="x"),
            TopicCreation(name="y"),
            TopicCreation(name="x", num_partitions=2),
        )
        assert [(result.name, code(result)) for result in decision.answer] == [
            ("y", "none"),
            ("x", "invalid_request"),
        ]

    def test_too_many_partitions_in_one_request_create_no_topic(self) -> None:
        topics = [TopicCreation(name=name, num_partitions=6_000) for name in ("x", "y")]
        decision = decide_topics(image_with(TopicCreation(name="x")), *topics, TopicCreation(name="z"))
        assert codes(decision.answer) == ["policy_violation"] * 3
        assert decision.records == ()

    def test_what_is_refused_before_does_not_count_as_partitions_of_the_request(self) -> None:
        names = "x", "x", METADATA_TOPIC
        topics = [TopicCreation(name=name, num_partitions=6_000) for name in names]
        decision = decide_topics(MetadataImage(), *topics, TopicCreation(name="y", num_partitions=6_000))
        assert [(result.name, code(result)) for result in decision.answer] == [
            (METADATA_TOPIC, "invalid_request"),
            ("y", "none"),
            ("x", "invalid_request"),
        ]

    def test_the_gateways_limit_counts_what_exists(self) -> None:
        config = load_config(overrides=["seqgate.max.partitions=5"])
        image = image_with(TopicCreation(name="a", num_partitions=3))
        decision = decide_topics(
            image,
            TopicCreation(name="b", num_partitions=2),
            TopicCreation(name="c", num_partitions=1),
            config=config,
        )
        assert codes(decision.answer) == ["none", "policy_violation"]


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "x" * 249, "...", "__consumer_offsets"])
def test_valid_names(name: str) -> None:
    assert name_complaint(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "ä", "a/b", "a\n"])
def test_invalid_names(name: str) -> None:
    complaint = name_complaint(name)
    assert complaint is not None
    assert complaint.startswith("Topic name is invalid")


def test_error_codes_are_kafkas() -> None:
    assert ErrorCode.policy_violation == 44
