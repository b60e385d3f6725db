"""A real redis-server for one test, which can be killed, stopped, emptied, and set back to an older state."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.gateway_process import free_port

START_TIMEOUT_S = 60.0


class RedisServer:
    """The server as a context manager. Only `save()` persists data; other data is lost when the process dies."""

    def __init__(self) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise RuntimeError(
                "redis-server is not installed; these tests need it (Debian: apt-get install redis-server)"
            )
        self._program = program
        self._folder = Path(tempfile.mkdtemp(prefix="redis-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Start with the data of the last `save()` or `restore()`, and wait until the server answers."""
        log = self._folder / "redis.log"
        self._process = subprocess.Popen(
            [
                self._program,
                *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)),
                *("--save", "", "--appendonly", "no", "--daemonize", "no", "--logfile", str(log)),
            ],
            stdin=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.client().ping()
            except redis.RedisError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"redis-server does not answer: {log.read_text()}") from None
                # The pause between polls of a foreign process, which offers nothing to wait on.
                time.sleep(0.01)
            else:
                return

    def client(self) -> redis.Redis:
        """Return a plain connection to the server."""
        return redis.Redis(
            port=self.port, decode_responses=True, socket_timeout=5, retry=Retry(NoBackoff(), 0)
        )

    def kill(self) -> None:
        """Kill with SIGKILL: data that was not saved is lost."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def restart(self) -> None:
        self.kill()
        self.start()

    def hang(self) -> None:
        """Stop the process with SIGSTOP: the kernel still accepts connections, but no request is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def flush(self) -> None:
        self.client().flushall()

    def save(self) -> None:
        self.client().save()

    def backup(self) -> bytes:
        """Save the data, and return the data file."""
        self.save()
        return (self._folder / "dump.rdb").read_bytes()

    def restore(self, data: bytes) -> None:
        """Kill the server and start it again on an older data file."""
        self.kill()
        (self._folder / "dump.rdb").write_bytes(data)
        self.start()
