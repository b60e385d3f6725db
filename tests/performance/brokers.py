"""The compared brokers: each runs in its own process, started alike and observed through /proc."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import uuid
from abc import ABC, abstractmethod
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, Self

from tests.support.gateway_process import GatewayProcess, free_port
from tests.support.kafka_peer import server_properties
from tests.support.kafka_tools import run_tool
from tests.support.setup_peers import CACHE, POMS, go_program, kafka_libs
from tests.support.wire import Closed, Wire

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 300.0
POLL_S = 0.002
RESIDENT, MOST_RESIDENT = "VmRSS", "VmHWM"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
FLOOR_SOURCE = Path(__file__).with_name("floor.c")
KFAKE_SOURCE = Path(__file__).parent / "rivals" / "kfake"
GO_TIMEOUT_S = 600.0
NISSHI_VERSION = "0.6.0"
"""The last release that Rust 1.95 builds."""
CARGO_TIMEOUT_S = 3600.0
# The options that kafka-run-class.sh and kafka-server-start.sh give a JVM without further configuration.
JVM_OPTIONS = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]
BROKER_HEAP = ["-Xmx1G", "-Xms1G"]
TOOL_HEAP = ["-Xmx512M"]


def jvm(class_name: str, heap: list[str], logging: str) -> list[str]:
    """Return the command for a class of Kafka's jars, with the JVM options of Kafka's own scripts."""
    java = shutil.which("java")
    assert java is not None, "Apache Kafka needs Java 17, and there is no java on the PATH"
    logging_option = f"-Dlog4j2.configurationFile={POMS / logging}"
    return [java, *heap, *JVM_OPTIONS, logging_option, "-cp", f"{kafka_libs()}/*", class_name]


def compile_program(source: Path, directory: Path) -> Path:
    """Return the program that the C compiler makes of `source` in `directory`."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None, "there is no C compiler: install gcc"
    program = directory / source.stem
    command = [compiler, "-O2", "-march=native", "-o", str(program), str(source)]
    subprocess.run(command, check=True, timeout=60)
    return program


def await_api_versions(bootstrap: str, process: subprocess.Popen[bytes] | None = None) -> None:
    """Wait until ApiVersions is answered. Raises when the process ends or time runs out."""

    def ask() -> None:
        with Wire(bootstrap) as wire:
            wire.call("api_versions", 3, client_software_name="bench", client_software_version="1")

    await_start(ask, process)


def await_start(ask: Callable[[], object], process: subprocess.Popen[bytes] | None) -> None:
    """Call `ask` until its connection is accepted. Raises when the process ends or time runs out."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            ask()
            return
        except (ConnectionRefusedError, ConnectionResetError, Closed):
            assert process is None or process.poll() is None, "the broker ended instead of starting"
            assert time.monotonic() < deadline, "the broker does not answer"
            time.sleep(POLL_S)


def addresses(protocols: Sequence[str]) -> dict[str, str]:
    """Return a free address on the loopback for each security protocol."""
    return {protocol: f"127.0.0.1:{free_port()}" for protocol in protocols}


def listeners(secured: Mapping[str, str]) -> list[str]:
    return [f"{protocol}://{address}" for protocol, address in secured.items()]


def memory_bytes(pid: int, field: str) -> int:
    """Return RESIDENT or MOST_RESIDENT of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"/proc shows no {field} for the process")


