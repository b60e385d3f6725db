"""Makes the ids of new topics."""

from __future__ import annotations

import uuid

from gateway.metadata.records import topic_id_text


def fresh_topic_id() -> uuid.UUID:
    """Return a random topic id whose text does not begin with '-', which tools take for an option.

    Kafka's Uuid.randomUuid does the same.
    """
    while True:
        topic_id = uuid.uuid4()
        if not topic_id_text(topic_id).startswith("-"):
            return topic_id
