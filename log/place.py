"""The place of a partition log: its directory, and the partition whose records the log holds."""

from __future__ import annotations

import uuid
from typing import NamedTuple


class LogPlace(NamedTuple):
    """The directory of a partition log, its topic, partition and topic id."""

    directory: str
    topic: str
    partition: int
    topic_id: uuid.UUID

    def __str__(self) -> str:
        """Return Kafka's name of the partition, "TOPIC-PARTITION"."""
        return f"{self.topic}-{self.partition}"
