"""The topics that members of groups can be assigned."""

from __future__ import annotations

from pathlib import Path

from seqgate.gateway.runtime.topics.topic_lifecycle import RegisteredTopics
from tests.gateway.handlers.requests import create
from tests.gateway.handlers.support import open_node


async def test_internal_topics_are_among_them(tmp_path: Path) -> None:
    async with open_node(tmp_path, "offsets.topic.num.partitions=3") as node:
        services = node.services
        await services.coordinators.groups.ensure_topic()
        await create(node, "flights", 2)
        topics = RegisteredTopics(services.partitions.registry)
        assert sorted(topics.names()) == ["__consumer_offsets", "flights"]
        counts = [found[1] for name in sorted(topics.names()) if (found := topics.describe(name)) is not None]
        assert counts == [3, 2]
