"""Answers one request of the control socket: decodes it, runs its operation as a task, and notes what it
changed in the audit log.
"""

from __future__ import annotations

import asyncio
import logging
import pwd
import socket
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple, Union

import msgspec

from seqgate.gateway.admin.operation import LiveGateway
from seqgate.gateway.admin.operations import OPERATIONS, answer_live, changes_something, note_on
from seqgate.gateway.admin.pids.stopped import BlockSource, gateway_source
from seqgate.gateway.admin.request import Answer, ControlError, Elsewhere, Request
from seqgate.gateway.admin.traffic import Traffic
from seqgate.gateway.runtime.loop.audit import AuditLog, Requester
from seqgate.gateway.runtime.loop.log_output import UNLIMITED
from seqgate.gateway.runtime.services import Services

logger = logging.getLogger(__name__)

OPERATION_TIMEOUT_S: Final = 30.0
"""Time for an operation; then the gateway answers with an error, and the operation continues as a task."""

_decoder: Final[msgspec.json.Decoder[Request[Any]]] = msgspec.json.Decoder(
    Union[tuple(operation.request for operation in OPERATIONS)]  # noqa: UP007 - `|` takes no list
)


def live_gateway(
    services: Services, source: BlockSource | None, traffic: Callable[[], Traffic], started_at_ms: int
) -> LiveGateway:
    """Return the gateway as operations see it; `source` is the store of its producer-id blocks, if it is not
    the gateway's own.
    """
    return LiveGateway(services, source or gateway_source(services), traffic, started_at_ms)


async def answer(gateway: LiveGateway, line: bytes, client: socket.socket) -> Answer:
    """Return the answer to the request in `line`, which came from `client`."""
    try:
        request = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return Answer(error=f"the request is not understood: {error}")
    tasks = gateway.services.node.tasks
    work = tasks.start(
        tasks.begin(f"seqgate {request.operation_name()}", is_brief=True), answer_live(gateway, request)
    )
    if changes_something(request):
        caller = caller_of(client)
        work.add_done_callback(partial(note_change, gateway.services.node.audit, caller, request))
    try:
        # An operation that takes longer continues. Stopping it halfway would leave a state that nobody asked
        # for.
        result = await asyncio.wait_for(asyncio.shield(work), OPERATION_TIMEOUT_S)
    except ControlError as error:
        return Answer(error=str(error), is_elsewhere=isinstance(error, Elsewhere))
    except TimeoutError:
        return Answer(
            error=f"not done within {OPERATION_TIMEOUT_S:g} s; it continues, and `seqgate tasks` shows its "
            "progress"
        )
    except Exception as error:
        logger.exception("the control request %s failed", request)
        return Answer(error=f"the gateway failed to answer: {error}")
    return Answer(result=msgspec.Raw(msgspec.json.encode(result)), note=note_on(gateway, request))


# Finds the process that sends a request on the control socket, and logs the changes that the process makes,
# also in the audit log.

CONTROL_SOCKET: Final = "control socket"
_CREDENTIALS: Final = Struct("3i")

logger_caller = logging.getLogger(UNLIMITED)


class Caller(NamedTuple):
    """The process at the other end of the control socket: its system user, and its process id."""

    user: str
    pid: int


def caller_of(connected: socket.socket) -> Caller:
    """Return the process that connected."""
    if not hasattr(socket, "SO_PEERCRED"):
        return Caller("unknown", -1)
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    try:
        return Caller(pwd.getpwuid(uid).pw_name, pid)
    except KeyError:
        return Caller(str(uid), pid)


def note_change(audit: AuditLog, caller: Caller, request: Request[Any], work: asyncio.Task[Any]) -> None:
    """Log a change that has ended, unless it failed. The logged text of a request contains no secret."""
    if work.cancelled() or work.exception() is not None:
        return
    name = request.operation_name()
    requester = Requester(
        f"system user {caller.user}", CONTROL_SOCKET, CONTROL_SOCKET, f"pid {caller.pid}", name
    )
    audit.changed(requester, f"seqgate {name}", [str(request)])
    logger_caller.info(
        "seqgate %s: %s, by the system user %s (pid %d)", name, request, caller.user, caller.pid
    )
