"""The defaults of all brokers of a cluster, which kafka-python can't address. Every function raises ControlError."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kafka.admin import AlterConfigOp, ConfigResourceType, ConfigSourceType
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse
from kio.static.primitive import i8

from gateway.admin.configs.messages import ConfigRow
from gateway.admin.remote.cluster import Cluster
from gateway.admin.remote.errors import refusal
from gateway.admin.remote.requests import ask_broker
from gateway.admin.request import ControlError

_BROKER: Final = i8(ConfigResourceType.BROKER.value)
_ALL: Final = ""
"""The name of the resource that stands for all brokers."""
_SET: Final = i8(AlterConfigOp.SET.value)
_DELETE: Final = i8(AlterConfigOp.DELETE.value)


def describe(cluster: Cluster) -> list[ConfigRow]:
    """Return the configurations that are set for all brokers, by name."""
    asked = DescribeConfigsResource(resource_type=_BROKER, resource_name=_ALL, configuration_keys=None)
    answer = ask_broker(cluster.reached, DescribeConfigsRequest(resources=(asked,)), DescribeConfigsResponse)
    (found,) = answer.results
    refused = refusal(found.error_code.value, found.error_message)
    if refused is not None:
        raise ControlError(refused)
    rows = [
        ConfigRow(
            name=entry.name,
            value=entry.value,
            source=ConfigSourceType(int(entry.config_source)).name,
            is_read_only=entry.read_only,
            is_sensitive=entry.is_sensitive,
        )
        for entry in found.configs
    ]
    return sorted(rows, key=lambda row: row.name)


def change(cluster: Cluster, settings: Mapping[str, str], unset: Sequence[str]) -> str | None:
    """Set and unset configurations of all brokers, all or none; return the reason if the cluster refuses."""
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
    return refusal(outcome.error_code.value, outcome.error_message)
