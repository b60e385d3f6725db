"""Which topics have backlog rules, while settings of topics and of the broker change."""

from __future__ import annotations

from pathlib import Path

from seqgate.gateway.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from seqgate.gateway.quota.backlog import NO_LIMIT, Policy
from seqgate.gateway.runtime.backlog import NO_RULES, TopicRules
from tests.gateway.handlers.requests import alter, create, delete
from tests.gateway.handlers.support import Node, open_node


def following(node: Node) -> TopicRules:
    services = node.services
    rules = TopicRules(services.node.config, services.topics.metadata_log.image)
    rules.load()

    async def changed(records: object) -> None:
        rules.changed(records)  # type: ignore[arg-type]

    services.topics.metadata_log.add_listener(changed)
    return rules


async def test_rules_follow_their_topic(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        rules = following(node)
        assert not rules
        await create(node, "own", configs={"message.ttl.ms": "5", "backlog.quota.policy": Policy.EVICT})
        await create(node, "plain", configs={"retention.ms": "5"})
        assert (rules.of("own").ttl_ms, rules.of("own").policy) == (5, Policy.EVICT)
        assert rules.of("plain") == NO_RULES
        assert "own" in rules.names()
        assert "plain" not in rules.names()
        await alter(node, TOPIC_RESOURCE, "own", {"message.ttl.ms": None})
        assert rules.of("own").is_empty
        assert "own" not in rules.names()
        await alter(node, TOPIC_RESOURCE, "own", {"backlog.quota.bytes": "7"})
        await delete(node, "own")
        assert not rules
        await create(node, "own")
        assert rules.of("own") == NO_RULES


async def test_the_brokers_settings_apply_to_topics_without_their_own(tmp_path: Path) -> None:
    async with open_node(tmp_path) as node:
        rules = following(node)
        await create(node, "own", configs={"backlog.quota.ms": "-1"})
        await alter(node, BROKER_RESOURCE, "", {"seqgate.backlog.quota.ms": "9"})
        assert (rules.of("own").quota_ms, rules.of("other").quota_ms) == (NO_LIMIT, 9)
        assert ("own" in rules.names(), "other" in rules.names()) == (False, True)
        assert "__consumer_offsets" not in rules.names()
        await alter(node, BROKER_RESOURCE, "", {"seqgate.backlog.quota.ms": None})
        assert "other" not in rules.names()