class Broker(ABC):
    """The common part of all brokers; `name` is a column of the table."""

    name = ""
    title = ""
    """The name and version of a broker that takes the place of Kafka."""
    bootstrap = ""
    pid = 0
    start_s = 0.0
    secured: Mapping[str, str] = MappingProxyType({})
    """The addresses of further listeners by their security protocol."""
    rows: tuple[str, ...] | None = None
    """The rows that the broker can serve, by name; None: all."""
    can_flush = True
    """Whether the broker flushes before each answer where a topic's `flush.messages` says so."""

    @abstractmethod
    def start(self) -> None:
        """Start the process; `start_s` becomes the time until the first ApiVersions answer."""

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def kill(self) -> None:
        """Kill the process at once, even if it never answered."""

    def cpu_s(self) -> float:
        """Return the user and system seconds of the process with all its threads, ended threads included."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def disk_read_bytes(self) -> int:
        """Return the bytes that the process has read from the disk, not from the page cache."""
        rows = Path(f"/proc/{self.pid}/io").read_text().splitlines()
        return int(next(row.split()[1] for row in rows if row.startswith("read_bytes:")))

    def run_on(self, cores: Iterable[int]) -> None:
        """Let the process run on these cores alone, with all its threads; later ones inherit that."""
        chosen = set(cores)
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), chosen)

    def resident_bytes(self) -> int:
        return memory_bytes(self.pid, RESIDENT)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()


class SeqgateBroker(Broker):
    name = "Seqgate"

    def __init__(
        self,
        directory: Path,
        settings: dict[str, str] | None = None,
        protocols: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        *,
        checkout: Path | None = None,
    ) -> None:
        """Prepare a gateway of this checkout, or of another one."""
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.secured = addresses(protocols)
        self._gateway = GatewayProcess(
            directory / "data",
            settings=settings,
            also_listen=listeners(self.secured),
            environment=environment,
        )
        if checkout is not None:
            self.name = "other"
            self.title = f"another checkout, {checkout.name}"
            self._gateway.sources = checkout

    def start(self) -> None:
        begin = time.monotonic()
        self._gateway.start()
        self.bootstrap = self._gateway.bootstrap
        await_api_versions(self.bootstrap)
        self.start_s = time.monotonic() - begin
        self.pid = self._gateway.pid

    def log_text(self) -> str:
        """Return what the gateway logged so far."""
        return self._gateway.stderr_text()

    def stop(self) -> None:
        self._gateway.stop(STOP_TIMEOUT_S)

    def kill(self) -> None:
        self._gateway.kill()


class HeaderOnlyBroker(SeqgateBroker):
    """Seqgate with topics that check only the header and the CRC of a batch."""

    name = "header only"
    title = "Seqgate with message.deep.validation=false"
    rows = ("jvm-100", "jvm-1000", "jvm-lz4", "zstd-zstd", "one-1", "one-64", "txn-100")

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, {"seqgate.log.deep.validation": "false"})


class ProcessBroker(Broker):
    """A broker that is one process and is killed at the end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Prepare a start: choose the address, and return the command of the process."""

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        command = self.command()
        with (self.directory / "server.log").open("wb") as log:
            begin = time.monotonic()
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
        self.pid = self._process.pid
        self.await_ready(self._process)
        self.start_s = time.monotonic() - begin

    def await_ready(self, process: subprocess.Popen[bytes]) -> None:
        await_api_versions(self.bootstrap, process)

    def stop(self) -> None:
        self.kill()

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


class KafkaBroker(ProcessBroker):
    name = "Kafka"

    def __init__(
        self, directory: Path, settings: dict[str, str] | None = None, protocols: Sequence[str] = ()
    ) -> None:
        super().__init__(directory)
        self.secured = addresses(protocols)
        self._settings = settings or {}

    def command(self) -> list[str]:
        port = free_port()
        self.bootstrap = f"127.0.0.1:{port}"
        properties = self.directory / "server.properties"
        properties.write_text(
            server_properties(self.directory, port, listeners(self.secured), self._settings)
        )
        # A leading "-" would read as an option, so begin with a fixed byte.
        cluster_id = urlsafe_b64encode(bytes([1]) + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        run_tool(
            "kafka-storage", "format", "--standalone", "-t", cluster_id, "-c", properties
        ).expect_success()
        return [*jvm("kafka.Kafka", BROKER_HEAP, "log4j2-broker.yaml"), str(properties)]


class FloorBroker(ProcessBroker):
    """`floor.c`: epoll, read, pwritev and write for each request, without a protocol. It has no topics, and
    takes Produce requests of any.
    """

    name = "the floor"
    title = "the floor, a bare loop in C"
    rows = ("one-1", "one-64", "one-500", "one-1-apart", "one-64-apart", "one-500-apart")

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.file = directory / "requests"
        self._addresses: dict[bool, str] = {}

    def command(self) -> list[str]:
        ports = {is_flushed: free_port() for is_flushed in (False, True)}
        self._addresses = {is_flushed: f"127.0.0.1:{port}" for is_flushed, port in ports.items()}
        self.choose(is_flushed=False)
        program = compile_program(FLOOR_SOURCE, self.directory)
        return [str(program), str(ports[False]), str(ports[True]), str(self.file)]

    def await_ready(self, process: subprocess.Popen[bytes]) -> None:
        host, _, port = self.bootstrap.rpartition(":")
        await_start(lambda: socket.create_connection((host, int(port))).close(), process)

    def choose(self, *, is_flushed: bool) -> None:
        """Choose the address at which requests are answered after a flush, or the other."""
        self.bootstrap = self._addresses[is_flushed]

    def empty(self) -> None:
        """Free the blocks of the requests so far; later ones are stored behind a hole."""
        os.truncate(self.file, 0)


class KfakeBroker(ProcessBroker):
    """kfake of franz-go with its records in memory; Go builds it."""

    name = "kfake"
    storage = "memory"
    rows = ("jvm-100", "jvm-1000", "one-1", "one-64", "one-500", "fetch", "consume-100", "consume-1000")
    can_flush = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        modules = (KFAKE_SOURCE / "go.mod").read_text()
        (version,) = re.findall(r"^require \S+/kfake v(\S+)", modules, re.MULTILINE)
        self.title = f"kfake {version} with its records in {self.storage}"

    def command(self) -> list[str]:
        program = self.directory / "kfake"
        subprocess.run(
            [go_program(), "build", "-o", str(program), "."],
            cwd=KFAKE_SOURCE,
            check=True,
            timeout=GO_TIMEOUT_S,
        )
        port = free_port()
        self.bootstrap = f"127.0.0.1:{port}"
        return [str(program), str(port)]


class KfakeDiskBroker(KfakeBroker):
    """kfake with its records in files, which it does not flush."""

    storage = "files"

    def command(self) -> list[str]:
        return [*super().command(), str(self.directory / "data")]


class NisshiBroker(ProcessBroker):
    """Nisshi, formerly Tansu, with its records in memory. It has no rows of Kafka's client, because it does not
    decode the ApiVersions request, version 5, of the client's second connection.
    """

    name = "Nisshi"
    title = f"Nisshi {NISSHI_VERSION} with its records in memory"
    rows = ("one-1", "one-64", "one-500", "fetch")
    can_flush = False

    def command(self) -> list[str]:
        address = f"127.0.0.1:{free_port()}"
        self.bootstrap = address
        urls = ["--listener-url", f"tcp://{address}", "--advertised-listener-url", f"tcp://{address}"]
        return [str(_nisshi()), "broker", *urls, "--storage-engine", "memory://nisshi/", "--silent"]


def _nisshi() -> Path:
    """Return the program; build it unless that was done before."""
    place = CACHE / f"nisshi-{NISSHI_VERSION}"
    program = place / "bin" / "nisshi"
    if not program.is_file():
        print(f"Building Nisshi {NISSHI_VERSION} …", file=sys.stderr, flush=True)
        what = ["nisshi", "--version", NISSHI_VERSION, "--locked", "--no-default-features"]
        command = ["cargo", "install", *what, "--features", "dynostore", "--root", str(place)]
        subprocess.run(command, check=True, timeout=CARGO_TIMEOUT_S)
    return program


BESIDE: Final[Mapping[str, type[ProcessBroker | HeaderOnlyBroker]]] = {
    "floor": FloorBroker,
    "header-only": HeaderOnlyBroker,
    "kfake": KfakeBroker,
    "kfake-disk": KfakeDiskBroker,
    "nisshi": NisshiBroker,
}
"""The brokers that can take the place of Kafka, by the word that chooses them."""
