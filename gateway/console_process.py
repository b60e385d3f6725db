"""Runs the console of `seqgate serve --console` as a process beside the gateway.

The gateway binds the socket on which the console listens, so that it can pass the socket on: while
`seqgate restart` replaces the gateway, browsers wait in the backlog of the system.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import shlex
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Final

from seqgate.gateway.admin.request import CONSOLE_SOCKET
from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.config.packages import install, is_installed

logger = logging.getLogger(__name__)

LISTEN: Final = "127.0.0.1:8080"
"""The address of the console, unless another program has its port."""
STOP_TIMEOUT_S: Final = 5.0
_BACKLOG: Final = 128
_NEEDED: Final = ("starlette", "uvicorn", "jinja2")
_PR_SET_PDEATHSIG: Final = 1
_PROGRAM: Final = (
    "from seqgate.gateway.console_process import end_with_gateway; end_with_gateway(); "
    "from seqgate.gateway.entry import main; main()"
)
"""The program of the console's process; its first argument is the id of the gateway's process."""


def check_installed() -> None:
    """Check that the packages of the console are there, before the gateway starts. Raises StartFailed."""
    for package in _NEEDED:
        if not is_installed(package):
            raise StartFailed(install(package, "--console", "console"))


class ConsoleProcess:
    """The console of one gateway. The gateway serves on without it when it ends by itself."""

    def __init__(
        self,
        bootstrap: str,
        metrics_url: str,
        history: str,
        listen: str | None = None,
        listening: Sequence[socket.socket] = (),
    ) -> None:
        """Take the addresses of the gateway that the console shows, the file of the console's history, its
        own address if that is chosen, and the socket that the process before has left there.
        """
        self._options = ("--bootstrap", bootstrap, "--metrics", metrics_url, "--history", history)
        self.listen = listen or LISTEN
        self.taken: str | None = None
        """The usual address, if another program has it."""
        self._is_chosen = listen is not None
        self._listening = next(iter(listening), None)
        """The socket on which the console listens; without one it binds its own, or says why it can't."""
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None

    async def choose_address(self) -> None:
        """Bind the socket of the console, unless the process before has left one. If another program has the
        usual port, and no address is given, the system chooses the port.
        """
        if self._listening is not None:
            return
        if not self._is_chosen and not await _is_free(LISTEN):
            self.taken = LISTEN
        host, _, port = ("127.0.0.1:0" if self.taken else self.listen).rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        at = (host.strip("[]"), int(port))
        with contextlib.suppress(OSError, OverflowError):
            self._listening = socket.create_server(at, family=family, backlog=_BACKLOG)
            self.listen = f"{host}:{self._listening.getsockname()[1]}"

    async def start(self) -> None:
        """Start the console, which prints its address when it answers."""
        command: Sequence[str] = (
            sys.executable,
            "-P",  # a folder called gateway in the working directory is not the package
            "-c",
            _PROGRAM,
            str(os.getpid()),
            *self._words,
        )
        environment = dict(os.environ)
        passed: tuple[int, ...] = ()
        if self._listening is not None:
            number = self._listening.fileno()
            environment[CONSOLE_SOCKET], passed = str(number), (number,)
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, env=environment, pass_fds=passed
        )
        self._watching = asyncio.create_task(self._watch(self._process))

    @property
    def _words(self) -> tuple[str, ...]:
        """The words after `seqgate` of the command that runs this console."""
        return ("console", "--listen", self.listen, *self._options)

    async def stop(self, *, leaves: bool = False) -> list[int]:
        """End the console. With `leaves` return a duplicate of its socket: browsers wait there."""
        left = [os.dup(self._listening.fileno())] if leaves and self._listening is not None else []
        self._close()
        if self._process is None or self._watching is None:
            return left
        self._watching.cancel()
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), STOP_TIMEOUT_S)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        return left

    def _close(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        self._close()
        logger.warning(
            "the console has ended with exit code %d; the gateway serves on without it. Start another one "
            "with: seqgate %s",
            code,
            shlex.join(self._words),
        )


async def _is_free(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return True
    writer.close()
    return False


def end_with_gateway() -> None:
    """Let this process, which ConsoleProcess has started, end with the gateway, however the gateway ends: an
    orphan would keep the port and write the history file of the next console. Only Linux tells of the end of
    a gateway that was killed.
    """
    parent_id = int(sys.argv.pop(1))
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent_id:
        raise SystemExit
