"""`seqgate restart`: replaces the running gateway's process by the release that is installed now.
`live.py` has what one process leaves to the next.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from seqgate import __version__
from seqgate.gateway.admin.client import Client, ask, places
from seqgate.gateway.admin.commands import Output, asks
from seqgate.gateway.admin.options import Opened, gateway
from seqgate.gateway.admin.request import ControlError, NoAnswer, NotRunning, Request

if TYPE_CHECKING:
    from seqgate.gateway.admin.operation import LiveGateway
    from seqgate.gateway.admin.restart.live import Passed

LIMIT_S: Final = 600.0
"""How long the command waits for the new process. A stop and a start of a hundred thousand partitions take a
minute.
"""
_PAUSE_S: Final = 0.05

# The requests, and what `seqgate restart --json` prints.


class OrderedRestart(msgspec.Struct, frozen=True):
    """A restart that begins: `pid` is the process that is replaced, which keeps its id."""

    pid: int


class RestartRequest(Request[OrderedRestart], tag="restart"):
    """Restart the gateway under a name that `restarted` returns later, if the next process can start. One
    worker lets all of them restart.
    """

    is_of_all = True
    restart: str


class RestartedGateway(msgspec.Struct, frozen=True):
    """A gateway, or one of several workers. `restart` is the name of the restart that it began with, empty
    for a start; `waited_ms` is how long clients waited at most.
    """

    node_id: int
    pid: int
    restart: str
    version_before: str
    version: str
    waited_ms: int


class Restarted(msgspec.Struct, frozen=True):
    """The last restart of each gateway on the data directory."""

    gateways: list[RestartedGateway]


class RestartedRequest(Request[Restarted], tag="restarted"):
    """The restart with which the gateway began."""

    asks_every_worker = True
    rows = "gateways"


# The command.


@asks(gateway)
def restart(opened: Opened[Client]) -> Output:
    """Restart a running gateway, for an upgrade without a stop.

    The gateway first checks that the release which is installed now can start, with the options that the
    gateway was started with, its environment and its settings file. If not, nothing changes. Then it answers
    what is in flight, and executes itself again: its process id stays, and clients connect again and wait
    for about half a second. With --workers all of them are restarted. The command ends when the gateway
    serves.
    """
    with opened as client:
        name = uuid.uuid4().hex
        before = {each.restart for each in _answering(client.data_dir)}
        ordered = client.ask(RestartRequest(name))
        with _watched(ordered.pid) as has_ended:
            gateways = _await(client.data_dir, name, before, ordered.pid, has_ended)
    first = gateways[0]
    waited_s = max(each.waited_ms for each in gateways) / 1000
    sentence = (
        f"Restarted: version {first.version_before} → {first.version}, pid {ordered.pid}. "
        f"Clients waited for at most {waited_s:.2f} s."
    )
    return Output(gateways, [sentence])


def _await(
    data_dir: Path, name: str, before: set[str], pid: int, has_ended: Callable[[], bool]
) -> list[RestartedGateway]:
    """Return what all gateways of the data directory say once they serve again. `before` are the names of
    the restarts that they began with until now. Raises ControlError.
    """
    until_s = time.monotonic() + LIMIT_S
    while time.monotonic() < until_s:
        is_over = has_ended()
        found = _answering(data_dir)
        names = {each.restart for each in found}
        if len(found) == len(places(data_dir)) and len(names) == 1:
            if name in names:
                return found
            if names.isdisjoint(before):
                raise ControlError(
                    f"another restart was ordered at the same time, and the gateway (pid {pid}) has done "
                    "that one; it serves, and `seqgate status` shows its version"
                )
        if is_over:
            raise ControlError(
                f"the gateway (pid {pid}) has ended instead of serving again; its log says why"
            )
        time.sleep(_PAUSE_S)
    raise ControlError(f"the gateway (pid {pid}) does not serve after {LIMIT_S:.0f} s; its log says why")


def _answering(data_dir: Path) -> list[RestartedGateway]:
    """Return what the gateways say that answer now. Nobody answers while the process is replaced, or it hangs
    up on what it can't answer any more. So no note says who is missing.
    """
    found = []
    for place in places(data_dir):
        with contextlib.suppress(NotRunning, NoAnswer):
            found += ask(place, RestartedRequest()).gateways
    return found


@contextlib.contextmanager
def _watched(pid: int) -> Iterator[Callable[[], bool]]:
    """Yield what tells whether a process has ended; never, where the system can't say."""
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):  # macOS, or the process of another container
        yield lambda: False
        return
    try:
        yield lambda: bool(select.select([handle], [], [], 0)[0])
    finally:
        os.close(handle)


# In the gateway: its answers on the control socket.


CHECK_TIMEOUT_S: Final = 25.0
"""How long the check may take: less than an operation of the control socket."""


async def restart_live(gateway: LiveGateway, request: RestartRequest) -> OrderedRestart:
    """Let the process stop as on SIGTERM, and execute itself again with its listening sockets and its locks,
    once the answer is sent. Raises ControlError: then the gateway serves on.
    """
    restarts = gateway.restarts
    if restarts is None:
        raise ControlError("this gateway runs inside of another program, which starts and stops it")
    if restarts.ordered is not None:
        raise ControlError("a restart has begun already")
    with restarts.begin_after_answer(request.restart) as to_check:
        refusal = await _refusal_of_next(to_check)
        if refusal is not None:
            raise ControlError(
                f"the gateway does not restart, and serves on: the next process could not start: {refusal}"
            )
    return OrderedRestart(restarts.pid)


async def _refusal_of_next(to_check: Passed) -> str | None:
    """Let a child with the command line of this process check what a start needs (`start_check.py`), and
    return its last line on stderr if it fails; None: the next process can start.
    """
    import asyncio  # noqa: PLC0415 - slow to import

    from seqgate.gateway.admin.restart.live import command_line  # noqa: PLC0415 - for the gateway only

    command = command_line()
    try:
        child = await asyncio.create_subprocess_exec(
            *command,
            env=to_check.environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return f"{command[0]} can't be executed: {error.strerror}"
    try:
        _, output = await asyncio.wait_for(child.communicate(), CHECK_TIMEOUT_S)
    except TimeoutError:
        return f"it was not ready within {CHECK_TIMEOUT_S:g} s"
    finally:
        if child.returncode is None:
            child.kill()
    if not child.returncode:
        return None
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("seqgate: ") if lines else f"exit code {child.returncode}"


def restarted(gateway: LiveGateway, _: RestartedRequest) -> Restarted:
    """Return the restart with which the process began."""
    restarts = gateway.restarts
    if restarts is None:
        return Restarted([])
    before = restarts.passed
    row = RestartedGateway(
        gateway.services.node.node_id,
        os.getpid(),
        before.restart,
        before.version,
        __version__,
        restarts.waited_ms,
    )
    return Restarted([row])
