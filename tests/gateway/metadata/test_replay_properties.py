"""Replaying the stored records of any decisions gives the same image as the live one, with correct counts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.config import load_config
from seqgate.gateway.handlers.admin.configs import alter_configs, replacing
from seqgate.gateway.handlers.admin.topics import (
    MorePartitions,
    TopicToDelete,
    create_partitions,
    delete_topics,
)
from seqgate.gateway.handlers.security.client_quotas import (
    QuotaAlteration,
    QuotaChange,
    alter_client_quotas,
    entity_of,
)
from seqgate.gateway.metadata.configs import Alteration, ConfigChange
from seqgate.gateway.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from seqgate.gateway.metadata.producer_ids import claim_block, move_next
from seqgate.gateway.metadata.records import decode_record, encode_record
from seqgate.gateway.metadata.topics import TopicCreation
from tests.gateway.metadata.support import decide_topics

CONFIG = load_config(overrides=["seqgate.max.partitions=20"])
NAMES = st.sampled_from(["a", "a.b", "a_b", "c", "", "__cluster_metadata"])
CONFIGS = st.sampled_from(
    ["retention.ms", "flush.messages", "cleanup.policy", "message.max.bytes", "nonsense"]
)
VALUES = st.sampled_from(["1", "5", "delete", "", "x"])
QUOTA_ENTITIES = st.lists(
    st.tuples(st.sampled_from(["user", "client-id", "ip"]), st.sampled_from([None, "a", "::1"])), max_size=2
)
QUOTA_CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["producer_byte_rate", "request_percentage", "connection_creation_rate"]),
        st.sampled_from([None, 1.0, 2.5, float("inf")]),
    ),
    max_size=2,
)
STEPS = st.one_of(
    st.tuples(st.just("create"), st.lists(st.tuples(NAMES, st.integers(-1, 4)), max_size=3)),
    st.tuples(st.just("delete"), st.lists(NAMES, max_size=3)),
    st.tuples(st.just("grow"), NAMES, st.integers(-1, 8)),
    st.tuples(
        st.just("alter"),
        st.sampled_from([TOPIC_RESOURCE, BROKER_RESOURCE]),
        NAMES,
        CONFIGS,
        VALUES,
        st.integers(0, 3),
        st.booleans(),
    ),
    st.tuples(st.just("claim"), st.integers(1, 1000)),
    st.tuples(st.just("move"), st.integers(0, 5000)),
    st.tuples(st.just("quota"), QUOTA_ENTITIES, QUOTA_CHANGES),
)


def decide(image: MetadataImage, step: Any) -> list[Any]:
    kind, *rest = step
    if kind == "create":
        topics = [TopicCreation(name=name, num_partitions=count) for name, count in rest[0]]
        return list(decide_topics(image, *topics, config=CONFIG).records)
    if kind == "delete":
        return list(delete_topics(image, [TopicToDelete(name=name) for name in rest[0]]).records)
    if kind == "grow":
        topic = MorePartitions(name=rest[0], count=rest[1])
        return list(create_partitions(image, [topic], config=CONFIG, node_id=1).records)
    if kind == "alter":
        resource_type, name, config, value, operation, replaces = rest
        alteration = Alteration(
            resource_type, name, [ConfigChange(config, value, 0 if replaces else operation)]
        )
        if replaces:
            alteration = replacing(image, alteration)
        return list(alter_configs(image, [alteration], config=CONFIG, node_id=1).records)
    if kind == "quota":
        entity = entity_of(rest[0])
        changes = [QuotaChange(key, value) for key, value in rest[1]]
        return list(
            alter_client_quotas(
                image, [QuotaAlteration(entity, changes)], max_entities=3, validate_only=False
            ).records
        )
    if kind == "claim":
        return list(claim_block(image, size=rest[0], owner="n", now_ms=1, broker_id=1).records)
    next_producer_id = max(rest[0], image.next_producer_id)
    return list(move_next(image, next_producer_id=next_producer_id, broker_id=1).records)


def contents(image: MetadataImage) -> Any:
    return (
        image.topics_by_name,
        image.topics_by_id,
        image.partition_count,
        image.producer_id_blocks,
        image.next_producer_id,
        image.client_quotas,
        image._configs,
        image._unified_names,
    )


@given(st.lists(STEPS, max_size=20))
def test_replay_gives_the_same_image(steps: list[Any]) -> None:
    live, replayed = MetadataImage(), MetadataImage()
    for step in steps:
        for record in decide(live, step):
            live.replay(record)
            replayed.replay(decode_record(encode_record(record)))
    assert contents(live) == contents(replayed)
    topics = list(live.topics_by_name.values())
    assert live.partition_count == sum(len(topic.partitions) for topic in topics) <= 20
    assert {topic.topic_id for topic in topics} == set(live.topics_by_id)
    for topic in topics:
        assert list(topic.partitions) == list(range(len(topic.partitions)))
    assert set(live.configured(TOPIC_RESOURCE)) <= set(live.topics_by_name)
    ends = [(block.first_producer_id, block.next_producer_id) for block in live.producer_id_blocks]
    assert all(end <= first for (_, end), (first, _) in pairwise(ends))
