"""Runs a gateway in this process, from the settings to the exit: logging, signals, its restart."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import shlex
import socket
import stat
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import uvloop

from seqgate import core
from seqgate.gateway.admin.request import CONSOLE_HISTORY, SOCKET_NAME, in_words
from seqgate.gateway.admin.restart.live import (
    Passed,
    Restarts,
    address_of,
    console_address,
    control_address,
    listeners_of,
)
from seqgate.gateway.backends.backend import Ended, StartFailed, WorkerBackend, ready_of
from seqgate.gateway.config import Config, Listener
from seqgate.gateway.console_process import ConsoleProcess, check_installed
from seqgate.gateway.gateway import Gateway
from seqgate.gateway.process import keep_freed_memory, raise_open_files_limit
from seqgate.gateway.runtime.loop import log_output
from seqgate.gateway.runtime.loop.machine import Machine
from seqgate.gateway.server.server import bound_sockets
from seqgate.gateway.stop_signals import signals_taken
from seqgate.gateway.workers.link import RestartOrdered, SupervisorLink
from seqgate.gateway.workers.worker_brokers import WorkerStart, report
from seqgate.log import Storage

logger = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.0002
"""Time (s) after which a thread must yield to another, so that the thread of a finished flush continues soon.
"""
COMMANDS_LOADED_AFTER_S = 1.0
"""Time (s) after the start at which the modules that only commands need are imported."""
_LISTENS: Final = "0A"
"""The state of a listening socket in /proc/net/tcp."""
GC_THRESHOLD = 50_000
"""Python's collector threshold; the default of 700 would often scan objects that live for ever."""


class Announcement(NamedTuple):
    """The facts that `seqgate serve` prints when clients can connect. `data` is the data directory, `pids`
    names the processes of workers.
    """

    bound: Sequence[str]
    """The addresses that the gateway listens on."""
    told: Sequence[str]
    """The addresses that clients get."""
    data: str
    pids: str = ""
    console: ConsoleProcess | None = None


Announce = Callable[[Announcement], None]


def run(
    config: Config,
    announce: Announce,
    *,
    passed: Passed | None = None,
    console: bool = False,
    console_listen: str | None = None,
) -> None:
    """Run a gateway until SIGINT or SIGTERM; call `announce` once it serves. Raises StartFailed, Ended."""
    passed = passed or Passed()
    prepare_process(config)
    addresses = [address_of(listener) for listener in listeners_of(config)]
    kept = [*addresses, control_address(Path(config.str("log.dirs"), SOCKET_NAME))]
    console_listen = passed.console or console_listen
    if console and console_listen is not None:
        kept.append(console_address(console_listen))
    passed.keep_sockets(kept)
    for listener in config.listeners:
        if address_of(listener) not in passed.sockets:
            check_listener(listener)
    if console:
        check_installed()
    own = OwnProcess(passed, addresses, real_data_directory(config))
    left = uvloop.run(_serve(config, own, announce, console=console, console_listen=console_listen))
    if left is not None:
        replace_process(left)


def real_data_directory(config: Config) -> str:
    """Return the real path of log.dirs, which a symbolic link may name otherwise later."""
    return str(Path(config.str("log.dirs")).resolve())


def replace_process(left: Passed) -> None:
    """Execute this process again. Raises StartFailed where that fails."""
    try:
        left.replace_process()
    except OSError as error:
        raise StartFailed(f"the gateway has stopped, and can't start again: {in_words(error)}") from error


class OwnProcess(NamedTuple):
    """What a process has from the one before, or a worker from its supervisor, and the addresses of which the
    next one gets the sockets: with workers those of all. `data_dir` is the real path of the data directory,
    of all workers. A worker also has its number.
    """

    passed: Passed
    addresses: Sequence[str]
    data_dir: str
    worker: int | None = None

    def machine(self) -> Machine:
        """Return the machine of this process. A worker has no lock from the process before."""
        return Machine(storage=Storage(kept_locks=self.passed.locks)) if self.worker is None else Machine()

    def restarts(self, begin: Callable[[str], object]) -> Restarts:
        """Return the restarts of this process. The supervisor of a worker executes itself again."""
        pid = os.getpid() if self.worker is None else os.getppid()
        return Restarts(
            self.passed, self.addresses, begin, data_dir=self.data_dir, pid=pid, number=self.worker or 1
        )

    def of_worker(self, number: int, config: Config) -> OwnProcess:
        """Return what is a worker's, and close the sockets of the others."""
        self.passed.keep_sockets(address_of(listener, number) for listener in listeners_of(config))
        return self._replace(worker=number)


