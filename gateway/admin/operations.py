"""The one list of operations, and how the gateway answers a request of the control socket by it. The
commands, `docs/control-socket.md` and the tests read the list, too.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import pwd
import socket
import sys
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from pathlib import Path
from struct import Struct
from typing import Any, Final, Union

import msgspec

from seqgate.gateway.admin import backlog, metrics, names, pids, producers, users
from seqgate.gateway.admin.backlog import BacklogRequest, LimitedTopicsRequest
from seqgate.gateway.admin.backup import bucket as backup
from seqgate.gateway.admin.backup.bucket import CutRequest, HoldRequest, ReleaseRequest
from seqgate.gateway.admin.backup.command import LONGEST_STAGING_S, StageBackupRequest, stage_backup
from seqgate.gateway.admin.cluster import gateways
from seqgate.gateway.admin.cluster.gateways import (
    DrainRequest,
    GatewaysRequest,
    MoveRequest,
    OthersRequest,
    UndrainRequest,
)
from seqgate.gateway.admin.groups.deletion import DeleteGroupsRequest, delete_groups_live
from seqgate.gateway.admin.groups.describing import DescribeGroupRequest, LiveDescriptions, describe_group
from seqgate.gateway.admin.groups.listing import ListGroupsRequest, LiveList, list_groups_of
from seqgate.gateway.admin.groups.reset import LiveReset, ResetOffsetsRequest, reset_offsets
from seqgate.gateway.admin.logs import LogLinesRequest, log_lines
from seqgate.gateway.admin.names import NamesRequest
from seqgate.gateway.admin.operation import ControlOperation, LiveGateway, StoppedGateway
from seqgate.gateway.admin.producers import ListProducersRequest
from seqgate.gateway.admin.reopen import ReopenRequest, reopen_partition
from seqgate.gateway.admin.request import (
    MAX_PAGE_ROWS,
    ControlAnswer,
    ControlError,
    PagedRequest,
    Request,
    from_source,
    own_wait_s,
)
from seqgate.gateway.admin.restart.command import RestartedRequest, RestartRequest, restart_live, restarted
from seqgate.gateway.admin.status import StatusRequest, status_live
from seqgate.gateway.admin.sweep import SweepRequest, SweepResultRequest, Sweeps
from seqgate.gateway.admin.tables import shown
from seqgate.gateway.admin.tasks import ListTasksRequest, list_tasks
from seqgate.gateway.admin.transactions import hanging
from seqgate.gateway.admin.transactions import list_and_describe as transactions
from seqgate.gateway.admin.transactions.hanging import (
    AbortHangingRequest,
    AbortTransactionRequest,
    FindHangingRequest,
)
from seqgate.gateway.admin.transactions.list_and_describe import (
    DescribeTransactionRequest,
    ListTransactionsRequest,
)
from seqgate.gateway.admin.users import AddUserRequest, ListUsersRequest, RemoveUserRequest
from seqgate.gateway.admin.verdicts import ListVerdictsRequest, list_verdicts
from seqgate.gateway.config import Config
from seqgate.gateway.runtime.loop.audit import AuditLog, Requester
from seqgate.gateway.runtime.loop.log_output import UNLIMITED
from seqgate.gateway.security.acls.access import Operation

# The list.

_sweeps = attrgetter("sweeps")


OPERATIONS: Final[tuple[ControlOperation[Any], ...]] = (
    ControlOperation(StatusRequest, status_live),
    ControlOperation(OthersRequest, gateways.ask_others),
    ControlOperation(GatewaysRequest, gateways.gateways_live),
    ControlOperation(MoveRequest, gateways.move_live, changes=True),
    ControlOperation(DrainRequest, gateways.drain_live, changes=True),
    ControlOperation(UndrainRequest, gateways.undrain_live, changes=True),
    ControlOperation(StageBackupRequest, stage_backup, changes=True, timeout_s=LONGEST_STAGING_S),
    ControlOperation(CutRequest, backup.cut, changes=True),
    ControlOperation(HoldRequest, backup.hold, changes=True),
    ControlOperation(ReleaseRequest, backup.release, changes=True),
    ControlOperation(ReopenRequest, reopen_partition, changes=True),
    ControlOperation(RestartRequest, restart_live, changes=True),
    ControlOperation(RestartedRequest, restarted),
    ControlOperation(ListProducersRequest, producers.list_producers_live),
    ControlOperation(ListVerdictsRequest, list_verdicts),
    ControlOperation(NamesRequest, names.list_names_live, names.list_names_stopped),
    ControlOperation(BacklogRequest, backlog.backlog_of),
    ControlOperation(LimitedTopicsRequest, backlog.limited_topics),
    *pids.operations(),
    ControlOperation(ListGroupsRequest, from_source(LiveList, list_groups_of)),
    ControlOperation(DescribeGroupRequest, from_source(LiveDescriptions, describe_group)),
    ControlOperation(
        ResetOffsetsRequest, from_source(LiveReset, reset_offsets), changes=lambda request: request.execute
    ),
    ControlOperation(DeleteGroupsRequest, delete_groups_live, changes=lambda request: request.execute),
    ControlOperation(
        ListTransactionsRequest, transactions.list_transactions_live, transactions.list_transactions_stopped
    ),
    ControlOperation(
        DescribeTransactionRequest,
        from_source(transactions.LiveTransactions, transactions.describe_transaction),
        transactions.describe_transaction_stopped,
    ),
    ControlOperation(FindHangingRequest, hanging.find_hanging_live),
    ControlOperation(
        AbortTransactionRequest,
        from_source(hanging.LiveEnding, hanging.abort_transaction),
        changes=lambda request: request.execute,
    ),
    ControlOperation(
        AbortHangingRequest, hanging.abort_hanging_live, changes=lambda request: request.execute
    ),
    ControlOperation(
        SweepRequest, from_source(_sweeps, Sweeps.begin), changes=lambda request: request.remove
    ),
    ControlOperation(SweepResultRequest, from_source(_sweeps, Sweeps.result)),
    ControlOperation(ListTasksRequest, list_tasks),
    ControlOperation(LogLinesRequest, log_lines),
    ControlOperation(metrics.MetricsRequest, metrics.metrics_of),
    ControlOperation(ListUsersRequest, users.list_users_live, users.list_users_stopped),
    ControlOperation(AddUserRequest, users.change_user_live, users.change_user_stopped, changes=True),
    ControlOperation(RemoveUserRequest, users.change_user_live, users.change_user_stopped, changes=True),
)
_BY_REQUEST: Final = {operation.request: operation for operation in OPERATIONS}


def changes_something(request: Request[Any]) -> bool:
    """Return whether a request changes the gateway's state. Other requests only read it."""
    changes = _BY_REQUEST[type(request)].changes
    return changes if isinstance(changes, bool) else changes(request)


