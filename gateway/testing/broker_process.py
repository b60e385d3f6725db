"""A broker in a process of its own, with the methods of `Broker`: for tests in which the broker must not
share the interpreter.

with BrokerProcess() as broker:
    with broker.faults.drop_answer(api="Produce") as fault:
        ...
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.backends.backend import StartFailed
from seqgate.gateway.config.load import has_settings
from seqgate.gateway.testing.broker import AnyBroker
from seqgate.gateway.testing.control.faults_command import TIMEOUT_S, ControlRefused, ask, shown
from seqgate.gateway.testing.control.routes import read_record
from seqgate.gateway.testing.data_directory import empty
from seqgate.gateway.testing.faults import FaultOrders
from seqgate.gateway.testing.inside import BrokerClock
from seqgate.gateway.testing.stored import StoredProducer, StoredRecord

_CONTROL: Final = "test control on http://"
_KINDS: Final[Mapping[int, type[Exception]]] = {
    HTTPStatus.NOT_FOUND: LookupError,
    HTTPStatus.CONFLICT: RuntimeError,
}
"""The exceptions of `Broker` by the test control's status; all others are a ValueError."""
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
"""Time for a clean stop; then the process is killed."""
COUNTS_TIMEOUT_S: Final = 5.0
"""Time for the counts of faults before the process ends; then they stay as they were last read."""


