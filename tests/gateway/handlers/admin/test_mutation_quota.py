"""A decision about topics that is made again, because another gateway changed the metadata, is charged once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqgate.gateway.handlers.admin.topics import CREATE_TOPICS_API, EXCEEDED, charge_mutations
from seqgate.gateway.handlers.answering.changes import fresh_id
from seqgate.gateway.metadata.topics import TopicCreation, create_topics
from tests.gateway.handlers.support import open_node


class OneCharge:
    """A quota that lets one topic through."""

    def __init__(self) -> None:
        self.charged: list[int] = []

    def may_mutate(self, partitions: int, *, strict: bool) -> bool:
        assert strict
        self.charged.append(partitions)
        return len(self.charged) == 1


class TestChargingOnce:
    async def test_each_topic_is_charged_at_the_first_decision(self, tmp_path: Path) -> None:
        async with open_node(tmp_path) as node:
            charge: Any = OneCharge()
            context = node.context(CREATE_TOPICS_API, 7)
            context.charge = charge
            topics = [(TopicCreation(name=name, num_partitions=2), fresh_id()) for name in ("a", "b")]
            decide = charge_mutations(
                context,
                topics,
                lambda image, some: create_topics(
                    image,
                    [topic for topic, _ in some],
                    fresh_ids=[topic_id for _, topic_id in some],
                    config=context.node.config,
                    node_id=1,
                ),
                key=lambda pair: pair[0].name,
                partitions=lambda _, result: result.num_partitions,
                strict_since=6,
            )
            image = node.services.topics.metadata_log.image
            first, second = decide(image), decide(image)
            assert charge.charged == [2, 2]
            assert first == second
            assert [result.error for result in first.answer] == [None, EXCEEDED]
