"""Who sends requests on the control socket, and what the log and the audit log say of the changes that they make."""

from __future__ import annotations

import asyncio
import logging
import pwd
import socket
from struct import Struct
from typing import Any, Final, NamedTuple

from gateway.admin.request import Request
from gateway.runtime.loop.audit import AuditLog, Requester
from gateway.runtime.loop.log_rate_limit import UNLIMITED

CONTROL_SOCKET: Final = "control socket"
_CREDENTIALS: Final = Struct("3i")

logger = logging.getLogger(UNLIMITED)


class Caller(NamedTuple):
    """The process at the other end of the control socket: its user of the system, and its number."""

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
    """Note a change that has ended, unless it failed. The text of a request has no secret."""
    if work.cancelled() or work.exception() is not None:
        return
    name = request.operation_name()
    requester = Requester(
        f"system user {caller.user}", CONTROL_SOCKET, CONTROL_SOCKET, f"pid {caller.pid}", name
    )
    audit.changed(requester, f"seqgate {name}", [str(request)])
    logger.info("seqgate %s: %s, by the system user %s (pid %d)", name, request, caller.user, caller.pid)
