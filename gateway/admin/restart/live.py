"""The restart of a running gateway: the process executes itself again (`execve`), from the files that are
installed now, so that an upgrade is no stop.

Its process id, its parent and its terminal stay. First a child with the same command line checks that the
next process can start; otherwise nothing changes. Then the gateway stops as on SIGTERM, but for what it
passes on (`Passed`): the listening sockets stay open, so that the connections of clients wait in the backlog
of the system instead of being refused, and the lock of the data directory stays held, so that no other
gateway can begin on it. What a clean stop leaves in files is all else that the next process knows.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from seqgate import __version__
from seqgate.gateway.config import Config, Listener
from seqgate.gateway.config.metrics import METRICS_LISTENER, metrics_listener
from seqgate.gateway.stop_signals import pass_stop_signals_on

logger = logging.getLogger(__name__)

VARIABLE: Final = "_SEQGATE_RESTART"
"""The environment variable that has a `Passed` as JSON."""
_SCRIPT: Final = b"#!"


class Passed(msgspec.Struct, kw_only=True):
    """What a process leaves to the one that takes its place. `sockets` are descriptors of listening sockets
    by address (`address_of`), `locks` those of locked files by real path. A process that checks gets the
    addresses without descriptors. Another release reads this: a field that is added has a default.
    """

    pid: int = 0
    is_check: bool = False
    restart: str = ""
    """The name that the command has given to the restart; empty for a process that begins by itself."""
    version: str = __version__
    """The version of the process that leaves this."""
    paused_at_s: float = 0.0
    """When the process before stopped to accept connections, by the monotonic clock."""
    console: str | None = None
    """The address of the console beside the gateway."""
    data_dir: str = ""
    """To a process that checks: the real path of the data directory that the running gateway serves."""
    sockets: dict[str, list[int]] = {}
    locks: dict[str, int] = {}

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> Passed:
        """Take what the process before has left out of the environment; nothing without one."""
        text = environment.pop(VARIABLE, None)
        passed = cls() if text is None else msgspec.json.decode(text, type=cls)
        if passed.pid != os.getpid() and not passed.is_check:
            return cls()  # the variable is that of another process
        for descriptor in passed.descriptors():
            os.set_inheritable(descriptor, False)
        return passed

    def descriptors(self) -> Iterator[int]:
        """Yield all descriptors that are passed on."""
        for numbers in (*self.sockets.values(), self.locks.values()):
            yield from numbers

    def take(self, address: str) -> list[socket.socket]:
        """Return the sockets that listen on an address; none where the process before did not listen."""
        return [socket.socket(fileno=number) for number in self.sockets.pop(address, ())]

    def keep_sockets(self, addresses: Iterable[str] = ()) -> None:
        """Close the sockets that listen on other addresses. This process then listens there no more."""
        for address in self.sockets.keys() - set(addresses):
            for number in self.sockets.pop(address):
                os.close(number)

    def waited_ms(self) -> int:
        """Return how long clients have waited until now."""
        return round((time.monotonic() - self.paused_at_s) * 1000)

    def log(self, beside: str = "") -> None:
        """Log that the restart is complete."""
        logger.info(
            "restarted, version %s before and %s now; clients waited for at most %d ms%s",
            self.version,
            __version__,
            self.waited_ms(),
            beside,
        )

    def replace_process(self) -> NoReturn:
        """Execute this process again. Raises OSError where the program can't be executed any more."""
        command = command_line()
        self.pid = os.getpid()
        for descriptor in self.descriptors():
            os.set_inheritable(descriptor, True)
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        pass_stop_signals_on()
        os.execve(command[0], command, self.environment())  # noqa: S606 - its own command line

    def environment(self) -> dict[str, str]:
        """Return the environment of the process that gets this."""
        return {**os.environ, VARIABLE: msgspec.json.encode(self).decode()}


def command_line() -> list[str]:
    """Return the command line of this process, to execute it again. A script is executed itself, because its
    first line may name another interpreter by now.
    """
    script = sys.argv[0]
    if len(sys.orig_argv) == len(sys.argv) + 1 and _is_script(script):
        return [str(Path(script).absolute()), *sys.argv[1:]]
    return [sys.executable, *sys.orig_argv[1:]]


def _is_script(path: str) -> bool:
    try:
        with Path(path).open("rb") as file:
            return file.read(len(_SCRIPT)) == _SCRIPT and os.access(path, os.X_OK)
    except OSError:
        return False


def address_of(listener: Listener, number: int = 1) -> str:
    """Return the address by which a listener's sockets are passed on. Where the system chooses the port, the
    names of the listeners and the numbers of the workers tell the addresses apart.
    """
    address = f"{listener.host}:{listener.port}"
    return address if listener.port else f"{listener.name}://{address}#{number}"


def console_address(listen: str) -> str:
    """Return the address by which the socket of the console beside the gateway is passed on."""
    return f"console://{listen}"


def control_address(path: Path) -> str:
    """Return the address by which a control socket is passed on: another data directory has another one."""
    return f"unix:{path.resolve()}"


def listeners_of(config: Config) -> list[Listener]:
    """Return the listeners of a gateway, that of the metrics with them."""
    metrics = config.optional_str(METRICS_LISTENER)
    return [*config.listeners, *(() if metrics is None else (metrics_listener(metrics),))]


class Restarts:
    """The restarts of one process: what the process before has passed to it, and the one that is ordered."""

    def __init__(
        self,
        passed: Passed,
        addresses: Iterable[str],
        begin: Callable[[str], object],
        *,
        data_dir: str,
        pid: int | None = None,
        number: int = 1,
    ) -> None:
        """`begin` is called with the name of an ordered restart, once the command has its answer. `addresses`
        are those that the next process gets sockets for, `data_dir` is the real path of the data directory,
        of all workers, `pid` the process that executes itself again, `number` that of the worker.
        """
        self.passed = passed
        self.pid = os.getpid() if pid is None else pid
        self.waited_ms = 0
        """How long clients have waited for this process; 0 where it begins by itself."""
        self._to_check = Passed(
            is_check=True, sockets={address: [] for address in addresses}, data_dir=data_dir
        )
        self._begin = begin
        self._number = number
        self.ordered: str | None = None
        """The name of the restart that is ordered."""
        self._is_checked = False

    @contextlib.contextmanager
    def begin_after_answer(self, restart: str) -> Iterator[Passed]:
        """Order a restart; yield what the process that checks the start gets. An error in the context takes
        the order back.
        """
        self.ordered = restart
        try:
            yield self._to_check
        except BaseException:
            self.ordered = None
            raise
        self._is_checked = True

    def begin_ordered(self) -> None:
        """Begin the restart that is ordered, if there is one. Call this after each answer."""
        if self.ordered is not None and self._is_checked:
            self._is_checked = False
            self._begin(self.ordered)

    def take(self, listener: Listener | Path) -> list[socket.socket]:
        """Return the sockets that a listener has from the process before, or from the supervisor, or the one
        that listens at the path of the control socket.
        """
        return self.passed.take(
            control_address(listener) if isinstance(listener, Path) else address_of(listener, self._number)
        )

    def note_serving(self) -> None:
        """Note that this process accepts connections."""
        if self.passed.restart:
            self.waited_ms = self.passed.waited_ms()