def run_worker(
    own: OwnProcess, config: Config, number: int, connection: socket.socket, start: WorkerStart | None = None
) -> int:
    """Run a worker in this process, a copy of its supervisor's, until SIGTERM or the end of the supervisor.
    `connection` is its stream to the supervisor. A worker of a bucket has no `start`. Return the exit code.
    """
    gc.disable()
    log_output.name_worker(number)
    own = own.of_worker(number, config)
    try:
        uvloop.run(_serve(config, own, worker_start=start, connection=None if start else connection))
    except (StartFailed, Ended) as error:
        report(connection, str(error))
        return 1
    return 0


def prepare_process(config: Config) -> None:
    check_data_directory(config)
    begin_logging(config)
    complaint = core.complaint()
    if complaint is not None:
        logger.warning("%s", complaint)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    raise_open_files_limit()
    keep_freed_memory()


def check_listener(listener: Listener) -> None:
    """Check that nobody listens on the address, before any file is changed. Raises StartFailed."""
    for each in bind(listener):
        each.close()


def bind(listener: Listener) -> list[socket.socket]:
    """Return the bound sockets of a listener. Raises StartFailed."""
    try:
        return bound_sockets(listener)
    except OSError as error:
        pid = _pid_on(listener.port) if error.errno == errno.EADDRINUSE else None
        raise StartFailed(
            f"can't listen on {listener.host}:{listener.port}: {error.strerror or error}"
            + (f" (pid {pid})" if pid else "")
        ) from error


def _pid_on(port: int) -> int | None:
    """Return the process that listens on a TCP port, as Linux's /proc shows it; None if unknown."""
    try:
        tables = (Path("/proc/net", name).read_text(encoding="ascii") for name in ("tcp", "tcp6"))
        rows = [line.split() for table in tables for line in table.splitlines()]
        sockets = {
            f"socket:[{row[9]}]" for row in rows if row[1].endswith(f":{port:04X}") and row[3] == _LISTENS
        }
    except OSError:
        return None
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # processes of others, and those that end
            if str(link.readlink()) in sockets:
                return int(link.parts[2])
    return None


def check_data_directory(config: Config) -> None:
    """Check that the data directory can be one, before any file in it is named. Raises StartFailed."""
    path = Path(config.str("log.dirs"))
    if path.exists() and not path.is_dir():
        raise StartFailed(f"the data directory {path} is a file; name a directory with --data-dir")
    if path.is_dir() and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise StartFailed(
            f"the data directory {path} can't be read and written by this user; run the gateway as its owner"
        )


def begin_logging(config: Config) -> None:
    file = config.optional_str("seqgate.logging.file")
    try:
        log_output.begin(config.str("seqgate.logging.level"), config.str("seqgate.logging.format"), file)
    except OSError as error:
        raise StartFailed(f"seqgate.logging.file {file} can't be written to: {error.strerror}") from None
    audit_file = config.optional_str("seqgate.audit.file")
    if audit_file is not None:
        try:
            log_output.begin_audit(audit_file)
        except OSError as error:
            raise StartFailed(
                f"seqgate.audit.file {audit_file} can't be written to: {error.strerror}"
            ) from None


