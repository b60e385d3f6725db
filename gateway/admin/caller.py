"""Finds the process that sends a request on the control socket, and logs the changes that the process makes,
also in the audit log.
"""

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
    logger.info("seqgate %s: %s, by the system user %s (pid %d)", name, request, caller.user, caller.pid)
