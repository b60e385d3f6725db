"""Checks the right to describe or alter the configurations of a resource.

    resource                            right on            refusal
    topic                               the topic           TOPIC_AUTHORIZATION_FAILED
    group                               the group           GROUP_AUTHORIZATION_FAILED
    broker, its loggers, client metrics the cluster         CLUSTER_AUTHORIZATION_FAILED

Source: Kafka's ConfigHelper, ControllerApis.authorizeAlterResource.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.answering.api import RequestContext
from seqgate.gateway.metadata.decision import ApiError
from seqgate.gateway.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from seqgate.gateway.security.acls.access import CLUSTER_NAME, Operation, ResourceType

_NO_TOPIC: Final = ApiError(ErrorCode.topic_authorization_failed, "Topic authorization failed.")
_NO_GROUP: Final = ApiError(ErrorCode.group_authorization_failed, "Group authorization failed.")
_NO_CLUSTER: Final = ApiError(ErrorCode.cluster_authorization_failed, "Cluster authorization failed.")
_ON_THE_CLUSTER: Final = {BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE}


def description_refusal(context: RequestContext[Any], resource_type: int, name: str) -> ApiError | None:
    """Return the error if the client may not describe the configurations of the resource."""
    return _refusal(context, Operation.DESCRIBE_CONFIGS, resource_type, name)


def alteration_refusal(context: RequestContext[Any], resource_type: int, name: str) -> ApiError | None:
    """Return the error if the client may not alter the configurations of the resource."""
    return _refusal(context, Operation.ALTER_CONFIGS, resource_type, name)


def _refusal(
    context: RequestContext[Any], operation: Operation, resource_type: int, name: str
) -> ApiError | None:
    """Return the error of the resource; None also for a resource type that is no configurable one."""
    if resource_type == TOPIC_RESOURCE:
        return None if context.may(operation, ResourceType.TOPIC, name) else _NO_TOPIC
    if resource_type == GROUP_RESOURCE:
        return None if context.may(operation, ResourceType.GROUP, name) else _NO_GROUP
    if resource_type in _ON_THE_CLUSTER:
        return None if context.may(operation, ResourceType.CLUSTER, CLUSTER_NAME) else _NO_CLUSTER
    return None