def note_on(gateway: LiveGateway, request: Request[Any]) -> str | None:
    """Return the sentence about what the answer lacks because others know it; None for a whole answer."""
    brokers = gateway.services.node.brokers
    if not request.is_partial or brokers.is_alone:
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


def answer_stopped(data_dir: Path, config: Config, now_ms: int, request: Request[Any]) -> Any:
    """Return the answer from a stopped gateway's data directory, by its settings. Raises ControlError."""
    _check_limit(request)
    stopped = _BY_REQUEST[type(request)].stopped
    if stopped is None:
        raise ControlError(f"only a running gateway can answer {request.operation_name()}")
    if isinstance(request, PagedRequest):
        request = msgspec.structs.replace(request, limit=sys.maxsize)  # all rows come in one page
    return stopped(StoppedGateway(data_dir, config, now_ms), request)


def _check_limit(request: Request[Any]) -> None:
    if isinstance(request, PagedRequest) and not 1 <= request.limit <= MAX_PAGE_ROWS:
        raise ControlError(f"limit must be between 1 and {MAX_PAGE_ROWS}, not {request.limit}")


# Answers one request of the control socket: decodes it, runs its operation as a task, and notes what it
# changed in the audit log.


logger = logging.getLogger(__name__)

OPERATION_TIMEOUT_S: Final = 30.0
"""Time for an operation; then the gateway answers with an error, and the operation continues as a task."""

_decoder: Final[msgspec.json.Decoder[Request[Any]]] = msgspec.json.Decoder(
    Union[tuple(operation.request for operation in OPERATIONS)]  # noqa: UP007 - `|` takes no list
)


