"""Asks a cluster about configurations, and changes them. Raises ControlError or errors of kafka-python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
from kio.static.primitive import i8

from seqgate.gateway.admin.configs.command import ConfigListing, ConfigRow
from seqgate.gateway.admin.remote.cluster import ALL_BROKERS as DEFAULT
from seqgate.gateway.admin.remote.cluster import Cluster, ask_broker, check, refusal, refusal_of_text
from seqgate.gateway.admin.request import ControlError, nearest_hint
from seqgate.gateway.config.table import without_listener

_TYPES: Final = {"topic": 2, "broker": 4, "client-metrics": 16, "group": 32}
"""The numbers of the kinds: org.apache.kafka.common.config.ConfigResource.Type."""
KINDS: Final = tuple(_TYPES)
_SOURCES: Final = (
    "UNKNOWN",
    "DYNAMIC_TOPIC_CONFIG",
    "DYNAMIC_BROKER_CONFIG",
    "DYNAMIC_DEFAULT_BROKER_CONFIG",
    "STATIC_BROKER_CONFIG",
    "DEFAULT_CONFIG",
    "DYNAMIC_BROKER_LOGGER_CONFIG",
    "DYNAMIC_CLIENT_METRICS_CONFIG",
    "DYNAMIC_GROUP_CONFIG",
)
"""The sources of values by their numbers: ConfigSource of DescribeConfigsResponse."""
_SET_BY_SOMEBODY: Final = frozenset(_SOURCES) - {"UNKNOWN", "DEFAULT_CONFIG"}
_INHERITED: Final = frozenset(
    {"STATIC_BROKER_CONFIG", "DYNAMIC_BROKER_CONFIG", "DYNAMIC_DEFAULT_BROKER_CONFIG"}
)
"""The sources of values that a topic or group takes from its broker, in Kafka's words."""


NOT_SET: Final = frozenset({"DYNAMIC_DEFAULT_BROKER_CONFIG", "STATIC_BROKER_CONFIG", "DEFAULT_CONFIG"})
"""The sources of values that nobody has set on a topic."""


class Resource(NamedTuple):
    """A topic, broker or group that has configurations, or a subscription of client metrics (KIP-714)."""

    kind: str
    name: str

    @property
    def is_all_brokers(self) -> bool:
        """Whether the configurations are the defaults of all brokers, which a broker's own override."""
        return self == ("broker", DEFAULT)


def existing(cluster: Cluster, kind: str, name: str | None) -> Resource:
    """Return the resource that a command names, after checking that the cluster has it."""
    if kind == "topic" and name is not None:
        cluster.topics([name])
    if kind != "broker":
        if not name:
            raise ControlError(f"name the {kind}: configs get {kind} NAME")
        return Resource(kind, name)
    brokers = cluster.broker_ids()
    if name is None:
        if len(brokers) > 1:
            raise ControlError(f"name one of the brokers {', '.join(map(str, brokers))}")
        return Resource(kind, str(brokers[0]))
    if name != DEFAULT and name not in map(str, brokers):
        raise ControlError(
            f"there is no broker {name}; the cluster has {', '.join(map(str, brokers))}, and "
            f"{DEFAULT} stands for all"
        )
    return Resource(kind, name)


def get(cluster: Cluster, resource: Resource, names: Sequence[str], *, everything: bool) -> ConfigListing:
    """Return the configurations with these names; without, those that are set, or all with `everything`."""
    rows = _all_rows(cluster, resource)
    if names:
        if resource.is_all_brokers:
            check_known(cluster, resource, names)
            return ConfigListing(*resource, [row for row in rows if row.name in names], 0)
        by_name = {row.name: row for row in rows}
        for name in names:
            if name not in by_name:
                raise _unknown(resource, name, by_name)
        return ConfigListing(*resource, [by_name[name] for name in names], 0)
    listed = rows if everything else [row for row in rows if _is_set(resource.kind, row.source)]
    return ConfigListing(*resource, listed, len(rows) - len(listed))


def _is_set(kind: str, source: str) -> bool:
    return source in _SET_BY_SOMEBODY and (kind == "broker" or source not in _INHERITED)


def _all_rows(cluster: Cluster, resource: Resource) -> list[ConfigRow]:
    if resource.is_all_brokers:
        return describe(cluster)
    return described(cluster, resource.kind, [resource.name]).get(resource.name, [])


