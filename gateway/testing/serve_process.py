"""One run of `seqgate serve` as a process, from its start to its end."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from gateway.homes.home import StartFailed

READY: Final = "seqgate ready on "
"""The beginning of the line that a gateway prints when clients can connect."""

_READ_BYTES: Final = 1 << 16


class ServeProcess:
    """A process that runs a gateway. It leaves its standard output to `await_ready`, and logs to a file."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        directory: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start the command in a working directory; its log lines are added to the file `log`."""
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        assert self._process.stdout is not None
        self._output = self._process.stdout

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended by itself."""
        return self._process.poll() is not None

    def await_ready(self, timeout_s: float) -> list[str]:
        """Return the lines that the gateway printed until clients can connect; the last one says so.

        Raises StartFailed with the last line of the log if it ends before; after the timeout it is killed.
        """
        deadline = time.monotonic() + timeout_s
        printed = b""
        while READY not in (text := printed.decode()) or not text.endswith("\n"):
            part = b""
            if self.prints_within(max(0.0, deadline - time.monotonic())):
                part = os.read(self._output.fileno(), _READ_BYTES)
            if not part:
                raise StartFailed(self._reason())
            printed += part
        return text.splitlines()

    def prints_within(self, timeout_s: float) -> bool:
        """Wait until the process has printed something that nobody has read, or has ended; return False after the timeout."""
        return bool(select.select([self._output], [], [], timeout_s)[0])

    def end(self, number: signal.Signals, timeout_s: float) -> int:
        """Send a signal, wait for the end and return the exit code. Raises TimeoutExpired, after which it is killed."""
        self._process.send_signal(number)
        return self.await_end(timeout_s)

    def await_end(self, timeout_s: float) -> int:
        """Wait for the end and return the exit code. Raises TimeoutExpired, after which the process is killed."""
        try:
            return self._process.wait(timeout_s)
        finally:
            self._release()

    def _release(self) -> None:
        self._process.kill()
        self._process.wait()
        self._output.close()

    def _reason(self) -> str:
        code = self._process.poll()
        self._release()
        lines = self._log.read_text(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        ended = "was killed: it was not ready in time" if code is None else f"ended with {code}"
        return last.removeprefix("seqgate: ") or f"the process {ended}"
