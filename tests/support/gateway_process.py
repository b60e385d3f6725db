"""A gateway in a process of its own, as a user starts it, for tests that talk to it over the wire."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.testing.broker_process import ServeProcess

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = REPOSITORY / "src"
"""The folder in which Python finds `seqgate`."""
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 90.0
AS_INSTALLED = Path(__file__).with_name("as_installed")
PORTS_KEPT = 200

_kept: deque[socket.socket] = deque()


def free_port() -> int:
    """Return a port for a server of this process's tests only; the last PORTS_KEPT ports stay reserved while
    unused.

    A bound socket that does not listen reserves a port. Servers that set SO_REUSEADDR can listen beside it.
    Other processes that ask for any free port get another one: other tests, and clients that dial, which
    could otherwise connect to themselves.
    """
    return kept_port(0)


def kept_port(port: int) -> int:
    """Reserve a TCP port, so that the system assigns it to nobody else, and return its number. For 0, reserve
    a free port.

    Raises OSError when the port is taken.
    """
    keeper = socket.socket()
    try:
        keeper.bind(("127.0.0.1", port))
    except OSError:
        keeper.close()
        raise
    # SO_REUSEADDR must be set after bind. Otherwise the system may assign a port that is already reserved.
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _kept.append(keeper)
    if len(_kept) > PORTS_KEPT:
        _kept.popleft().close()
    return int(keeper.getsockname()[1])


def _python_path(sources: Path) -> str:
    own = str(sources / "src"), str(sources)
    inherited = (os.environ.get("PYTHONPATH"),) if sources == REPOSITORY else own
    return os.pathsep.join(filter(None, (str(AS_INSTALLED), *inherited)))


def module_of(sources: Path) -> str:
    """Return the module that is the command line of a release. Earlier releases had `gateway` beside four
    other packages.
    """
    return "gateway" if (sources / "gateway" / "__main__.py").exists() else "seqgate"


class PortTaken(AssertionError):
    """A gateway did not start, because another process listens on its port."""


class GatewayProcess:
    """`python -m seqgate serve` on a data directory; restartable on the same port, killable."""

    def __init__(
        self,
        data_dir: Path,
        *,
        settings: dict[str, str] | None = None,
        port: int = 0,
        environment: Mapping[str, str] | None = None,
        under: Sequence[str] = (),
        also_listen: Sequence[str] = (),
    ) -> None:
        """Prepare the gateway. `under` is a command that runs another command, such as one that sets limits.

        `also_listen` are further listeners, such as SSL://127.0.0.1:9093.
        """
        self.data_dir = data_dir
        self.settings = dict(settings or {})
        self.environment = dict(environment or {})
        self.under = tuple(under)
        self.also_listen = tuple(also_listen)
        self.port = port or free_port()
        self._may_move = not port
        """Whether another port is as good: nobody chose this one, and nothing has listened on it yet."""
        self.sources = REPOSITORY
        """The sources of the release that `start` runs."""
        self.python = Path(sys.executable)
        """The interpreter that `start` runs; an installed release has one of its own."""
        self.stderr_path = data_dir.parent / f"{data_dir.name}.stderr"
        self.ready_line = ""
        self._process: ServeProcess | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended by itself."""
        return self._process is not None and self._process.has_ended

    def start(self) -> GatewayProcess:
        """Start, on another port if a stranger has taken the free one meanwhile. Raises AssertionError."""
        while True:
            try:
                self._start()
            except PortTaken:
                if not self._may_move:
                    raise
                self.port = free_port()
            else:
                self._may_move = False
                return self

    def _start(self) -> None:
        command = [
            *self.under,
            str(self.python),
            "-m",
            module_of(self.sources),
            "serve",
            "--listen",
            self.bootstrap,
        ]
        command += [word for address in self.also_listen for word in ("--listen", address)]
        command += ["--data-dir", str(self.data_dir)]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        self._process = ServeProcess(
            command,
            self.stderr_path,
            directory=self.sources,
            environment={
                **os.environ,
                "PYTHONPATH": _python_path(self.sources),
                "PYTHONUNBUFFERED": "1",
                **self.environment,
            },
        )
        self.ready_line = self._await_ready(self._process)

    def _await_ready(self, process: ServeProcess) -> str:
        try:
            return process.await_ready(START_TIMEOUT_S)[-1]
        except StartFailed as error:
            kind = PortTaken if f"{self.bootstrap}: Address already in use" in str(error) else AssertionError
            raise kind(f"the gateway did not start: {error}\n{self.stderr_text()[-4000:]}") from None

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop with SIGTERM; the gateway must exit with code 0."""
        code = self._end(signal.SIGTERM, timeout_s)
        assert code == 0, f"exit code {code} after SIGTERM\n{self.stderr_text()[-4000:]}"

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals, timeout_s: float = STOP_TIMEOUT_S) -> int:
        process, self._process = self._process, None
        return 0 if process is None else process.end(number, timeout_s)

    def restart(self, *, kill: bool = False) -> GatewayProcess:
        if kill:
            self.kill()
        else:
            self.stop()
        return self.start()

    def await_end(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait until the gateway has ended by itself; return its exit code. After the timeout the gateway is
        killed.
        """
        process, self._process = self._process, None
        assert process is not None
        return process.await_end(timeout_s)

    def stderr_text(self) -> str:
        return self.stderr_path.read_text(errors="replace") if self.stderr_path.exists() else ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()
