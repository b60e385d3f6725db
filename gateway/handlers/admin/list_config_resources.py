"""ListConfigResources (key 74, versions 0–1): list the resources that can be configured (KIP-1142).

Version 0 lists only subscriptions of client metrics (it was ListClientMetricsResources). Topics, this broker
and its loggers are always listed; a group and a subscription are listed only when configurations are set on
them. The client needs DESCRIBE_CONFIGS on the cluster, which is checked before the types. Source: Kafka's
KafkaApis.handleListConfigResources.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.rights import cluster_refusal
from seqgate.gateway.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from seqgate.gateway.protocol.messages import build
from seqgate.gateway.runtime.services import TopicServices
from seqgate.gateway.security.acls.access import Operation

FIRST_WITH_TYPES: Final = 1


def _groups(context: RequestContext[TopicServices]) -> Collection[str]:
    return context.services.metadata_log.image.configured(GROUP_RESOURCE)


def _brokers(context: RequestContext[TopicServices]) -> Collection[str]:
    return (str(context.node.node_id),)


def _topics(context: RequestContext[TopicServices]) -> Collection[str]:
    return context.services.metadata_log.image.topics_by_name


def _client_metrics(context: RequestContext[TopicServices]) -> Collection[str]:
    return context.services.metadata_log.image.configured(CLIENT_METRICS_RESOURCE)


_NAMES: Final[Mapping[int, Callable[[RequestContext[TopicServices]], Collection[str]]]] = {
    GROUP_RESOURCE: _groups,
    CLIENT_METRICS_RESOURCE: _client_metrics,
    BROKER_LOGGER_RESOURCE: _brokers,
    BROKER_RESOURCE: _brokers,
    TOPIC_RESOURCE: _topics,
}


async def handle(context: RequestContext[TopicServices], request: Any) -> Any:
    """List the resources of the types in the request, or of all types when it names none."""
    module = context.response_module
    denied = cluster_refusal(context, Operation.DESCRIBE_CONFIGS)
    if denied is not None:
        return build(module.ListConfigResourcesResponse, error_code=denied.error_code, config_resources=())
    if context.api_version < FIRST_WITH_TYPES:
        asked = {CLIENT_METRICS_RESOURCE}
    else:
        asked = set(request.resource_types) or set(_NAMES)
    if asked - set(_NAMES):
        return build(
            module.ListConfigResourcesResponse, error_code=ErrorCode.unsupported_version, config_resources=()
        )
    resources = tuple(
        build(module.ConfigResource, resource_name=name, resource_type=resource_type)
        for resource_type, names in _NAMES.items()
        if resource_type in asked
        for name in names(context)
    )
    return build(module.ListConfigResourcesResponse, error_code=ErrorCode.none, config_resources=resources)


API = Api(74, "ListConfigResources", 0, 1, api.topics, handle=handle)
