"""Splits what a request names into what the client may use and what is refused.

Without an authorizer nothing is refused, and the names are not even read. Each name is asked for once.
Source: Kafka's AuthHelper.

The authorized-operations fields: a bit for each operation that the client may carry out on a resource
(KIP-430).

The bits are the codes of `Operation`. Without an authorizer everything is allowed. Source: Kafka's
AuthHelper.authorizedOperations.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from kio.schema.errors import ErrorCode

from seqgate.gateway.config.load import inter_broker_listener
from seqgate.gateway.coordinator.group.consumer_assignors import EVERYTHING, Sight
from seqgate.gateway.handlers.answering.api import RequestContext
from seqgate.gateway.metadata.decision import ApiError
from seqgate.gateway.peer.peers import client_id_of
from seqgate.gateway.runtime.loop.slices import in_slices
from seqgate.gateway.security.acls.access import CLUSTER_NAME, SUPPORTED, Operation, ResourceType

K = TypeVar("K", bound=Hashable)
"""The key of a topic: its id, or its name where the API also has names."""

NOTHING: Final[frozenset[Any]] = frozenset()
"""The empty set of refused names, for a gateway without an authorizer."""


class Named(Protocol):
    """An object that has the name of a topic, such as a row of a request."""

    @property
    def name(self) -> str:
        """The name of the topic."""


async def refused_topics(
    context: RequestContext[Any], operation: Operation, names: Iterable[str]
) -> AbstractSet[str]:
    """Return the names of topics on which the client may not carry out the operation; decide in slices of
    time. A name is refused whether or not the topic exists: the answer must not reveal which.
    """
    return await refused_names(context, operation, ResourceType.TOPIC, names)


async def refused_names(
    context: RequestContext[Any], operation: Operation, resource_type: ResourceType, names: Iterable[str]
) -> AbstractSet[str]:
    """Return the resource names on which the client may not do the operation; decide in slices of time."""
    if not context.node.access.is_on:
        return NOTHING
    asked = dict.fromkeys(names)
    return {name async for name in in_slices(asked) if not context.may(operation, resource_type, name)}


async def unseen_topics(
    context: RequestContext[Any], operation: Operation, names: Iterable[str]
) -> AbstractSet[str]:
    """Return the same as `refused_topics` without lines in the audit log, for topics that the client did not
    name, and for rights that it need not have.
    """
    if not context.node.access.is_on:
        return NOTHING
    asked = dict.fromkeys(names)
    return {name async for name in in_slices(asked) if not context.could(operation, ResourceType.TOPIC, name)}


async def refused_ids(
    context: RequestContext[Any], operation: Operation, ids: Iterable[K], topics: Mapping[K, Named]
) -> AbstractSet[K]:
    """Return the topic ids whose topics are refused; decide in slices of time. An id that nobody has is not
    among them: it gets UNKNOWN_TOPIC_ID, because ids are not secret.
    """
    if not context.node.access.is_on:
        return NOTHING
    known = {topic_id: topic.name for topic_id in ids if (topic := topics.get(topic_id)) is not None}
    refused = await refused_topics(context, operation, known.values())
    return {topic_id for topic_id, name in known.items() if name in refused}


def has_on_cluster(context: RequestContext[Any], operation: Operation) -> bool:
    """Return whether the client has a right on the cluster, where a right on the topic does as well."""
    return context.could(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def is_from_gateway(context: RequestContext[Any]) -> bool:
    """Return whether another gateway of the cluster sent the request. A client that claims to be one needs
    the right of a gateway, and the listener between gateways.
    """
    node = context.node
    return (
        context.client_id in map(client_id_of, node.brokers.others())
        and context.listener_name == inter_broker_listener(node.config)
        and has_on_cluster(context, Operation.CLUSTER_ACTION)
    )


async def describes_all(context: RequestContext[Any], names: Iterable[str]) -> bool:
    """Return whether the client may describe all of these topics, whether or not they exist."""
    return not await refused_topics(context, Operation.DESCRIBE, names)


def describable_topics(context: RequestContext[Any]) -> Sight:
    """Return which topics the regular expressions of a group may match for the client."""
    access = context.node.access
    if not access.is_on:
        return EVERYTHING
    return Sight(access.generation, partial(context.could, Operation.DESCRIBE, ResourceType.TOPIC))


def cluster_refusal(context: RequestContext[Any], operation: Operation) -> ApiError | None:
    """Return the error of a request that needs a right on the cluster; None if the client has the right."""
    if context.may_cluster(operation):
        return None
    message = (
        f"The request needs {operation.name} on the cluster, which {context.peer.principal} does not have."
    )
    return ApiError(ErrorCode.cluster_authorization_failed, message)


NOT_ASKED: Final = -(2**31)

_ALL_BITS: Final = {
    resource_type: sum(1 << operation for operation in operations)
    for resource_type, operations in SUPPORTED.items()
}


def topic_operations(context: RequestContext[Any], topic: str) -> int:
    """Return the operations that the client may carry out on the topic."""
    return _operations(context, ResourceType.TOPIC, topic)


def group_operations(context: RequestContext[Any], group_id: str) -> int:
    """Return the operations that the client may carry out on the group."""
    return _operations(context, ResourceType.GROUP, group_id)


def cluster_operations_if_described(context: RequestContext[Any]) -> int:
    """Return the operations that the client may do on the cluster; 0 if it may not describe the cluster."""
    bits = _operations(context, ResourceType.CLUSTER, CLUSTER_NAME)
    return bits if bits & 1 << Operation.DESCRIBE else 0


def _operations(context: RequestContext[Any], resource_type: ResourceType, name: str) -> int:
    access = context.node.access
    if not access.is_on:
        return _ALL_BITS[resource_type]
    principal, host = context.peer.principal, context.peer_host
    return sum(
        1 << operation
        for operation in SUPPORTED[resource_type]
        if access.allows(principal, host, operation, resource_type, name)
    )
