"""A gateway with several workers in processes of its own, and loads whose acknowledgements are checked."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from tests.support.gateway_process import GatewayProcess, kept_port
from tests.support.read_back import read_back

TOPIC = "lines"
PARTITIONS = 6
DEADLINE_S = 60.0
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "2",
}


def consecutive_ports(count: int) -> int:
    """Reserve `count` ports in a row; return the first."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first = int(probe.getsockname()[1])
        with contextlib.suppress(OSError, OverflowError):
            for port in range(first, first + count):
                kept_port(port)
            return first


def workers(data_dir: Path, count: int, port: int, settings: dict[str, str] | None = None) -> GatewayProcess:
    return GatewayProcess(
        data_dir, settings={**QUICK, **(settings or {}), "seqgate.workers": str(count)}, port=port
    )


def pids(gateway: GatewayProcess) -> list[int]:
    """Return the pids of the workers that the gateway has started first."""
    return [int(pid) for pid in re.findall(r"worker \d+ (\d+)", gateway.ready_line)]


def present_pid(gateway: GatewayProcess, number: int) -> int:
    """Return the pid of the process that a worker is now, or was last."""
    again = re.findall(rf"worker {number} serves again, pid (\d+)", gateway.stderr_text())
    return int(again[-1]) if again else pids(gateway)[number - 1]


def seqgate(data_dir: Path, *words: str, code: int = 0) -> str:
    """Run a command on a data directory, which must end with this code; return what it prints."""
    command = [sys.executable, "-m", "seqgate", *words, "--data-dir", str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def listed(data_dir: Path, *words: str) -> Any:
    """Return what a command tells as JSON."""
    return json.loads(seqgate(data_dir, *words, "--json"))


def await_that(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


def create_topic(bootstrap: str, name: str = TOPIC, partitions: int = PARTITIONS) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(name, partitions, 1)])
    admin.close()


class Load(threading.Thread):
    """An idempotent producer that sends numbers to every partition until it is told to stop."""

    def __init__(self, bootstrap: str, **login: str) -> None:
        """Take further settings of the client, by names with `_` for `.`."""
        super().__init__()
        self.acknowledged: dict[int, list[int]] = defaultdict(list)
        self.errors: list[str] = []
        self.acknowledged_at_s: dict[int, float] = {}
        self.longest_gap_s: dict[int, float] = defaultdict(float)
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                **{name.replace("_", "."): value for name, value in login.items()},
            }
        )

    def run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            for partition in range(PARTITIONS):
                self._send(partition, number)
            number += 1
            self._producer.poll(0.002)
        assert self._producer.flush(DEADLINE_S) == 0

    def _send(self, partition: int, number: int) -> None:
        def answered(error: object, _: object) -> None:
            if error is not None:
                self.errors.append(str(error))
                return
            now_s = time.monotonic()
            gap_s = now_s - self.acknowledged_at_s.get(partition, now_s)
            self.longest_gap_s[partition] = max(gap_s, self.longest_gap_s[partition])
            self.acknowledged_at_s[partition] = now_s
            self.acknowledged[partition].append(number)

        self._producer.produce(TOPIC, str(number).encode(), partition=partition, on_delivery=answered)

    def await_progress(self, beyond: int = 20) -> None:
        """Wait until every partition has acknowledged further records."""
        before = {partition: len(self.acknowledged[partition]) for partition in range(PARTITIONS)}
        await_that(
            lambda: all(len(self.acknowledged[p]) >= before[p] + beyond for p in range(PARTITIONS)),
            f"no progress: {before}, {self.errors[:3]}",
        )

    def stop(self) -> None:
        self._stopping.set()
        self.join(DEADLINE_S)
        assert not self.is_alive()


@contextlib.contextmanager
def load(bootstrap: str, **login: str) -> Iterator[Load]:
    running = Load(bootstrap, **login)
    running.start()
    try:
        yield running
    finally:
        running.stop()


def stored(bootstrap: str, name: str = TOPIC, partitions: int = PARTITIONS) -> dict[int, list[bytes]]:
    """Return the records of every partition that has some, in order."""
    rows_of = read_back(bootstrap, name, partitions)
    return {partition: [value for _, value in rows] for partition, rows in rows_of.items() if rows}


def assert_all_there(acknowledged: dict[int, list[int]], found: dict[int, list[bytes]]) -> None:
    """Every acknowledged record is there once, and each partition is in the order in which it was sent."""
    for partition, numbers in acknowledged.items():
        there = [int(value) for value in found.get(partition, [])]
        assert not [number for number, count in Counter(there).items() if count > 1], "doubled"
        assert set(numbers) <= set(there), "lost"
        assert there == sorted(there), "reordered"


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    await_that(lambda: not is_running(pid), f"{pid} is still there")
