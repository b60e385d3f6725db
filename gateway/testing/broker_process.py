"""A broker in a process of its own, with the methods of `Broker`: for tests in which the broker must not share the interpreter.

with BrokerProcess() as broker:
    with broker.faults.drop_answer(api="Produce") as fault:
        ...
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

from gateway.admin.faults.control_client import Refused, ask
from gateway.allocator import VARIABLE
from gateway.testing.clock import BrokerClock
from gateway.testing.control.values import read_record, shown
from gateway.testing.data_directory import DataDirectory, bootstrap_of, empty
from gateway.testing.remote_faults import RemoteFaults
from gateway.testing.serve_process import READY, ServeProcess
from gateway.testing.stored import StoredProducer, StoredRecord

_CONTROL: Final = "test control on http://"
_KINDS: Final[Mapping[int, type[Exception]]] = {
    HTTPStatus.NOT_FOUND: LookupError,
    HTTPStatus.CONFLICT: RuntimeError,
}
"""The exceptions that `Broker` raises where the test control answers with these statuses; a ValueError for all others."""
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
"""Time for a clean stop; then the process is killed."""


class BrokerProcess:
    """A broker that `seqgate serve --test-control` runs. It keeps its port and its data when it is stopped and started again.

    Faults end with each run of the process; the clock is the time of day again after it. The process ends with that of the test.
    """

    def __init__(self, directory: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        """Prepare the broker; `settings` override SETTINGS. Without a `directory` the data is in a temporary one."""
        self._data = DataDirectory(directory)
        self._settings = dict(settings or {})
        self._port = 0
        self._control = ""
        self._process: ServeProcess | None = None
        self.faults = RemoteFaults(self._ask)
        self.clock = BrokerClock(lambda by_s: self._ask("POST", "/clock", {"seconds": by_s}))

    @property
    def directory(self) -> Path:
        """The data directory."""
        return self._data.path

    @property
    def bootstrap(self) -> str:
        """The address for clients, HOST:PORT. Raises RuntimeError before the first start."""
        return bootstrap_of(self._port)

    @property
    def control(self) -> str:
        """The address of the test control, HOST:PORT, for other programs."""
        return self._control

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- its life

    def start(self) -> None:
        """Start, and return when clients can connect. Raises StartFailed; RuntimeError if the broker runs already."""
        if self._process is not None:
            raise RuntimeError("the broker runs already: call stop() first")
        settings = [word for name, value in self._settings.items() for word in ("--set", f"{name}={value}")]
        command = [sys.executable, "-P", "-m", "gateway", "serve", "--listen", f"127.0.0.1:{self._port}"]
        command += ["--data-dir", str(self.directory), "--test-control", "127.0.0.1:0", *settings]
        command += ["--exit-with", str(os.getpid())]
        # The gateway would replace its process for the sake of another allocator, which saves memory after days.
        environment = {VARIABLE: "pymalloc", **os.environ}
        log = self.directory.with_name(f"{self.directory.name}.log")
        process = ServeProcess(command, log, environment=environment)
        printed = process.await_ready(START_TIMEOUT_S)
        self._control = _address(printed, _CONTROL)
        self._port = int(_address(printed, READY).rpartition(":")[2])
        self._process = process

    def stop(self) -> None:
        """Stop cleanly, and return when all data is written; a stopped broker stays stopped."""
        self._end(lambda process: process.end(signal.SIGTERM, STOP_TIMEOUT_S))

    def restart(self) -> None:
        """Stop cleanly and start again, on the same port with the same data."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """Kill the process: what was written stays. `start` recovers the data."""
        self._end(lambda process: process.end(signal.SIGKILL, STOP_TIMEOUT_S))

    def power_cut(self) -> None:
        """Kill the process, and lose every record that was not flushed. Raises RuntimeError if the broker does not run."""
        self._ask("POST", "/power-cut")
        self._end(lambda process: process.await_end(STOP_TIMEOUT_S))

    def reset(self) -> None:
        """Begin anew: no topics, groups, producers, transactions or faults. The broker keeps its port; connections break."""
        if self._process is None:
            empty(self.directory)
            self.start()
        else:
            self._ask("POST", "/reset")

    def close(self) -> None:
        """Stop, and remove a temporary directory."""
        try:
            self.stop()
        finally:
            self._data.remove_temporary()

    # --- looking inside

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic. Raises ValueError if the broker refuses it, for example because it exists already."""
        self._ask("POST", "/topics", {"name": name, "partitions": partitions, "configs": dict(configs or {})})

    def topics(self) -> list[str]:
        """Return the names of the topics, internal ones left out."""
        return [str(name) for name in self._ask("GET", "/topics")]

    def records(self, topic: str) -> list[StoredRecord]:
        """Return the committed records of a topic, by partition and offset. Raises LookupError if there is no such topic."""
        return [read_record(row) for row in self._ask("GET", f"/topics/{quote(topic)}/records")]

    def producers(self, topic: str) -> list[StoredProducer]:
        """Return the producers that the partitions of a topic remember. Raises LookupError if there is no such topic."""
        return [StoredProducer(**row) for row in self._ask("GET", f"/topics/{quote(topic)}/producers")]

    def groups(self) -> dict[str, str]:
        """Return the state of each group, by its id."""
        return dict(self._ask("GET", "/groups"))

    def assert_exactly_once(self, topic: str, expected: Iterable[bytes | None]) -> None:
        """Check that the topic holds these values, each exactly once, in each partition in the order in which they were sent.

        Raises AssertionError, which names the lost, doubled, unexpected and reordered records.
        """
        body = {"values": [shown(value) for value in expected]}
        complaint = self._ask("POST", f"/topics/{quote(topic)}/exactly-once", body)["complaint"]
        if complaint is not None:
            raise AssertionError(f"topic {topic}: {complaint}")

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        if self._process is None:
            raise RuntimeError("the broker does not run: call start() first")
        try:
            return ask(self._control, method, path, body)
        except Refused as error:
            raise _KINDS.get(error.status, ValueError)(str(error)) from None

    def _end(self, order: Callable[[ServeProcess], int]) -> None:
        process, self._process = self._process, None
        if process is not None:
            order(process)


def _address(printed: Iterable[str], begins: str) -> str:
    """Return the address that the line with this beginning tells."""
    return next(line.removeprefix(begins).split()[0] for line in printed if line.startswith(begins))
