"""Makes the ids of new topics and of clients that push metrics."""

from __future__ import annotations

import uuid

from gateway.metadata.records import topic_id_text


def fresh_topic_id() -> uuid.UUID:
    """Return a random topic id."""
    return _fresh_id()


def fresh_client_instance_id() -> uuid.UUID:
    """Return a random id for a client that pushes metrics."""
    return _fresh_id()


def _fresh_id() -> uuid.UUID:
    """Return a random id whose text does not begin with '-', which tools take for an option.

    Kafka's Uuid.randomUuid does the same.
    """
    while True:
        fresh = uuid.uuid4()
        if not topic_id_text(fresh).startswith("-"):
            return fresh
