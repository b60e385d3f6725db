"""DescribeConfigs (key 32, versions 1-4): describe configurations of topics, groups, client metrics, this
broker and its loggers.

As in Kafka, a resource type that Kafka does not know refuses the whole request. The right on a resource is
checked before the resource. Kafka lists the resources that it refuses for their rights last; Seqgate keeps
the order of the request. Source: Kafka's ConfigHelper.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.admin.config_rights import description_refusal
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.named_twice import answer_each
from seqgate.gateway.metadata.decision import ApiError
from seqgate.gateway.metadata.described import (
    DescribedConfig,
    describe_all_brokers,
    describe_broker,
    describe_client_metrics,
    describe_group,
    describe_loggers,
    describe_topic,
)
from seqgate.gateway.metadata.image import (
    ALL_BROKERS,
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    name_complaint,
)
from seqgate.gateway.metadata.producer_ids import node_id_of
from seqgate.gateway.protocol.messages import build
from seqgate.gateway.runtime.loop import log_output
from seqgate.gateway.runtime.services import TopicServices

_KNOWN_KINDS: Final = {
    TOPIC_RESOURCE,
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    BROKER_LOGGER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
}


async def handle(context: RequestContext[TopicServices], request: Any) -> Any:
    """Describe each resource, or return its error."""
    module = context.response_module
    unknown = [resource for resource in request.resources if resource.resource_type not in _KNOWN_KINDS]
    refusal = None
    if unknown:
        text = f"Unexpected resource type {unknown[0].resource_type} for resource {unknown[0].resource_name}"
        refusal = ApiError(ErrorCode.invalid_request, text)
    documented = context.api_version >= 3 and request.include_documentation

    def answer(resource: Any) -> Any:
        denied = description_refusal(context, resource.resource_type, resource.resource_name)
        found = refusal or denied or _describe(context, resource)
        error = found if isinstance(found, ApiError) else None
        entries = () if isinstance(found, ApiError) else found
        return build(
            module.DescribeConfigsResult,
            error_code=error.error_code if error else ErrorCode.none,
            error_message=error.message if error else "",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=tuple(
                _entry(module, entry, synonyms=request.include_synonyms, documented=documented)
                for entry in entries
            ),
        )

    return build(module.DescribeConfigsResponse, results=await answer_each(request.resources, answer))


def _describe(context: RequestContext[TopicServices], resource: Any) -> Iterable[DescribedConfig] | ApiError:
    names = set(resource.configuration_keys) if resource.configuration_keys else None
    if resource.resource_type == TOPIC_RESOURCE:
        return _describe_topic(context, resource.resource_name, names)
    if resource.resource_type == BROKER_RESOURCE:
        return _describe_broker(context, resource.resource_name, names)
    if resource.resource_type == GROUP_RESOURCE:
        return _describe_group(context, resource.resource_name, names)
    if resource.resource_type == CLIENT_METRICS_RESOURCE:
        return _describe_client_metrics(context, resource.resource_name, names)
    return _describe_loggers(context, resource.resource_name, names)


def _describe_topic(
    context: RequestContext[TopicServices], topic: str, names: set[str] | None
) -> Iterable[DescribedConfig] | ApiError:
    complaint = name_complaint(topic)
    if complaint:
        return ApiError(ErrorCode.invalid_topic_exception, complaint)
    image = context.services.metadata_log.image
    if topic not in image.topics_by_name:
        return ApiError(ErrorCode.unknown_topic_or_partition, "")
    return describe_topic(context.node.config, image.topic_configs(topic), names)


def _describe_group(
    context: RequestContext[TopicServices], group_id: str, names: set[str] | None
) -> Iterable[DescribedConfig] | ApiError:
    if not group_id:
        return ApiError(ErrorCode.invalid_request, "Group name must not be empty")
    values = context.services.metadata_log.image.configs(GROUP_RESOURCE, group_id)
    return describe_group(context.node.config, values, names)


def _describe_client_metrics(
    context: RequestContext[TopicServices], subscription: str, names: set[str] | None
) -> Iterable[DescribedConfig] | ApiError:
    if not subscription:
        return ApiError(ErrorCode.invalid_request, "Client metrics subscription name must not be empty")
    values = context.services.metadata_log.image.configs(CLIENT_METRICS_RESOURCE, subscription)
    return describe_client_metrics(values, names)


def _describe_broker(
    context: RequestContext[TopicServices], broker: str, names: set[str] | None
) -> Iterable[DescribedConfig] | ApiError:
    node = context.node
    if not broker:
        altered = context.services.metadata_log.image.configs(BROKER_RESOURCE, ALL_BROKERS)
        return describe_all_brokers(altered, names)
    asked = node_id_of(broker)
    if asked is None:
        text = f"Broker id must be an integer, but it is: {broker}"
        return ApiError(ErrorCode.invalid_request, text)
    if asked != node.node_id:
        text = f"Unexpected broker id, expected {node.node_id} or empty string, but received {broker}"
        return ApiError(ErrorCode.invalid_request, text)
    return describe_broker(node.config, names)


def _describe_loggers(
    context: RequestContext[TopicServices], broker: str, names: set[str] | None
) -> Iterable[DescribedConfig] | ApiError:
    node_id = context.node.node_id
    if not broker:
        return ApiError(ErrorCode.invalid_request, "Broker id must not be empty")
    asked = node_id_of(broker)
    if asked is None:
        text = f"Broker id must be an integer, but it is: {broker}"
        return ApiError(ErrorCode.invalid_request, text)
    if asked != node_id:
        text = f"Unexpected broker id, expected {node_id} but received {broker}"
        return ApiError(ErrorCode.invalid_request, text)
    return describe_loggers(log_output.levels(), names)


def _entry(module: ModuleType, entry: DescribedConfig, *, synonyms: bool, documented: bool) -> Any:
    return build(
        module.DescribeConfigsResourceResult,
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=tuple(
            build(
                module.DescribeConfigsSynonym,
                name=synonym.name,
                value=synonym.value,
                source=synonym.source,
            )
            for synonym in (entry.synonyms if synonyms else ())
        ),
        config_type=entry.type,
        # Kafka sends the empty documentation of a logger's level whether or not the request asks for
        # documentation
        documentation=entry.documentation if documented or not entry.documentation else None,
    )


API = Api(32, "DescribeConfigs", 1, 4, api.topics, handle=handle, may_be_given_up=True)
