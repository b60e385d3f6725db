"""Creates a run's topics and learns their ids, from a gateway that may crash meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from kio.schema.errors import ErrorCode

from tests.simulation.clients.connection import Disconnected, Link
from tests.simulation.clients.error_codes import FAULTS
from tests.simulation.clients.links import link_of
from tests.simulation.clients.surroundings import Surroundings, Topic

RETRY_S = 0.2
CREATE_VERSION, METADATA_VERSION = 5, 12
NOT_YET = FAULTS | {ErrorCode.unknown_topic_or_partition}
"""Errors of Metadata for a topic that was just created."""


@dataclass(frozen=True)
class TopicPlan:
    name: str
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)


async def create_topics(surroundings: Surroundings, plans: list[TopicPlan], random: Random) -> None:
    """Create the topics and retry until each exists. An existing topic counts, because the answer may have
    been lost.
    """
    link = link_of(surroundings, "topics", random)
    for plan in plans:
        while not await _create(surroundings, link, plan):
            await asyncio.sleep(RETRY_S)
        while not await learn(surroundings, link, plan.name):
            await asyncio.sleep(RETRY_S)
    link.close()


async def _create(surroundings: Surroundings, link: Link, plan: TopicPlan) -> bool:
    configs = [{"name": name, "value": value} for name, value in plan.configs.items()]
    topic = {
        "name": plan.name,
        "num_partitions": plan.partitions,
        "replication_factor": 1,
        "configs": configs,
    }
    try:
        answer = await link.call("create_topics", CREATE_VERSION, {"topics": [topic], "timeout": 10_000})
    except Disconnected:
        return False
    error = answer.topics[0].error_code
    if error in {ErrorCode.none, ErrorCode.topic_already_exists}:
        return True
    if error not in surroundings.faults:
        surroundings.unexpected("topics", f"CreateTopics of {plan.name}: {error.name}")
    return False


async def learn(surroundings: Surroundings, link: Link, name: str) -> bool:
    """Take the topic's id and number of partitions from Metadata."""
    request = {"topics": [{"topic_id": None, "name": name}], "allow_auto_topic_creation": False}
    try:
        answer = await link.call("metadata", METADATA_VERSION, request)
    except Disconnected:
        return False
    topic = answer.topics[0]
    if topic.error_code is not ErrorCode.none:
        if topic.error_code not in NOT_YET:
            surroundings.unexpected("topics", f"Metadata of {name}: {topic.error_code.name}")
        return False
    known = surroundings.topics.get(name)
    partitions = max(len(topic.partitions), 0 if known is None else known.partitions)
    surroundings.topics[name] = Topic(name, str(topic.topic_id), partitions)
    return True