def described(cluster: Cluster, kind: str, names: Sequence[str]) -> dict[str, list[ConfigRow]]:
    """Return the configurations of topics or groups, or of one broker, by name, each sorted by name."""
    request = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(
                resource_type=i8(_TYPES[kind]), resource_name=name, configuration_keys=None
            )
            for name in names
        )
    )
    place = cluster.brokers.get(int(names[0])) if kind == "broker" else cluster.any_broker
    answer = cluster.ask(place, request, DescribeConfigsResponse)
    if answer is not None:
        return {str(found.resource_name): _rows(found.configs) for found in answer.results}
    from kafka.admin import ConfigResource, ConfigResourceType  # noqa: PLC0415 - slow to import

    asked = [ConfigResource(ConfigResourceType(_TYPES[kind]), name) for name in names]
    found: dict[str, Any] = cluster.admin.describe_configs(asked, config_filter="all").get(_key(kind), {})
    return {
        name: [
            ConfigRow(
                name=row,
                value=entry["value"],
                source=entry["config_source"],
                is_read_only=bool(entry["read_only"]),
                is_sensitive=bool(entry["is_sensitive"]),
            )
            for row, entry in sorted(entries.items())
        ]
        for name, entries in found.items()
    }


def _rows(entries: Iterable[Any]) -> list[ConfigRow]:
    rows = [
        ConfigRow(
            name=entry.name,
            value=entry.value,
            source=_SOURCES[int(entry.config_source)],
            is_read_only=entry.read_only,
            is_sensitive=entry.is_sensitive,
        )
        for entry in entries
    ]
    return sorted(rows, key=lambda row: row.name)


def change_remote(
    cluster: Cluster, resource: Resource, settings: Mapping[str, str], unset: Sequence[str]
) -> str | None:
    """Set and unset configurations, all of them or none; return the reason if the cluster refuses."""
    if resource.is_all_brokers:
        return change_all_brokers(cluster, settings, unset)
    from kafka.admin import AlterConfigOp, ConfigResource, ConfigResourceType  # noqa: PLC0415 - slow to import

    wanted: dict[str, Any] = {name: (AlterConfigOp.SET, value) for name, value in settings.items()}
    wanted |= dict.fromkeys(unset, (AlterConfigOp.DELETE, None))
    asked = ConfigResource(ConfigResourceType(_TYPES[resource.kind]), resource.name, wanted)
    answer = cluster.admin.alter_configs([asked], raise_on_unknown=False)
    return refusal_of_text(answer[_key(resource.kind)][resource.name])


def _key(kind: str) -> str:
    """Return the name that kafka-python has for a kind."""
    return kind.replace("-", "_")


def check_known(cluster: Cluster, resource: Resource, names: Sequence[str]) -> None:
    """Raise ControlError for the first of the names that is no configuration of the resource. Check nothing
    where the cluster does not list the resource's configurations.
    """
    if resource.is_all_brokers:
        # The defaults of all brokers are listed only where they are set.
        known = {row.name for row in _all_rows(cluster, Resource("broker", str(cluster.broker_ids()[0])))}
    else:
        known = {row.name for row in _all_rows(cluster, resource)}
    for name in names:
        # A setting of one listener is listed only where somebody has set it, so its name can't be checked.
        if known and not known.intersection({name, without_listener(name)}):
            raise _unknown(resource, name, known)


def _unknown(resource: Resource, name: str, known: Mapping[str, Any] | set[str]) -> ControlError:
    return ControlError(
        f"{resource.kind} {resource.name} has no configuration {name}{nearest_hint(name, known)}"
    )


# The defaults of all brokers of a cluster, which kafka-python can't address. Every function raises
# ControlError.

_BROKER: Final = i8(_TYPES["broker"])
_ALL: Final = ""
"""The name of the resource that stands for all brokers."""
_SET: Final = i8(0)
_DELETE: Final = i8(1)


def describe(cluster: Cluster) -> list[ConfigRow]:
    """Return the configurations that are set for all brokers, by name."""
    asked = DescribeConfigsResource(resource_type=_BROKER, resource_name=_ALL, configuration_keys=None)
    answer = ask_broker(cluster.reached, DescribeConfigsRequest(resources=(asked,)), DescribeConfigsResponse)
    (found,) = answer.results
    check(found)
    return _rows(found.configs)


def change_all_brokers(cluster: Cluster, settings: Mapping[str, str], unset: Sequence[str]) -> str | None:
    """Set and unset configurations of all brokers, all or none; return the reason if the cluster refuses."""
    from kio.schema.incremental_alter_configs.v1.request import (  # noqa: PLC0415 - seldom needed
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )
    from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse  # noqa: PLC0415 - as above

    wanted = [
        AlterableConfig(name=name, config_operation=_SET, value=value) for name, value in settings.items()
    ]
    wanted += [AlterableConfig(name=name, config_operation=_DELETE, value=None) for name in unset]
    asked = AlterConfigsResource(resource_type=_BROKER, resource_name=_ALL, configs=tuple(wanted))
    answer = ask_broker(
        cluster.reached,
        IncrementalAlterConfigsRequest(resources=(asked,), validate_only=False),
        IncrementalAlterConfigsResponse,
    )
    (outcome,) = answer.responses
    return refusal(outcome.error_code, outcome.error_message)
