"""Asks a cluster for the names of its topics, groups and brokers, quickly: nobody waits longer than a timeout for one broker.

Every function raises ControlError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kio.schema.list_groups.v3.request import ListGroupsRequest
from kio.schema.list_groups.v3.response import ListGroupsResponse
from kio.schema.metadata.v9.request import MetadataRequest
from kio.schema.metadata.v9.response import MetadataResponse

from gateway.admin.remote.connection import BrokerAddress
from gateway.admin.remote.requests import ask_broker

ALL_BROKERS: Final = "default"
"""The name of the configurations of all brokers."""
_BROKERS_ASKED: Final = 10
"""Brokers that are asked for their groups; the groups of further ones are left out."""


def topics(address: BrokerAddress, timeout_s: float) -> list[str]:
    """Return the names of all topics."""
    return [str(topic.name) for topic in metadata(address, timeout_s).topics]


def brokers(address: BrokerAddress, timeout_s: float) -> list[str]:
    """Return the node ids of the brokers, and the name that stands for all of them."""
    found = metadata(address, timeout_s, with_topics=False).brokers
    return [ALL_BROKERS, *(str(broker.node_id) for broker in found)]


def groups(address: BrokerAddress, timeout_s: float) -> list[str]:
    """Return the ids of the groups, of all kinds."""
    found: list[str] = []
    for broker in metadata(address, timeout_s, with_topics=False).brokers[:_BROKERS_ASKED]:
        of_broker = ask_broker(
            address.other(broker.host, int(broker.port)),
            ListGroupsRequest(),
            ListGroupsResponse,
            timeout_s=timeout_s,
        )
        found += (str(group.group_id) for group in of_broker.groups)
    return found


def metadata(address: BrokerAddress, timeout_s: float, *, with_topics: bool = True) -> MetadataResponse:
    """Return the brokers, and all topics with their partitions."""
    request = MetadataRequest(
        topics=None if with_topics else (),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return ask_broker(address, request, MetadataResponse, timeout_s=timeout_s)


FIND: Final[Mapping[str, Callable[[BrokerAddress, float], list[str]]]] = {
    "topic": topics,
    "group": groups,
    "broker": brokers,
}
