"""The processes that the demo starts: a gateway, and producers that report their progress."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from gateway.demo.flights import FlightFile, Share
from gateway.demo.login import PROTOCOL

STOP_TIMEOUT_S = 30.0
_READY = "seqgate ready on "


class DemoFailedError(Exception):
    """The demo can't continue; the message is a sentence for the user."""


class DemoGateway:
    """`seqgate serve` on a free port of the loopback address, as a context manager.

    With `settings`, a file of settings, the gateway listens with TLS and logins. With `cluster`, the address of a bucket, its data is a cache.
    """

    def __init__(
        self, data_dir: Path, log_path: Path, settings: Path | None = None, *, cluster: str | None = None
    ) -> None:
        self.data_dir = data_dir
        self.host, self.port = "127.0.0.1", 0
        self._log_path = log_path
        self._settings = settings
        self._cluster = cluster
        self._process: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients, `host:port`."""
        return f"{self.host}:{self.port}"

    def start(self) -> None:
        """Start the gateway, on the port that it had before. Raises DemoFailedError."""
        protocol = "" if self._settings is None else f"{PROTOCOL}://"
        command = [sys.executable, "-m", "gateway", "serve", "--listen", f"{protocol}{self.bootstrap}"]
        command += ["--data-dir", str(self.data_dir)]
        if self._settings is not None:
            command += ["--config", str(self._settings)]
        if self._cluster is not None:
            command += ["--cluster", self._cluster]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith(_READY):
            self.kill()
            raise DemoFailedError(
                f"The gateway did not start. Its log:\n{self._log_path.read_text(errors='replace')}"
            )
        self.host, _, port = line.removeprefix(_READY).split()[0].rpartition(":")
        self.port = int(port)

    def kill(self) -> None:
        """Kill the gateway at once."""
        if self._process is not None:
            self._process.kill()
            self._ended()

    def stop(self) -> None:
        """Stop the gateway, if it runs."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._ended()

    def _ended(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.wait()
        self._process.stdout.close()
        self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def duplicates_rejected(self) -> int:
        """Return the number of duplicates that the gateway counted (`seqgate producers`)."""
        from gateway.admin.client import ask
        from gateway.admin.status.messages import StatusRequest

        return ask(self.data_dir, StatusRequest()).counters.duplicates


class Sender(NamedTuple):
    """One producer: its name, its client library, and its share of the work, relative to the others."""

    name: str
    library: str
    weight: float


def run_senders(
    senders: tuple[Sender, ...],
    file: FlightFile,
    bootstrap: str,
    topic: str,
    on_progress: Callable[[Sender, int], None],
    login: Path | None = None,
) -> None:
    """Run all senders at once, each with its share of the file. Raises DemoFailedError when a sender gives up.

    `login` is the file of a login that the senders share.
    """
    shares = file.shares([sender.weight for sender in senders])
    running = [_start(*work, file, bootstrap, topic, login) for work in zip(senders, shares, strict=True)]
    readers = [
        threading.Thread(target=_follow, args=(sender, process, on_progress), daemon=True)
        for sender, process in zip(senders, running, strict=True)
    ]
    try:
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        failures = [process.stderr.read() for process in running if process.wait() and process.stderr]
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
            for pipe in filter(None, (process.stdout, process.stderr)):
                pipe.close()
    if failures:
        raise DemoFailedError(
            "A producer gave up. Its output:\n" + "\n".join(text[-2000:] for text in failures)
        )


def _start(
    sender: Sender, share: Share, file: FlightFile, bootstrap: str, topic: str, login: Path | None
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gateway.demo.producers", sender.library, "--name", sender.name]
    command += ["--bootstrap", bootstrap, "--topic", topic, "--path", str(file.path)]
    command += ["--position", str(share.position), "--records", str(share.records)]
    command += [] if login is None else ["--login", str(login)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _follow(
    sender: Sender, process: subprocess.Popen[str], on_progress: Callable[[Sender, int], None]
) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        on_progress(sender, int(line))
