"""Metadata images built from decisions, as in a gateway."""

from __future__ import annotations

import uuid

from seqgate.gateway.config import Config, load_config
from seqgate.gateway.metadata.decision import Decision
from seqgate.gateway.metadata.image import MetadataImage
from seqgate.gateway.metadata.topics import TopicCreation, TopicResult, create_topics

NODE_ID = 1


def topic_id(number: int) -> uuid.UUID:
    return uuid.UUID(int=number)


def decide_topics(
    image: MetadataImage, *topics: TopicCreation, config: Config | None = None, validate_only: bool = False
) -> Decision[list[TopicResult]]:
    return create_topics(
        image,
        topics,
        fresh_ids=[uuid.uuid4() for _ in topics],
        config=config or load_config(),
        node_id=NODE_ID,
        validate_only=validate_only,
    )


def replay(image: MetadataImage, decision: Decision[object]) -> MetadataImage:
    for record in decision.records:
        image.replay(record)
    return image


def image_with(*topics: TopicCreation) -> MetadataImage:
    image = MetadataImage()
    decision = decide_topics(image, *topics)
    assert all(result.error is None for result in decision.answer)
    return replay(image, decision)