async def answer(gateway: LiveGateway, line: bytes, client: socket.socket) -> ControlAnswer:
    """Return the answer to the request in `line`, which came from `client`."""
    try:
        request = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return ControlAnswer(error=f"the request is not understood: {error}")
    timeout_s = _BY_REQUEST[type(request)].timeout_s or OPERATION_TIMEOUT_S + own_wait_s(request)
    tasks = gateway.services.node.tasks
    work = tasks.start(
        tasks.begin(f"seqgate {request.operation_name()}", is_brief=True), answer_live(gateway, request)
    )
    if changes_something(request):
        work.add_done_callback(
            partial(_note_ended, gateway.services.node.audit, *_caller_of(client), request)
        )
    try:
        # An operation that takes longer continues. Stopping it halfway would leave a state that nobody asked
        # for.
        result = await asyncio.wait_for(asyncio.shield(work), timeout_s)
    except ControlError as error:
        return ControlAnswer.of_error(error)
    except TimeoutError:
        return ControlAnswer(
            error=f"not done within {timeout_s:g} s; it continues, and `seqgate tasks` shows its progress"
        )
    except Exception as error:
        logger.exception("the control request %s failed", request)
        return ControlAnswer(error=f"the gateway failed to answer: {error}")
    return ControlAnswer(result=msgspec.Raw(msgspec.json.encode(result)), note=note_on(gateway, request))


async def answer_question(
    gateway: LiveGateway, question: str, may: Callable[[Operation], bool], requester: Requester
) -> bytes:
    """Return the answer to a request that came over the Kafka protocol, both as JSON."""
    return msgspec.json.encode(await _told(gateway, question, may, requester))


async def _told(
    gateway: LiveGateway, question: str, may: Callable[[Operation], bool], requester: Requester
) -> ControlAnswer:
    try:
        request = _decoder.decode(question)
    except (msgspec.MsgspecError, RecursionError) as error:
        return ControlAnswer(error=f"the question is not understood: {error}")
    name = request.operation_name()
    right = request.network_right
    if not right:
        return ControlAnswer(error=f"{name} is answered on the control socket only")
    if not may(Operation[right]):
        return ControlAnswer(error=f"{name} over the network needs {right} on the cluster")
    try:
        async with asyncio.timeout(OPERATION_TIMEOUT_S + own_wait_s(request)):
            result = await answer_live(gateway, request)
    except ControlError as error:
        return ControlAnswer.of_error(error)
    except TimeoutError:
        return ControlAnswer(error=f"not done within {OPERATION_TIMEOUT_S:g} s")
    if changes_something(request):
        by = f"{requester.principal} at {requester.address} (client {requester.client_id!r})"
        _note_change(gateway.services.node.audit, requester._replace(request=name), by, request)
    return ControlAnswer(msgspec.Raw(msgspec.json.encode(result)))


# Finds the process that sends a request on the control socket, and logs the changes that a process or a
# client makes, also in the audit log.

CONTROL_SOCKET: Final = "control socket"
_CREDENTIALS: Final = Struct("3i")

logger_caller = logging.getLogger(UNLIMITED)


def _caller_of(connected: socket.socket) -> tuple[str, int]:
    """Return the system user and the id of the process that connected."""
    if not hasattr(socket, "SO_PEERCRED"):
        return "unknown", -1
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    try:
        return pwd.getpwuid(uid).pw_name, pid
    except KeyError:
        return str(uid), pid


def words_of(request: msgspec.Struct) -> str:
    """Return the fields of a request for a log line. Bytes, which may be secret, are left out."""
    words = []
    for name in request.__struct_fields__:
        label, value = name.replace("_", " "), getattr(request, name)
        if isinstance(value, bool):
            words += [label] if value else []
        elif isinstance(value, str | int | float):
            words.append(f"{label} {shown(str(value))}")
        elif isinstance(value, list) and value:
            items = [
                f"({words_of(item)})" if isinstance(item, msgspec.Struct) else shown(str(item))
                for item in value
            ]
            words.append(f"{label} {', '.join(items)}")
    return ", ".join(words)


def _note_ended(audit: AuditLog, user: str, pid: int, request: Request[Any], work: asyncio.Task[Any]) -> None:
    """Log the change of a process that has ended, unless it failed."""
    if work.cancelled() or work.exception() is not None:
        return
    name = request.operation_name()
    requester = Requester(f"system user {user}", CONTROL_SOCKET, CONTROL_SOCKET, f"pid {pid}", name)
    _note_change(audit, requester, f"the system user {user} (pid {pid})", request)


def _note_change(audit: AuditLog, requester: Requester, by: str, request: Request[Any]) -> None:
    """Log a change. The logged text of a request contains no secret."""
    if isinstance(request, ReleaseRequest):
        return  # it ends what a logged hold began, and a cut also sends one before any hold
    name, words = request.operation_name(), words_of(request)
    audit.changed(requester, f"seqgate {name}", [words] if words else [])
    logger_caller.info("seqgate %s%s, by %s", name, f": {words}" if words else "", by)
