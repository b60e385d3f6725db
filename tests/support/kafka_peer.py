"""A real Apache Kafka node for the tests to compare with: one process, broker and KRaft controller in one."""

from __future__ import annotations

import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.gateway_process import free_port
from tests.support.kafka_tools import java_command, run_tool
from tests.support.setup_peers import POMS
from tests.support.wire import Wire

START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 120.0
READY = "Kafka Server started"
RECEIVER = POMS / "TelemetryReceiver.java"
WITH_RECEIVER = {"metric.reporters": RECEIVER.stem}
"""The plugin without which Kafka does not offer the APIs of client telemetry, and the setting that loads it.
"""

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}{more_listeners}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}{more_listeners}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
log.dirs={directory}/data
auto.create.topics.enable=true
num.partitions=1
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=200
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
group.consumer.assignment.interval.ms=0
group.consumer.min.assignment.interval.ms=0
group.share.assignment.interval.ms=0
group.streams.initial.rebalance.delay.ms=0
group.streams.assignment.interval.ms=0
group.streams.min.assignment.interval.ms=0
group.streams.topology.description.plugin.class=org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin
group.streams.assignor.offload.enable=false
log.initial.task.delay.ms=86400000
"""


def server_properties(
    directory: Path, port: int, also_listen: Sequence[str] = (), properties: Mapping[str, str] | None = None
) -> str:
    """Return the text of a server.properties with `also_listen` as further listeners, such as
    SSL://127.0.0.1:9093.
    """
    text = PROPERTIES.format(
        port=port,
        controller_port=free_port(),
        directory=directory,
        more_listeners="".join(f",{listener}" for listener in also_listen),
    )
    # of two lines for one property, Kafka takes the second
    return text + "".join(f"{name}={value}\n" for name, value in (properties or {}).items())


class KafkaPeer:
    """A Kafka node that runs while its context is entered; all its files lie below `directory`."""

    def __init__(
        self,
        directory: Path,
        *,
        properties: dict[str, str] | None = None,
        heap: str = "512m",
        also_listen: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.port = free_port()
        self.log_path = directory / "server.log"
        self._properties = properties or {}
        self._heap = heap
        self._also_listen = tuple(also_listen)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        properties.write_text(
            server_properties(self.directory, self.port, self._also_listen, WITH_RECEIVER | self._properties)
        )
        # A leading "-" would read as an option, so begin with a fixed byte.
        cluster_id = urlsafe_b64encode(bytes([1]) + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        run_tool(
            "kafka-storage", "format", "--standalone", "-t", cluster_id, "-c", properties
        ).expect_success()
        command = java_command("kafka.Kafka", heap=self._heap, logging="log4j2-broker.yaml", plugin=RECEIVER)
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, str(properties)], stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
        self._await_ready(time.monotonic() + START_TIMEOUT_S)
        return self

    def _await_ready(self, deadline: float) -> None:
        assert self._process is not None
        while READY not in self.log_text():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                self._process.wait()
                raise AssertionError(f"Apache Kafka did not start:\n{self.log_text()[-4000:]}")
            time.sleep(0.05)
        self._await_producer_ids(deadline)

    def _await_producer_ids(self, deadline: float) -> None:
        """Wait for the first block of producer ids from the controller; until then clients get a retriable
        error.
        """
        with Wire(self.bootstrap) as wire:
            while wire.call("init_producer_id", 4, transaction_timeout=60_000).fields["error_code"] != 0:
                assert time.monotonic() < deadline, "Apache Kafka hands out no producer ids"
                time.sleep(0.05)

    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def stop(self) -> None:
        """Stop with SIGTERM, then with SIGKILL; the node's data is not needed afterwards."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
