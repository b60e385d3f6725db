"""The port to the records of partitions that this gateway leads, where they must be brought here before it serves them."""

from __future__ import annotations

import uuid
from typing import Final, Protocol

from gateway.metadata.image import MetadataImage


class Readiness(Protocol):
    """Tells whether the records of a partition are here. All methods belong to the event loop."""

    def begin(self, image: MetadataImage) -> None:
        """Take the metadata as a start has read it, before anything asks."""

    def is_ready(self, topic_id: uuid.UUID, index: int) -> bool:
        """Return whether a partition that this gateway leads may be served."""

    def lost(self, topic: str, topic_id: uuid.UUID, index: int) -> None:
        """Note that another gateway leads a partition. Nobody is served from its log any more."""


class AlwaysReady:
    """The readiness of a gateway whose data directory has all that the gateway leads. The log of a lost partition stays open."""

    def begin(self, image: MetadataImage) -> None:
        """Do nothing."""

    def is_ready(self, topic_id: uuid.UUID, index: int) -> bool:  # noqa: ARG002 - the port's
        """Return True."""
        return True

    def lost(self, topic: str, topic_id: uuid.UUID, index: int) -> None:
        """Do nothing."""


ALWAYS_READY: Final = AlwaysReady()
