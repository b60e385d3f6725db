"""Members of consumer groups as processes, their reports, and the coordinator's view of a group."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.support.gateway_process import REPOSITORY
from tests.support.kafka_tools import TOOL_CLASSES, java_command

Place = tuple[int, int]
"""A record: (partition, offset)."""
CONSOLE_CONSUMER = "kafka-console-consumer"
CONFLUENT = "confluent-kafka"
LIBRARIES = ("kafka-python", "aiokafka", CONFLUENT)
CLIENTS = (*LIBRARIES, CONSOLE_CONSUMER)
SESSION_TIMEOUT_MS = 10_000
DEADLINE_S = 120.0

_news = threading.Condition()


def await_that(holds: Callable[[], Any], what: str, *, timeout_s: float = DEADLINE_S) -> None:
    """Wait until the condition holds. Check it after each report of a member, and at regular intervals."""
    deadline_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline_s, f"after {timeout_s} s still not: {what}"
        with _news:
            _news.wait(0.05)


class GroupMember:
    """One client process that reads a topic as a member of a group."""

    def __init__(
        self,
        client: str,
        bootstrap: str,
        topic: str,
        group: str,
        name: str,
        *,
        stderr: Path,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        **options: str,
    ) -> None:
        self.client = client
        self.name = name
        self.events: list[tuple[str, Any]] = []
        settings = {"bootstrap": bootstrap, "topic": topic, "group": group, "name": name}
        settings |= {"session_timeout_ms": session_timeout_ms, **options}  # type: ignore[dict-item]
        if client == CONSOLE_CONSUMER:
            command = _console_command(settings)
        else:
            command = [sys.executable, "-m", "tests.compat.groups.member", client, json.dumps(settings)]
        self._stderr = stderr
        with stderr.open("ab") as sink:
            self._process = subprocess.Popen(
                command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, text=True
            )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                break  # the member was killed in the middle of the line
            if self.client == CONSOLE_CONSUMER:
                event, content = "records", [_console_place(line)]
            else:
                event, content = json.loads(line)
            with _news:
                self.events.append((event, content))
                _news.notify_all()

    def told(self, event: str) -> list[Any]:
        return [content for name, content in list(self.events) if name == event]

    def _places(self, event: str) -> list[Place]:
        return [(partition, offset) for told in self.told(event) for partition, offset in told]

    @property
    def records(self) -> list[Place]:
        """Return every record delivered to the member, in order."""
        return self._places("records")

    @property
    def committed(self) -> list[Place]:
        """Return (partition, offset) of every acknowledged commit, in order."""
        return self._places("committed")

    @property
    def changes(self) -> list[tuple[str, Any]]:
        """Return the partitions that the member was given and that it lost."""
        return [event for event in list(self.events) if event[0] in {"assigned", "revoked", "lost"}]

    def leave(self) -> None:
        """Close the member's consumer, and wait for the end of the process."""
        self.begin_leaving()
        self.await_end()

    def begin_leaving(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self.client == CONSOLE_CONSUMER:
            self._process.terminate()

    def await_end(self) -> None:
        code = self._process.wait(DEADLINE_S)
        self._reader.join()
        expected = 143 if self.client == CONSOLE_CONSUMER else 0  # the exit code of a JVM that SIGTERM ended
        assert code == expected, f"{self.name} ended with {code}:\n{self._stderr.read_text()[-4000:]}"

    def kill(self) -> None:
        """Kill the member with SIGKILL, so that it can't leave the group."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()


def _console_command(settings: dict[str, Any]) -> list[str]:
    properties = {
        "group.protocol": settings.get("protocol", "classic"),
        "client.id": settings["name"],
        "auto.commit.interval.ms": 200,
    }
    if properties["group.protocol"] == "classic":
        assignor = settings.get("assignor", "RangeAssignor")
        properties |= {
            "session.timeout.ms": settings["session_timeout_ms"],
            "heartbeat.interval.ms": 300,
            "partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{assignor}",
        }
    if "regex" in settings:
        properties["metadata.max.age.ms"] = 1_000  # look for new matching topics every second
    command = java_command(TOOL_CLASSES[CONSOLE_CONSUMER])
    wanted = ["--include", settings["regex"]] if "regex" in settings else ["--topic", settings["topic"]]
    command += ["--bootstrap-server", settings["bootstrap"], *wanted]
    command += ["--group", settings["group"], "--from-beginning"]
    for name, value in properties.items():
        command += ["--command-property", f"{name}={value}"]
    for shown in ("print.partition=true", "print.offset=true", "print.value=false"):
        command += ["--formatter-property", shown]
    return command


def _console_place(line: str) -> Place:
    """Parse `Partition:3 Offset:17`."""
    fields = dict(field.split(":") for field in line.split())
    return int(fields["Partition"]), int(fields["Offset"])


class Members:
    """Starts members of one group, and ends those still running when the test ends."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, directory: Path) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.group = f"group-of-{topic}"
        self.partitions = partitions
        self.sent: set[Place] = set()
        self._directory = directory
        self.started: list[GroupMember] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
        self._admin: AdminClient
        self.connect_anew()

    def start(self, client: str, name: str, **options: Any) -> GroupMember:
        member = GroupMember(
            client,
            self.bootstrap,
            self.topic,
            self.group,
            name,
            stderr=self._directory / f"{name}.stderr",
            **options,
        )
        self.started.append(member)
        return member

    def connect_anew(self) -> None:
        """Create a new admin client. After a restart of the gateway librdkafka's may keep using a dead
        connection."""
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def end(self) -> None:
        for member in self.started:
            member.kill()

    # --- records

    def produce(self, per_partition: int) -> None:
        """Send `count` records to each partition, and wait until they are acknowledged."""

        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            self.sent.add((message.partition(), message.offset()))

        for number in range(per_partition):
            for partition in range(self.partitions):
                self._producer.produce(
                    self.topic, f"{number}".encode(), partition=partition, on_delivery=delivered
                )
        assert self._producer.flush(DEADLINE_S) == 0

    def deliver(self, per_partition: int) -> None:
        """Send `per_partition` records to each partition, and wait until the members have reported them."""
        self.produce(per_partition)
        self.await_all_delivered()

    @property
    def delivered(self) -> Counter[Place]:
        """Return how often each record was delivered, to any member."""
        return Counter(place for member in self.started for place in member.records)

    def await_all_delivered(self) -> None:
        """Wait until every record that was sent was delivered."""
        await_that(
            lambda: self.delivered.keys() >= self.sent,
            f"all {len(self.sent)} records are delivered\n{self.account()}",
        )
        assert self.delivered.keys() == self.sent

    def account(self) -> str:
        return "\n".join(f"{member.name}: {member.events[-20:]}" for member in self.started)

    # --- what the coordinator reports

    def _description(self) -> Any:
        """Return the coordinator's description; None while it can't answer."""
        answer = self._admin.describe_consumer_groups([self.group], request_timeout=10)[self.group]
        try:
            return answer.result()
        except KafkaException:
            return None

    def assignments(self) -> dict[str, set[int]]:
        """Return the partitions of each member by its client id; empty unless the group is stable."""
        found = self._description()
        if found is None or found.state != ConsumerGroupState.STABLE:
            return {}
        return {
            member.client_id: {place.partition for place in member.assignment.topic_partitions}
            for member in found.members
        }

    def partition_counts(self) -> dict[str, int]:
        """Return how many partitions each member has, by its client id, in whatever state the group is."""
        found = self._description()
        members = [] if found is None else found.members
        return {member.client_id: len(member.assignment.topic_partitions) for member in members}

    def await_shared(self, *members: GroupMember) -> dict[str, set[int]]:
        """Wait until exactly these members share all partitions, each with a part; return the partitions of
        each.
        """
        names = {member.name for member in members}
        seen: dict[str, set[int]] = {}

        def are_shared() -> bool:
            seen.clear()
            seen.update(self.assignments())
            held = [partition for part in seen.values() for partition in part]
            return (
                seen.keys() == names and all(seen.values()) and sorted(held) == list(range(self.partitions))
            )

        await_that(are_shared, f"{names} share the partitions\n{self.account()}")
        return dict(seen)

    def committed_offsets(self) -> dict[int, int]:
        """Return the offsets that the coordinator reports as committed."""
        asked = ConsumerGroupTopicPartitions(self.group)
        answer = self._admin.list_consumer_group_offsets([asked], request_timeout=20)[self.group].result(20)
        return {place.partition: place.offset for place in answer.topic_partitions}

    def end_offsets(self) -> dict[int, int]:
        ends: dict[int, int] = {}
        for partition, offset in self.sent:
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        return ends


@contextlib.contextmanager
def members_of(bootstrap: str, topic: str, partitions: int, directory: Path) -> Iterator[Members]:
    members = Members(bootstrap, topic, partitions, directory)
    try:
        yield members
    finally:
        members.end()


def once_each(places: Iterable[Place], deliveries: Counter[Place]) -> bool:
    return all(deliveries[place] == 1 for place in places)
