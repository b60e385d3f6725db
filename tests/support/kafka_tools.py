"""Runs Apache Kafka's own command line tools against any bootstrap address."""

from __future__ import annotations

import atexit
import os
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path

from tests.support.setup_peers import CACHE, POMS, class_archive, kafka_libs

TOOL_TIMEOUT_S = COMPILE_TIMEOUT_S = 180.0

TOOL_CLASSES = {
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "org.apache.kafka.tools.ConfigCommand",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
}
KEEP_STATE = frozenset(
    {
        "kafka-console-consumer",
        "kafka-console-producer",
        "kafka-console-share-consumer",
        "kafka-consumer-perf-test",
        "kafka-producer-perf-test",
    }
)
"""Tools that count in static fields, or run until they are ended. Each run has a JVM of its own."""
TOOL_HOST = POMS / "ToolHost.java"


@dataclass(frozen=True)
class ToolRun:
    """The result of a run of a tool: its exit code and both outputs."""

    command: str
    exit_code: int
    stdout: str
    stderr: str

    def expect_success(self) -> ToolRun:
        """Return the result; fail the test with both outputs if the exit code is not 0."""
        assert self.exit_code == 0, (
            f"{self.command}: exit code {self.exit_code}\n{self.stdout}\n{self.stderr}"
        )
        return self


def java_command(
    class_name: str,
    *,
    heap: str = "256m",
    logging: str = "log4j2-tools.yaml",
    libs: Path | None = None,
    first_jars: Path | None = None,
    plugin: Path | None = None,
) -> list[str]:
    """Return the command that starts a Java class, or a Java source file, with Kafka's jars; the caller adds
    arguments.

    A jar that is in both `first_jars` and `libs` is taken from `first_jars`. `plugin` is a Java source file
    with a class that the started class loads by its name.

    Fails the test with a sentence when Java or the jars are missing; `make test` prepares both.
    """
    java = shutil.which("java")
    assert java is not None, "Kafka's tools need Java 17, and there is no java on the PATH"
    libs = libs or kafka_libs()
    assert any(libs.glob("kafka-clients-*.jar")), (
        f"Apache Kafka's jars are missing in {libs}: run `make test`"
    )
    # Tools run for about a second: the quick compiler and the serial collector start fastest.
    start_fast = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    configuration = f"-Dlog4j2.configurationFile={POMS / logging}"
    class_path = f"{libs.resolve()}/*"
    if first_jars is not None:
        class_path = f"{first_jars}/*{os.pathsep}{class_path}"
    elif libs == kafka_libs() and class_archive().is_file():
        # Java ignores a class archive that does not fit this class path; its warning would appear in the
        # tool's output.
        start_fast += [f"-XX:SharedArchiveFile={class_archive()}", "-Xlog:disable"]
    if class_name.endswith(".java"):
        source = Path(class_name)
        # after the jars, because the class archive requires them first
        class_path, class_name = f"{class_path}{os.pathsep}{_compiled(source, class_path)}", source.stem
    if plugin is not None:
        class_path = f"{class_path}{os.pathsep}{_compiled(plugin, class_path)}"
    return [java, f"-Xmx{heap}", *start_fast, configuration, "-cp", class_path, class_name]


def _compiled(source: Path, class_path: str) -> Path:
    """Return the directory with the classes of a source file, compiled once for all test runs."""
    digest = sha256(class_path.encode() + source.read_bytes()).hexdigest()[:16]
    directory = CACHE / "classes" / f"{source.stem}-{digest}"
    if not directory.is_dir():
        directory.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=directory.parent))
        command = ["javac", "-cp", class_path, "-d", str(made), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
        assert done.returncode == 0, f"{source}: {done.stdout}{done.stderr}"
        try:
            made.rename(directory)
        except OSError:  # another process compiled the source file first
            shutil.rmtree(made)
    return directory


def run_tool(
    name: str, *arguments: str | Path, stdin: str | None = None, timeout_s: float = TOOL_TIMEOUT_S
) -> ToolRun:
    """Run the tool `name` (a name of `TOOL_CLASSES` or a Java class) to its end.

    Kafka's tools run in a JVM that stays, unless they have options for Java in JAVA_TOOL_OPTIONS, which a JVM
    reads at its start.
    """
    shown = " ".join([name, *map(str, arguments)])
    if name in TOOL_CLASSES and name not in KEEP_STATE and "JAVA_TOOL_OPTIONS" not in os.environ:
        words = [TOOL_CLASSES[name], stdin or "", *map(str, arguments)]
        return ToolRun(shown, *_run_in_host(words, shown, timeout_s))
    command = [*java_command(TOOL_CLASSES.get(name, name)), *map(str, arguments)]
    try:
        done = subprocess.run(
            command, input=stdin or "", capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise AssertionError(
            f"{shown}: no end after {timeout_s} s\n{error.stdout!r}\n{error.stderr!r}"
        ) from None
    return ToolRun(shown, done.returncode, done.stdout, done.stderr)


class _ToolHost:
    """A JVM that runs tools one after the other (`ToolHost.java`)."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            java_command(str(TOOL_HOST)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def run(self, words: Sequence[str], timeout_s: float) -> tuple[int, str, str]:
        """Run a tool; return its exit code and both outputs. Raises EOFError where it runs for too long."""
        assert self._process.stdin is not None
        watchdog = threading.Timer(timeout_s, self._process.kill)
        watchdog.start()
        try:
            encoded = [word.encode() for word in words]
            lengths = [struct.pack(">i", len(word)) for word in encoded]
            self._process.stdin.write(struct.pack(">i", len(words)))
            self._process.stdin.writelines(chain.from_iterable(zip(lengths, encoded, strict=True)))
            self._process.stdin.flush()
            code = self._number()
            stdout, stderr = (self._read(self._number()).decode() for _ in range(2))
            return code, stdout, stderr
        finally:
            watchdog.cancel()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _number(self) -> int:
        (number,) = struct.unpack(">i", self._read(4))
        return int(number)

    def _read(self, count: int) -> bytes:
        assert self._process.stdout is not None
        found = self._process.stdout.read(count)
        if len(found) < count:
            raise EOFError
        return found


_idle_hosts: list[_ToolHost] = []


def _run_in_host(words: Sequence[str], shown: str, timeout_s: float) -> tuple[int, str, str]:
    """Run a tool in a JVM that is idle, or else in another one: tools of several threads run at once."""
    try:
        host = _idle_hosts.pop()
    except IndexError:
        host = _ToolHost()
        atexit.register(host.close)
    try:
        done = host.run(words, timeout_s)
    except (EOFError, BrokenPipeError):
        host.close()
        atexit.unregister(host.close)
        raise AssertionError(f"{shown}: no end after {timeout_s} s, or its JVM has ended") from None
    _idle_hosts.append(host)
    return done


def run_program(
    name: str, *arguments: str, stdin: bytes = b"", timeout_s: float = TOOL_TIMEOUT_S
) -> subprocess.CompletedProcess[bytes]:
    """Run an installed program such as kcat; fail the test when the program is missing, runs too long or
    exits non-zero.
    """
    path = shutil.which(name)
    assert path is not None, f"{name} is not installed: run `make test`, which installs it"
    try:
        done = subprocess.run(
            [path, *arguments], input=stdin, capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"{name} {arguments}: no end after {timeout_s} s\n{error.stderr!r}") from None
    assert done.returncode == 0, (
        f"{name} {arguments}: exit code {done.returncode}\n{done.stdout!r}\n{done.stderr!r}"
    )
    return done
