"""Requests of the administrative APIs, in every version that has the needed fields."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from seqgate.gateway.handlers.admin import metadata
from seqgate.gateway.handlers.admin.configs import (
    ALTER_CONFIGS_API,
    DESCRIBE_CONFIGS_API,
    INCREMENTAL_ALTER_CONFIGS_API,
)
from seqgate.gateway.handlers.admin.topics import CREATE_PARTITIONS_API, CREATE_TOPICS_API, DELETE_TOPICS_API
from seqgate.gateway.protocol.messages import build
from tests.gateway.handlers.support import Node

TIMEOUT = timedelta(seconds=30)


async def create(
    node: Node,
    name: str,
    partitions: int = 1,
    *,
    configs: dict[str, str | None] | None = None,
    version: int = 7,
    validate_only: bool = False,
) -> Any:
    """Return the one result of a CreateTopics request."""

    def make(module: Any) -> dict[str, Any]:
        pairs = (configs or {}).items()
        topic = module.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=(),
            configs=tuple(module.CreatableTopicConfig(name=key, value=value) for key, value in pairs),
        )
        return {"topics": (topic,), "timeout": TIMEOUT, "validate_only": validate_only}

    response = await node.ask(CREATE_TOPICS_API, version, make)
    return response.topics[0]


async def delete(node: Node, *names: str, version: int = 6) -> Any:
    """Return the results of a DeleteTopics request."""

    def make(module: Any) -> dict[str, Any]:
        if version < 6:
            return {"topic_names": names, "timeout": TIMEOUT}
        topics = tuple(module.DeleteTopicState(name=name, topic_id=None) for name in names)
        return {"topics": topics, "timeout": TIMEOUT}

    return (await node.ask(DELETE_TOPICS_API, version, make)).responses


async def grow(node: Node, name: str, count: int, *, version: int = 3) -> Any:
    """Return the one result of a CreatePartitions request."""

    def make(module: Any) -> dict[str, Any]:
        topic = module.CreatePartitionsTopic(name=name, count=count, assignments=None)
        return {"topics": (topic,), "timeout": TIMEOUT, "validate_only": False}

    return (await node.ask(CREATE_PARTITIONS_API, version, make)).results[0]


async def describe(
    node: Node,
    resource_type: int,
    name: str,
    keys: Sequence[str] | None = None,
    *,
    version: int = 4,
    documented: bool = False,
) -> Any:
    """Return the one result of a DescribeConfigs request with synonyms."""

    def make(module: Any) -> dict[str, Any]:
        resource = module.DescribeConfigsResource(
            resource_type=resource_type,
            resource_name=name,
            configuration_keys=None if keys is None else tuple(keys),
        )
        return {"resources": (resource,), "include_synonyms": True, "include_documentation": documented}

    return (await node.ask(DESCRIBE_CONFIGS_API, version, make)).results[0]


async def alter(
    node: Node, resource_type: int, name: str, configs: dict[str, str | None], *, version: int = 1
) -> Any:
    """Send IncrementalAlterConfigs and return its only result; None deletes a config."""

    def make(module: Any) -> dict[str, Any]:
        changes = tuple(
            module.AlterableConfig(name=key, config_operation=1 if value is None else 0, value=value)
            for key, value in configs.items()
        )
        resource = module.AlterConfigsResource(
            resource_type=resource_type, resource_name=name, configs=changes
        )
        return {"resources": (resource,), "validate_only": False}

    return (await node.ask(INCREMENTAL_ALTER_CONFIGS_API, version, make)).responses[0]


async def replace(
    node: Node, resource_type: int, name: str, configs: dict[str, str], *, version: int = 2
) -> Any:
    """Return the one result of an AlterConfigs request."""

    def make(module: Any) -> dict[str, Any]:
        changes = tuple(module.AlterableConfig(name=key, value=value) for key, value in configs.items())
        resource = module.AlterConfigsResource(
            resource_type=resource_type, resource_name=name, configs=changes
        )
        return {"resources": (resource,), "validate_only": False}

    return (await node.ask(ALTER_CONFIGS_API, version, make)).responses[0]


async def ask_metadata(
    node: Node,
    names: Sequence[str | None] | None,
    *,
    ids: Sequence[uuid.UUID] = (),
    version: int = 13,
    auto_create: bool = False,
    operations: bool = False,
) -> Any:
    """Send a Metadata request for names and ids; `names` None asks for all topics."""

    def make(module: Any) -> dict[str, Any]:
        topics = None
        if names is not None:
            asked = [(name, None) for name in names] + [(None, topic_id) for topic_id in ids]
            topics = tuple(
                build(module.MetadataRequestTopic, name=name, topic_id=topic_id) for name, topic_id in asked
            )
        return {
            "topics": topics,
            "allow_auto_topic_creation": auto_create,
            "include_topic_authorized_operations": operations,
            "include_cluster_authorized_operations": operations,
        }

    return await node.ask(metadata.API, version, make)
