"""The operations that any cluster answers over the Kafka protocol, and the client that commands ask."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

import msgspec

from seqgate.gateway.admin.gateways import remote as gateways
from seqgate.gateway.admin.gateways.messages import DrainRequest, GatewaysRequest, MoveRequest
from seqgate.gateway.admin.groups import answers as groups
from seqgate.gateway.admin.groups.command import (
    DeleteGroupsRequest,
    DescribeGroupRequest,
    ListGroupsRequest,
    ResetOffsetsRequest,
)
from seqgate.gateway.admin.groups.remote import ClusterGroups
from seqgate.gateway.admin.producers import remote as producers
from seqgate.gateway.admin.producers.command import ListProducersRequest
from seqgate.gateway.admin.remote.cluster import Cluster, finished
from seqgate.gateway.admin.request import RUNNING, PagedRequest, Request, from_source
from seqgate.gateway.admin.transactions import answers as transactions
from seqgate.gateway.admin.transactions.command import (
    AbortHangingRequest,
    AbortTransactionRequest,
    DescribeTransactionRequest,
    FindHangingRequest,
    ListTransactionsRequest,
)
from seqgate.gateway.admin.transactions.remote import ClusterTransactions, list_transactions
from seqgate.gateway.admin.users import remote as users
from seqgate.gateway.admin.users.command import AddUserRequest, ListUsersRequest, RemoveUserRequest

A = TypeVar("A")


OPERATIONS: Final[dict[type[Request[Any]], Callable[[Cluster, Any], Any]]] = {
    GatewaysRequest: gateways.gateways,
    MoveRequest: gateways.move,
    DrainRequest: gateways.drain,
    ListProducersRequest: producers.list_producers,
    ListGroupsRequest: from_source(ClusterGroups, groups.list_groups),
    DescribeGroupRequest: from_source(ClusterGroups, groups.describe_group),
    ResetOffsetsRequest: from_source(ClusterGroups, groups.reset_offsets),
    DeleteGroupsRequest: from_source(ClusterGroups, groups.delete_groups),
    ListTransactionsRequest: list_transactions,
    DescribeTransactionRequest: from_source(ClusterTransactions, transactions.describe_transaction),
    FindHangingRequest: from_source(ClusterTransactions, transactions.find_hanging),
    AbortTransactionRequest: from_source(ClusterTransactions, transactions.abort_transaction),
    AbortHangingRequest: from_source(ClusterTransactions, transactions.abort_hanging),
    ListUsersRequest: users.list_users,
    AddUserRequest: users.add_user,
    RemoveUserRequest: users.remove_user,
}


@dataclass(frozen=True, slots=True)
class RemoteClient:
    """Sends the requests of commands to a cluster (`--bootstrap`). Every answer comes in one page."""

    cluster: Cluster

    def ask(self, request: Request[A]) -> A:
        """Return the answer of the cluster."""
        if isinstance(request, PagedRequest):
            request = msgspec.structs.replace(request, limit=sys.maxsize)
        answer = OPERATIONS[type(request)](self.cluster, request)
        return cast("A", finished(answer) if inspect.iscoroutine(answer) else answer)

    def ask_or_read(self, request: Request[A]) -> tuple[str, A]:
        """Return "running" with the answer of the cluster."""
        return RUNNING, self.ask(request)