async def _serve(
    config: Config,
    own: OwnProcess,
    announce: Announce | None = None,
    *,
    worker_start: WorkerStart | None = None,
    connection: socket.socket | None = None,
    console: bool = False,
    console_listen: str | None = None,
) -> Passed | None:
    """Serve until the end, a worker without `announce`. Return what is left to the process of a restart."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    passed = own.passed
    left: Passed | None = None
    ordered: asyncio.Future[str] = loop.create_future()
    gateway = Gateway(
        config, own.machine(), worker_start=worker_start, restarts=own.restarts(ordered.set_result)
    )
    link = None
    if connection is not None:
        link = await SupervisorLink.open(connection)
        loop.create_task(link.lost()).add_done_callback(lambda _: stopping.set())
    is_stopped = False

    def stop() -> None:
        nonlocal is_stopped
        is_stopped = True
        loop.call_soon_threadsafe(stopping.set)

    def is_left() -> bool:
        return left is not None and not is_stopped

    with signals_taken(stop, is_left):
        stopped = loop.create_task(stopping.wait())
        if not await start_until(stopped, gateway):
            return None
        if own.worker is None:
            gateway.machine.storage.release_kept_locks()
            warn_of_readers(config.str("log.dirs"))
        gc.freeze()
        gc.enable()
        beside = await console_of(gateway, console_listen, passed) if console else None
        if announce is None:
            backend = gateway.backend if isinstance(gateway.backend, WorkerBackend) else None
            send = (backend or cast("SupervisorLink", link)).send
            send(ready_of(gateway.services))
            ordered.add_done_callback(lambda order: send(RestartOrdered(order.result(), time.monotonic())))
        else:
            ordered.add_done_callback(lambda _: stopping.set())
            announce(announcement_of(gateway, beside))
        if beside is not None:
            await beside.start()
        loading = loop.call_later(COMMANDS_LOADED_AFTER_S, loop.run_in_executor, None, load_commands)
        ended = loop.create_task(gateway.backend.ended())
        await asyncio.wait((ended, stopped), return_when=asyncio.FIRST_COMPLETED)
        loading.cancel()
        if ended.done():
            await gateway.drop_clients()  # a request would find no thread while the event loop ends
            await ended
        ended.cancel()
        is_replaced = own.worker is None and ordered.done()
        logger.info("restarting" if is_replaced else "stopping")
        browsers = [] if beside is None else await beside.stop(leaves=is_replaced)
        if is_replaced:
            left = gateway.pass_on(ordered.result(), None if beside is None else beside.listen, browsers)
        await gateway.stop()
    return None if is_stopped else left


async def console_of(
    gateway: Gateway, listen: str | None = None, passed: Passed | None = None
) -> ConsoleProcess:
    """Return the console of a gateway, not started yet; browsers can connect already."""
    history = f"{gateway.services.partitions.log_directory.path}/{CONSOLE_HISTORY}"
    bootstrap = next(endpoint.shown for endpoint in gateway.services.node.brokers.advertised.values())
    left = [] if passed is None or listen is None else passed.take(console_address(listen))
    console = ConsoleProcess(bootstrap, f"http://{gateway.metrics_address}", history, listen, left)
    await console.choose_address()
    return console


def load_commands() -> None:
    """Import what answers the first command: an upgrade may replace the files under the running gateway."""
    import_module("seqgate.gateway.admin.operations")


def warn_of_readers(directory: str) -> None:
    """Warn when other users can read the data directory. The gateway changes no existing directory."""
    mode = stat.S_IMODE(os.stat(directory).st_mode)  # noqa: PTH116 - a path as in the settings
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        logger.warning(
            "other users of this machine can read the data directory %s (mode %04o); make it private: chmod "
            "700 %s",
            directory,
            mode,
            shlex.quote(directory),
        )


def announcement_of(gateway: Gateway, console: ConsoleProcess | None) -> Announcement:
    """Return what the command prints when clients can connect."""
    node = gateway.services.node
    told = [endpoint.shown for endpoint in node.brokers.advertised.values()]
    return Announcement(
        [endpoint.shown for endpoint in node.bound.values()],
        told,
        gateway.config.str("log.dirs"),
        console=console,
    )


async def start_until(stopped: asyncio.Future[Any], gateway: Gateway) -> bool:
    """Start the gateway; return False if `stopped` was done before the gateway ran. Raises StartFailed.

    Later the start finishes, and the caller stops the gateway. A start waits for a bucket, for its first
    block of producer ids for one. So once `stopped` is done, the start does not wait longer than a stop does.
    A start that fails then has stopped the gateway itself: False.
    """
    starting = asyncio.ensure_future(gateway.start())
    await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done() and not gateway.has_entered:
        starting.cancel()  # the bucket may never answer, and nothing of the gateway runs yet
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        return False
    giving_up = None if starting.done() else gateway.limit_waiting()
    try:
        await starting
    except StartFailed as error:
        if not stopped.done():
            raise
        logger.warning("the gateway was stopped before its start was complete: %s", error)
        return False
    finally:
        if giving_up is not None:
            giving_up.cancel()
    return True