class BrokerProcess(AnyBroker):
    """A broker that `seqgate serve --test-control` runs; a later start keeps its port and its data. Faults
    and a moved clock end with each run of the process, which ends with that of the test.
    """

    def __init__(
        self, directory: Path | str | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        """Prepare the broker; `settings` override SETTINGS. Without `directory` its data is temporary. As for
        `Broker`, settings in the environment do not count.
        """
        super().__init__(directory)
        self._settings = {"listeners": "PLAINTEXT://127.0.0.1:0", **(settings or {})}
        self._control = ""
        self._process: ServeProcess | None = None
        self.faults = RemoteFaults(self._ask)
        self.clock = BrokerClock(lambda by_s: self._ask("POST", "/clock", {"seconds": by_s}))

    @property
    def control(self) -> str:
        """The address of the test control, HOST:PORT, for other programs."""
        return self._control

    def start(self) -> None:
        if self._process is not None:
            raise RuntimeError("the broker runs already: call stop() first")
        settings = [word for name, value in self._settings.items() for word in ("--set", f"{name}={value}")]
        command = [sys.executable, "-P", "-m", "seqgate", "serve"]
        command += ["--data-dir", str(self.directory), "--test-control", "127.0.0.1:0", *settings]
        command += ["--exit-with", str(os.getpid())]
        # The gateway would replace its process for the sake of another allocator, which saves memory after
        # days.
        inherited = {name: value for name, value in os.environ.items() if not has_settings(name)}
        environment = {"PYTHONMALLOC": "pymalloc", **inherited}
        directory = self.directory.absolute()
        log = directory.with_name(f"{directory.name}.log")
        process = ServeProcess(command, log, environment=environment)
        printed = process.await_ready(START_TIMEOUT_S)
        self._process = process
        self._control = _after(_CONTROL, printed)
        self._keep_ports([address.rpartition(":")[2] for address in _bound(printed)])

    def stop(self) -> None:
        self._end(lambda process: process.end(signal.SIGTERM, STOP_TIMEOUT_S))

    def kill(self) -> None:
        self._end(lambda process: process.end(signal.SIGKILL, STOP_TIMEOUT_S))

    def power_cut(self) -> None:
        self.faults.end_run()
        self._ask("POST", "/power-cut")
        self._end(lambda process: process.await_end(STOP_TIMEOUT_S))

    def reset(self) -> None:
        if self._process is None:
            empty(self.directory)
            self.start()
        else:
            self.faults.end_run()
            self._ask("POST", "/reset")

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        self._ask("POST", "/topics", {"name": name, "partitions": partitions, "configs": dict(configs or {})})

    def topics(self) -> list[str]:
        return [str(name) for name in self._ask("GET", "/topics")]

    def records(self, topic: str) -> list[StoredRecord]:
        return [read_record(row) for row in self._ask("GET", f"/topics/{quote(topic)}/records")]

    def producers(self, topic: str) -> list[StoredProducer]:
        return [StoredProducer(**row) for row in self._ask("GET", f"/topics/{quote(topic)}/producers")]

    def groups(self) -> dict[str, str]:
        return dict(self._ask("GET", "/groups"))

    def _complaint(self, topic: str, expected: Iterable[bytes | None]) -> str | None:
        body = {"values": [shown(value) for value in expected]}
        complaint: str | None = self._ask("POST", f"/topics/{quote(topic)}/exactly-once", body)["complaint"]
        return complaint

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> Any:
        if self._process is None:
            raise RuntimeError("the broker does not run: call start() first")
        try:
            return ask(self._control, method, path, body, timeout_s=timeout_s)
        except ControlRefused as error:
            raise _KINDS.get(error.status, ValueError)(str(error)) from None

    def _keep_ports(self, ports: Sequence[str]) -> None:
        """Let the next process listen on the ports that the system chose for this one."""
        given = self._settings["listeners"].split(",")
        shown = [f"{each.rpartition(':')[0]}:{port}" for each, port in zip(given, ports, strict=True)]
        self._settings["listeners"] = ",".join(shown)
        self._port = int(ports[0])

    def _end(self, order: Callable[[ServeProcess], int]) -> None:
        self.faults.end_run()
        process, self._process = self._process, None
        if process is not None:
            order(process)


def _after(begins: str, printed: Iterable[str]) -> str:
    return next(line.removeprefix(begins) for line in printed if line.startswith(begins))


def _bound(printed: Iterable[str]) -> list[str]:
    """Return the addresses that the gateway listens on. Those that it tells clients may come after them."""
    addresses, _, _ = _after(READY, printed).partition(" (")[0].partition(", tells clients ")
    return addresses.split(", ")


# One run of `seqgate serve` as a process, from its start to its end.

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
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def await_ready(self, timeout_s: float) -> list[str]:
        """Return the lines that the gateway printed until clients can connect; the last one says so. Raises
        StartFailed with the last line of the log if it ends before; after the timeout it is killed.
        """
        deadline = time.monotonic() + timeout_s
        printed = b""
        with ExitStack() as failing:
            failing.callback(self._release)  # nobody has it yet who could end it, as after Ctrl-C
            while READY not in (text := printed.decode()) or not text.endswith("\n"):
                part = b""
                if self.prints_within(max(0.0, deadline - time.monotonic())):
                    part = os.read(self._output.fileno(), _READ_BYTES)
                if not part:
                    raise StartFailed(self._reason())
                printed += part
            failing.pop_all()
        return text.splitlines()

    def prints_within(self, timeout_s: float) -> bool:
        """Wait until something unread is printed, or the process has ended; False after the timeout."""
        printing = select.poll()  # select takes no descriptor from 1,024 on
        printing.register(self._output, select.POLLIN)
        return bool(printing.poll(timeout_s * 1000))

    def end(self, number: signal.Signals, timeout_s: float) -> int:
        """Send a signal and return the exit code; kill it and raise TimeoutExpired if it is late."""
        self._process.send_signal(number)
        return self.await_end(timeout_s)

    def await_end(self, timeout_s: float) -> int:
        """Return the exit code; kill the process and raise TimeoutExpired if it is late."""
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


# The faults of a broker in another process: the methods of `Faults`, asked over HTTP.

_POLL_S: Final = 0.01


Ask = Callable[..., Any]
"""Asks the test control of the broker: with a method, a path, and a body."""


class RemoteFault:
    """A fault of one run of the process. After the run its counts stay, and its end does nothing: another
    fault may have its number by then.
    """

    def __init__(self, ask: Ask, row: Mapping[str, Any]) -> None:
        self._ask = ask
        self._row = row
        self.is_over = False
        """Whether the counts stay as they are: the fault, or the run of the process, has ended."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def seen(self) -> int:
        """The requests of the choice so far."""
        return int(self._asked("GET")["seen"])

    @property
    def struck(self) -> int:
        return int(self._asked("GET")["struck"])

    def end(self) -> None:
        """Strike no more requests, and repair what is broken."""
        self._asked("DELETE")
        self.is_over = True

    def end_run(self, rows: Mapping[int, Mapping[str, Any]]) -> None:
        """Note the counts, from what the process says of each fault by its number."""
        self._row = rows.get(self._row["id"], self._row)
        self.is_over = True

    def _asked(self, method: str) -> Mapping[str, Any]:
        if not self.is_over:
            try:
                self._row = self._ask(method, f"/faults/{self._row['id']}") or self._row
            except LookupError:
                self.is_over = True
        return self._row

    def wait_until_struck(self, times: int = 1, timeout_s: float = 30.0) -> None:
        """Wait until the fault has struck so often. Raises TimeoutError."""
        deadline_s = time.monotonic() + timeout_s
        while (struck := self.struck) < times:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{self} has struck {struck} times in {timeout_s:g} s, not {times}")
            time.sleep(_POLL_S)

    def __str__(self) -> str:
        return str(self._row["text"])


class RemoteFaults(FaultOrders[RemoteFault]):
    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._ordered: list[RemoteFault] = []

    def order(self, fault: str, **said: Any) -> RemoteFault:
        """Order a fault by its name. Raises ValueError for a wrong order, LookupError for a missing topic."""
        if said.get("kinds") is not None:
            said["kinds"] = [kind.name.lower() for kind in said["kinds"]]
        ordered = RemoteFault(self._ask, self._ask("POST", "/faults", {"fault": fault, **said}))
        self._ordered = [*(fault for fault in self._ordered if not fault.is_over), ordered]
        return ordered

    def end_run(self) -> None:
        """Note the counts of all faults before the process ends, or forgets them."""
        ordered, self._ordered = [fault for fault in self._ordered if not fault.is_over], []
        rows: dict[int, Mapping[str, Any]] = {}
        if ordered:
            with suppress(ControlError):  # nobody answers where the process has died, or stands still
                told = self._ask("GET", "/faults", timeout_s=COUNTS_TIMEOUT_S)
                rows = {row["id"]: row for row in told or ()}
        for fault in ordered:
            fault.end_run(rows)

    def partition_offline(self, topic: str, partition: int = 0) -> RemoteFault:
        """Take a partition offline until the end of the fault."""
        return self.order("partition_offline", topic=topic, partition=partition)

    def disk_full(self) -> RemoteFault:
        """Let the disk seem to be full until the end of the fault."""
        return self.order("disk_full")

    def expire_producer(self, producer_id: int) -> int:
        """Expire a producer in all partitions; return in how many it was known."""
        return int(self._ask("POST", f"/producers/{producer_id}/expire")["partitions"])

    def fence(self, transactional_id: str) -> None:
        """Fence the producer of a transactional id. Raises LookupError."""
        self._ask("POST", f"/transactional-ids/{quote(transactional_id, safe='')}/fence")

    def reset(self) -> None:
        self.end_run()
        self._ask("DELETE", "/faults")
