"""The one list of operations: the control socket, the commands, `docs/control-socket.md` and the tests read
it.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

from seqgate.gateway.admin.backlog import live as backlog
from seqgate.gateway.admin.backlog.messages import BacklogRequest
from seqgate.gateway.admin.backup import live as backups
from seqgate.gateway.admin.backup.messages import StageBackupRequest
from seqgate.gateway.admin.gateways import live as gateways
from seqgate.gateway.admin.gateways.messages import DrainRequest, GatewaysRequest, MoveRequest
from seqgate.gateway.admin.groups import live as groups
from seqgate.gateway.admin.groups import reset
from seqgate.gateway.admin.groups.messages import (
    DeleteGroupsRequest,
    DescribeGroupRequest,
    ListGroupsRequest,
    ResetOffsetsRequest,
)
from seqgate.gateway.admin.logs import live as logs
from seqgate.gateway.admin.logs.messages import LogLinesRequest
from seqgate.gateway.admin.names import live as names
from seqgate.gateway.admin.names import live as stopped_names
from seqgate.gateway.admin.names.messages import NamesRequest
from seqgate.gateway.admin.operation import LiveGateway, Operation
from seqgate.gateway.admin.partitions import live as partitions
from seqgate.gateway.admin.partitions.messages import ReopenRequest
from seqgate.gateway.admin.pids import live as pids
from seqgate.gateway.admin.pids import stopped as stopped_pids
from seqgate.gateway.admin.pids.messages import (
    ClaimBlockRequest,
    FindOverlapsRequest,
    FindOwnerRequest,
    ListBlocksRequest,
    MoveNextRequest,
)
from seqgate.gateway.admin.producers import live as producers
from seqgate.gateway.admin.producers.messages import ListProducersRequest
from seqgate.gateway.admin.request import MAX_PAGE_ROWS, ControlError, PagedRequest, Request
from seqgate.gateway.admin.status import live as status
from seqgate.gateway.admin.status.messages import StatusRequest
from seqgate.gateway.admin.stopped_gateway import StoppedGateway
from seqgate.gateway.admin.sweep import live as sweep
from seqgate.gateway.admin.sweep.messages import ListTasksRequest, SweepRequest, SweepResultRequest
from seqgate.gateway.admin.transactions import hanging
from seqgate.gateway.admin.transactions import live as transactions
from seqgate.gateway.admin.transactions import stopped as stopped_transactions
from seqgate.gateway.admin.transactions.messages import (
    AbortHangingRequest,
    AbortTransactionRequest,
    DescribeTransactionRequest,
    FindHangingRequest,
    ListTransactionsRequest,
)
from seqgate.gateway.admin.users import changes as stopped_users
from seqgate.gateway.admin.users import changes as users
from seqgate.gateway.admin.users.messages import AddUserRequest, ListUsersRequest, RemoveUserRequest
from seqgate.gateway.admin.verdicts import live as verdicts
from seqgate.gateway.admin.verdicts.messages import ListVerdictsRequest


def _always(_: Request[Any]) -> bool:
    return True


OPERATIONS: Final[tuple[Operation[Any], ...]] = (
    Operation(StatusRequest, status.status),
    Operation(GatewaysRequest, gateways.gateways),
    Operation(MoveRequest, gateways.move, changes=_always),
    Operation(DrainRequest, gateways.drain, changes=_always),
    Operation(StageBackupRequest, backups.stage, changes=_always),
    Operation(ReopenRequest, partitions.reopen, changes=_always),
    Operation(ListProducersRequest, producers.list_producers, is_partial=True),
    Operation(ListVerdictsRequest, verdicts.list_verdicts, is_partial=True),
    Operation(NamesRequest, names.list_names_live, stopped_names.list_names_stopped, is_partial=True),
    Operation(BacklogRequest, backlog.backlog_of, is_partial=True),
    Operation(ListBlocksRequest, pids.list_blocks, stopped_pids.list_blocks_stopped),
    Operation(FindOwnerRequest, pids.find_owner, stopped_pids.find_owner_stopped),
    Operation(FindOverlapsRequest, pids.find_overlaps, stopped_pids.find_overlaps_stopped),
    Operation(ClaimBlockRequest, pids.claim_block, stopped_pids.claim_block_stopped, changes=_always),
    Operation(MoveNextRequest, pids.move_next, stopped_pids.move_next_stopped, changes=_always),
    Operation(ListGroupsRequest, groups.list_groups, is_partial=True),
    Operation(DescribeGroupRequest, groups.describe_group),
    Operation(ResetOffsetsRequest, reset.reset_offsets, changes=lambda request: request.execute),
    Operation(DeleteGroupsRequest, groups.delete_groups, changes=lambda request: request.execute),
    Operation(
        ListTransactionsRequest, transactions.list_transactions, stopped_transactions.list_transactions
    ),
    Operation(
        DescribeTransactionRequest,
        transactions.describe_transaction,
        stopped_transactions.describe_transaction,
    ),
    Operation(FindHangingRequest, hanging.find_hanging),
    Operation(
        AbortTransactionRequest, transactions.abort_transaction, changes=lambda request: request.execute
    ),
    Operation(AbortHangingRequest, hanging.abort_hanging, changes=lambda request: request.execute),
    Operation(SweepRequest, sweep.begin, changes=lambda request: request.remove),
    Operation(SweepResultRequest, sweep.result),
    Operation(ListTasksRequest, sweep.tasks),
    Operation(LogLinesRequest, logs.log_lines),
    Operation(ListUsersRequest, users.list_users_live, stopped_users.list_users_stopped),
    Operation(AddUserRequest, users.add_user_live, stopped_users.add_user_stopped, changes=_always),
    Operation(RemoveUserRequest, users.remove_user_live, stopped_users.remove_user_stopped, changes=_always),
)
_BY_REQUEST: Final = {operation.request: operation for operation in OPERATIONS}


def changes_something(request: Request[Any]) -> bool:
    """Return whether a request changes the gateway's state. Other requests only read it."""
    return _BY_REQUEST[type(request)].changes(request)


def note_on(gateway: LiveGateway, request: Request[Any]) -> str | None:
    """Return the sentence about what the answer lacks because other gateways know it; None for a whole
    answer.
    """
    brokers = gateway.services.node.brokers
    if not _BY_REQUEST[type(request)].is_partial or brokers.is_alone:
        return None
    others = len(brokers.others())
    gateways = (
        "1 other gateway leads or coordinates"
        if others == 1
        else f"{others} other gateways lead or coordinate"
    )
    return (
        f"This is the answer of broker {gateway.services.node.node_id}, without what {gateways}. "
        "Ask each gateway, or the whole cluster with --bootstrap where the command has it."
    )


async def answer_live(gateway: LiveGateway, request: Request[Any]) -> Any:
    """Return a running gateway's answer. Raises ControlError."""
    _check_limit(request)
    answer = _BY_REQUEST[type(request)].run(gateway, request)
    return await answer if inspect.isawaitable(answer) else answer


def answer_stopped(gateway: StoppedGateway, request: Request[Any]) -> Any:
    """Return the answer from a data directory that no gateway has open. Raises ControlError."""
    _check_limit(request)
    stopped = _BY_REQUEST[type(request)].stopped
    if stopped is None:
        raise ControlError(f"only a running gateway can answer {request.operation_name()}")
    return stopped(gateway, request)


def _check_limit(request: Request[Any]) -> None:
    if isinstance(request, PagedRequest) and not 1 <= request.limit <= MAX_PAGE_ROWS:
        raise ControlError(f"limit must be between 1 and {MAX_PAGE_ROWS}, not {request.limit}")
