"""Runs the application of `seqgate certify` once: gives it values on its standard input, and takes
acknowledged values from its standard output.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import IO, Final, Self

from seqgate.gateway.certify.command import ScriptEnd

_TAIL_BYTES: Final = 2_000
_OUTPUT_TIMEOUT_S: Final = 5.0
"""Time for what is left of the standard output after the end."""


class NotStarted(Exception):
    """The application can't be started; the message says why."""


class Application:
    """One run of the application, in a process group of its own, which ends with the `with` block."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> None:
        """Prepare a run that is killed after `timeout_s`."""
        self._words = words
        self._environment = environment
        self._timeout_s = timeout_s
        self.has_ended = threading.Event()
        """Set when the process has ended or was killed."""
        self._acknowledged: set[bytes] = set()
        self._hung = False
        self._is_over = False
        self._process: subprocess.Popen[bytes]
        self._errors: IO[bytes]
        self._threads: list[threading.Thread] = []
        self._begun_s = 0.0
        self._ended_s = 0.0

    def start(self, values: Collection[bytes]) -> Self:
        """Start the process; its lines that are `values` count as acknowledged. Raises NotStarted."""
        self._begun_s = time.monotonic()
        # the file is closed in `close`
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command
                self._words,
                env={**os.environ, **self._environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            raise NotStarted(f"the command can't be started: {error}") from None
        works = (self._await_end, lambda: self._read(frozenset(values)))
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in self._threads:
            thread.start()
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, values: Sequence[bytes]) -> bool:
        """Give values to the application, one a line; return False if it reads no more."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"".join(value + b"\n" for value in values))
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            return False
        return True

    def finish(self) -> ScriptEnd:
        """Tell the application that there are no more values, and return how it ends."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self.has_ended.wait()
        self._end()
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - _TAIL_BYTES))
        return ScriptEnd(
            None if self._hung else self._process.returncode,
            self._ended_s - self._begun_s,
            frozenset(self._acknowledged),
            self._errors.read().decode(errors="replace").strip(),
        )

    def kill(self) -> None:
        """Kill the application and all processes that it has started; do nothing once the run is over."""
        if self._is_over:  # another process may have its number
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill what is left of the application, and close its files."""
        self._end()
        for file in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(BrokenPipeError):
                assert file is not None
                file.close()

    def _end(self) -> None:
        self.kill()
        self.has_ended.wait()
        self._is_over = True
        for thread in self._threads:
            # A process that left the group may hold the standard output open.
            thread.join(_OUTPUT_TIMEOUT_S)

    def _await_end(self) -> None:
        try:
            self._process.wait(self._timeout_s)
        except subprocess.TimeoutExpired:
            self._hung = True
            self.kill()
            self._process.wait()
        self._ended_s = time.monotonic()
        self.has_ended.set()

    def _read(self, values: frozenset[bytes]) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            value = line.rstrip(b"\r\n")
            if value in values:
                self._acknowledged.add(value)
