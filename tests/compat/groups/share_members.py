"""Kafka's console share consumers as processes, and the records that they have printed."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from confluent_kafka import Producer

from tests.compat.groups.members import DEADLINE_S, await_that
from tests.support.kafka_tools import TOOL_CLASSES, java_command
from tests.support.wire import Wire

SHARE_CONSUMER = "kafka-console-share-consumer"


class ShareMember:
    """A console share consumer that acknowledges printed records in the given mode."""

    def __init__(
        self, bootstrap: str, topic: str, group: str, stderr: Path, *options: str, is_stuck: bool = False
    ) -> None:
        self.values: list[str] = []
        self.printed_at_ms: list[int] = []
        """When each value was printed, or shortly after."""
        self._goes_on = threading.Event()
        if not is_stuck:
            self._goes_on.set()
        self._stderr = stderr
        command = java_command(TOOL_CLASSES[SHARE_CONSUMER])
        command += ["--bootstrap-server", bootstrap, "--topic", topic, "--group", group, *options]
        with stderr.open("ab") as sink:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=sink, text=True
            )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.values.append(line.strip())
            self.printed_at_ms.append(time.time_ns() // 1_000_000)
            self._goes_on.wait()

    def end(self) -> None:
        """Let the consumer acknowledge its records and leave."""
        self._process.terminate()
        code = self._process.wait(DEADLINE_S)
        self._reader.join()
        assert code == 143, f"ended with {code}:\n{self._stderr.read_text()[-4000:]}"

    def kill(self) -> None:
        """Kill the consumer with SIGKILL, so that it can't leave the group."""
        self._process.kill()
        self._process.wait()
        self._goes_on.set()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


class ShareReaders:
    """Members of one share group of one topic."""

    def __init__(self, bootstrap: str, topic: str, directory: Path) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.group = f"share-of-{topic}"
        self.started: list[ShareMember] = []
        self._directory = directory
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})

    def start(self, *options: str, is_stuck: bool = False) -> ShareMember:
        """Start another member. A stuck member prints more than anyone reads, and never acknowledges it."""
        stderr = self._directory / f"share-{len(self.started)}.stderr"
        member = ShareMember(self.bootstrap, self.topic, self.group, stderr, *options, is_stuck=is_stuck)
        self.started.append(member)
        return member

    def produce(self, values: Iterable[str], headers: Mapping[str, bytes] | None = None) -> None:
        """Send the values, each in a batch of its own, and wait until they are acknowledged."""
        refused: list[object] = []
        for value in values:
            self._producer.produce(
                self.topic,
                value,
                headers=dict(headers or {}),
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )
            assert self._producer.flush(DEADLINE_S) == 0
        assert not refused

    @property
    def delivered(self) -> Counter[str]:
        """Return how often each value was delivered, to any member."""
        return Counter(value for member in self.started for value in member.values)

    def await_delivered(self, values: Iterable[str]) -> None:
        wanted = set(values)
        await_that(lambda: self.delivered.keys() >= wanted, f"all {len(wanted)} are delivered")

    def offset_and_lag(self) -> tuple[int, int]:
        """Return the stored start offset and lag. DescribeShareGroupOffsets tells them; the tool takes a
        second to start."""
        with Wire(self.bootstrap) as wire:
            groups = [{"group_id": self.group, "topics": None}]
            (group,) = wire.call("describe_share_group_offsets", 1, groups=groups).fields["groups"]
        told = [
            (partition["start_offset"], partition["lag"])
            for topic in group["topics"]
            for partition in topic["partitions"]
        ]
        return told[0] if told else (-1, -1)

    def await_lag(self, lag: int) -> None:
        """Wait until all records but these are acknowledged and persisted.

        A gateway that is killed earlier rightly delivers what is printed but not acknowledged once more.
        """
        await_that(lambda: self.offset_and_lag()[1] == lag, f"the lag is {lag}")


@contextlib.contextmanager
def share_readers(bootstrap: str, topic: str, directory: Path) -> Iterator[ShareReaders]:
    readers = ShareReaders(bootstrap, topic, directory)
    try:
        yield readers
    finally:
        for member in readers.started:
            member.kill()
