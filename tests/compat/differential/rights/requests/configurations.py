"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources, and client quotas."""

from __future__ import annotations

from tests.compat.differential.rights.stage import Stage
from tests.compat.differential.rights.table import (
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
    row,
)
from tests.support.wire import Plain

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
ANY_RIGHT_TO_SEE = (DESCRIBE_TOPIC_CONFIGS, DESCRIBE_GROUP_CONFIGS, DESCRIBE_CLUSTER_CONFIGS)
ANY_RIGHT_TO_CHANGE = (ALTER_TOPIC_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_CLUSTER_CONFIGS)
SET = 0


def _resources(stage: Stage) -> list[tuple[int, str, str, str]]:
    """Return type, name, and one configuration with a legal value."""
    topics = [(TOPIC, name, "retention.ms", "3600000") for name in stage.topics]
    groups = [(GROUP, name, "consumer.session.timeout.ms", "46000") for name in stage.groups]
    return [*topics, *groups, (BROKER, str(stage.node_id), "log.cleaner.threads", "1")]


@row(*ANY_RIGHT_TO_SEE, cases=(1, 4))
def describe_configs(stage: Stage, version: int) -> None:
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
        for kind, name, key, _ in _resources(stage)
    ]
    stage.user.call("describe_configs", version, resources=resources, include_synonyms=False)


@row(DESCRIBE_CLUSTER_CONFIGS)
def describe_configs_of_other_kinds(stage: Stage) -> None:
    """Describe the resources whose configurations the rights on the cluster guard, and a type of resource
    that does not exist.
    """
    for kind, name in (
        (BROKER, ""),
        (BROKER, "77"),
        (LOGGER, str(stage.node_id)),
        (CLIENT_METRICS, stage.name("m")),
        (7, "x"),
    ):
        resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": ["no.such.key"]}]
        stage.user.call("describe_configs", 4, resources=resources)


@row(*ANY_RIGHT_TO_CHANGE, cases=(0, 2))
def alter_configs(stage: Stage, version: int) -> None:
    resources = [
        {"resource_type": kind, "resource_name": name, "configs": [{"name": key, "value": value}]}
        for kind, name, key, value in _resources(stage)
    ]
    stage.user.call("alter_configs", version, resources=resources, validate_only=True)


def _change(kind: int, name: str, key: str, value: str) -> Plain:
    configs = [{"name": key, "config_operation": SET, "value": value}]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


@row(*ANY_RIGHT_TO_CHANGE, cases=(0, 1))
def incremental_alter_configs(stage: Stage, version: int) -> None:
    resources = [_change(*resource) for resource in _resources(stage)]
    stage.user.call("incremental_alter_configs", version, resources=resources, validate_only=True)


@row(ALTER_CLUSTER_CONFIGS)
def alter_other_configs(stage: Stage) -> None:
    for resource in (
        (BROKER, "", "log.cleaner.threads", "1"),
        (LOGGER, str(stage.node_id), "root", "INFO"),
        (CLIENT_METRICS, stage.name("m"), "interval.ms", "1000"),
    ):
        stage.user.call("incremental_alter_configs", 1, resources=[_change(*resource)], validate_only=True)


@row(DESCRIBE_CLUSTER_CONFIGS, cases=(0, 1))
def list_config_resources(stage: Stage, version: int) -> None:
    stage.user.call("list_config_resources", version, resource_types=[CLIENT_METRICS])


@row(DESCRIBE_CLUSTER_CONFIGS)
def list_resources_of_topics(stage: Stage) -> None:
    assert stage.open
    stage.user.call("list_config_resources", 1, resource_types=[TOPIC], only_own=True)


@row(DESCRIBE_CLUSTER_CONFIGS, cases=(0, 1))
def describe_client_quotas(stage: Stage, version: int) -> None:
    components = [{"entity_type": "user", "match_type": 0, "match": stage.name("nobody")}]
    stage.user.call("describe_client_quotas", version, components=components, strict=False)


@row(ALTER_CLUSTER_CONFIGS, cases=(0, 1))
def alter_client_quotas(stage: Stage, version: int) -> None:
    """Name three entities; the second one twice."""
    user, client = ("user", stage.name("nobody")), ("client-id", stage.name("app"))
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
        }
        for entity in ((user, client), (user,), (client,), (user,))
    ]
    stage.user.call("alter_client_quotas", version, entries=entries, validate_only=True)
