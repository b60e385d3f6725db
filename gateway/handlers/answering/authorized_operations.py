"""The authorized-operations fields: a bit for each operation that the client may carry out on a resource (KIP-430).

The bits are the codes of `Operation`. Without an authorizer everything is allowed. Source: Kafka's
AuthHelper.authorizedOperations, AclEntry.supportedOperations.
"""

from __future__ import annotations

from typing import Any, Final

from gateway.handlers.answering.api import RequestContext
from gateway.security.acls.access import CLUSTER_NAME
from gateway.security.acls.codes import Operation, ResourceType

NOT_ASKED: Final = -(2**31)

_OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}
"""The operations that a resource of each type supports."""
_ALL_BITS: Final = {
    resource_type: sum(1 << operation for operation in operations)
    for resource_type, operations in _OPERATIONS.items()
}


def topic_operations(context: RequestContext[Any], topic: str) -> int:
    """Return the operations that the client may carry out on the topic."""
    return _operations(context, ResourceType.TOPIC, topic)


def group_operations(context: RequestContext[Any], group_id: str) -> int:
    """Return the operations that the client may carry out on the group."""
    return _operations(context, ResourceType.GROUP, group_id)


def cluster_operations(context: RequestContext[Any]) -> int:
    """Return the operations that the client may carry out on the cluster; 0 if it may not describe the cluster."""
    bits = _operations(context, ResourceType.CLUSTER, CLUSTER_NAME)
    return bits if bits & 1 << Operation.DESCRIBE else 0


def _operations(context: RequestContext[Any], resource_type: ResourceType, name: str) -> int:
    access = context.node.access
    if not access.is_on:
        return _ALL_BITS[resource_type]
    principal, host = context.peer.principal, context.peer_host
    return sum(
        1 << operation
        for operation in _OPERATIONS[resource_type]
        if access.allows(principal, host, operation, resource_type, name)
    )
