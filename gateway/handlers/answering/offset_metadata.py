"""The limit on the metadata of a committed offset, for commits of groups and of transactions."""

from __future__ import annotations

from gateway.runtime.services import NodeServices


def metadata_fits(node: NodeServices, metadata: str) -> bool:
    """Return whether the metadata of an offset fits. Kafka counts UTF-16 units, whatever the setting is called."""
    units = len(metadata.encode("utf-16-le", "surrogatepass")) // 2
    return units <= node.config.int("offset.metadata.max.bytes")
