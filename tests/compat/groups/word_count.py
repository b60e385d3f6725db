"""Instances of the Kafka Streams application WordCount.java: their input and their counts."""

from __future__ import annotations

import contextlib
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.compat.groups.members import DEADLINE_S, await_that
from tests.compat.topics import fresh_topic
from tests.support.kafka_tools import java_command
from tests.support.setup_peers import streams_libs
from tests.support.wire import Plain, Wire

SOURCE = Path(__file__).with_name("WordCount.java")
PARTITIONS = 4
QUIET = {"log_level": 0}
REBALANCE_DEADLINE_S = 240.0
ENDED_BY_SIGTERM = 143
CLASSIC = "classic"
STREAMS = "streams"


class Instance:
    """One process of the application."""

    def __init__(self, name: str, arguments: list[str], stderr: Path) -> None:
        self.name = name
        self._stderr = stderr
        command = [*java_command(str(SOURCE), libs=streams_libs()), *arguments]
        with stderr.open("wb") as sink:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=sink
            )

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def leave(self) -> None:
        """Stop the process with SIGTERM: it commits its progress, leaves the group and exits."""
        self._process.terminate()
        code = self._process.wait(DEADLINE_S)
        assert code == ENDED_BY_SIGTERM, f"{self.name} ended with {code}\n{self.stderr_text()}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stderr_text(self) -> str:
        return self._stderr.read_text(errors="replace")[-4000:]


def active_partitions(group: Plain) -> dict[str, list[tuple[str, int]]]:
    """Return the partitions of each member's active tasks by its client id; empty unless the group is stable."""
    if group["group_state"] != "Stable":
        return {}
    topics = {
        row["subtopology_id"]: [
            *row["source_topics"],
            *(topic["name"] for topic in row["repartition_source_topics"]),
        ]
        for row in group["topology"]["subtopologies"]
    }
    return {
        member["client_id"]: [
            (topic, partition)
            for row in member["assignment"]["active_tasks"]
            for topic in topics[row["subtopology_id"]]
            for partition in row["partitions"]
        ]
        for member in group["members"]
    }


class WordCount:
    """The application with its topics, group and instances. `expected` has the true count of every word of
    the input."""

    def __init__(
        self, bootstrap: str, directory: Path, *, changelog: str, guarantee: str, protocol: str
    ) -> None:
        self.bootstrap = bootstrap
        any_gateway = bootstrap.partition(",")[0]
        self.input = fresh_topic(any_gateway, "lines", partitions=PARTITIONS)
        self.output = fresh_topic(any_gateway, "counts", partitions=PARTITIONS)
        self.application = f"word-count-of-{self.input}"
        self.repartition = f"{self.application}-words-repartition"
        self.changelog = f"{self.application}-counts-changelog"
        self.expected: Counter[str] = Counter()
        self.updates: Counter[str] = Counter()
        """How many counts were written for each word: one per time that the application read the word."""
        self.counts: dict[str, int] = {}
        """The last count written for each word."""
        self._settled = (0, 0)
        """How many words were sent, and how many counts were written, when all was committed for the last
        time.
        """
        self._changelog = changelog
        self._guarantee = guarantee
        self._protocol = protocol
        self._directory = directory
        self._instances: list[Instance] = []
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True, **QUIET}
        )
        self._reader = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "nobody's",
                "isolation.level": "read_committed",
                **QUIET,
            }
        )
        self._reader.assign(
            [TopicPartition(self.output, part, OFFSET_BEGINNING) for part in range(PARTITIONS)]
        )
        self._admin: AdminClient
        self.connect_anew()

    def connect_anew(self) -> None:
        """Create a new admin client. After a restart of the gateway, the old admin client of librdkafka may
        keep using a dead connection."""
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})

    def start(self, name: str, instance_id: str | None = None) -> Instance:
        """Start an instance, as a static member if it has an instance id."""
        arguments = [self.bootstrap, self.input, self.output, self.application, name]
        arguments += [self._changelog, self._guarantee, self._protocol]
        arguments += [] if instance_id is None else [instance_id]
        instance = Instance(name, arguments, self._directory / f"{name}.stderr")
        self._instances.append(instance)
        return instance

    def end(self) -> None:
        for instance in self._instances:
            instance.kill()
        self._reader.close()

    def produce(self, lines: Iterable[str]) -> None:
        """Send the lines to all partitions in turn, and wait until they are acknowledged."""

        def delivered(error: object, message: object) -> None:
            assert error is None, error

        for number, line in enumerate(lines):
            self.expected.update(line.split(" "))
            self._producer.produce(
                self.input, line.encode(), partition=number % PARTITIONS, on_delivery=delivered
            )
            self._producer.poll(0)
        assert self._producer.flush(DEADLINE_S) == 0

    def read_output(self) -> None:
        """Read the counts written since the last call."""
        while messages := self._reader.consume(1_000, timeout=0.2):
            self._take_in(messages)

    def _take_in(self, messages: list[Message]) -> None:
        for message in messages:
            word, count = message.key(), message.value()
            if message.error() is None and word is not None and count is not None:
                self.updates[word.decode()] += 1
                self.counts[word.decode()] = int.from_bytes(count, "big")

    def await_update(self) -> None:
        """Wait until a count was written since the last call; return without waiting for all of them."""
        before = self.updates.total()

        def has_gone_on() -> bool:
            self._take_in(self._reader.consume(1, timeout=0.1))
            return self.updates.total() > before

        self._await(has_gone_on, "another update")

    @property
    def backlog(self) -> int:
        """Return how many of the words sent since all was committed have no written count yet.

        Counts written again after a kill before that do not stand for new words.
        """
        sent, told = self._settled
        return (self.expected.total() - sent) - (self._written_counts() - told)

    def _written_counts(self) -> int:
        return sum(self.offsets(self.output, part)[1] for part in range(PARTITIONS))

    def await_every_word(self, *, told_last: bool = True) -> None:
        """Wait until each word was counted at least as often as it was sent.

        With `told_last` the last written count must reach that number too, which requires counts that outlive
        their instance.
        """

        def is_counted() -> bool:
            self.read_output()
            read = self.updates >= self.expected
            return read and (not told_last or Counter(self.counts) >= self.expected)

        self._await(is_counted, "every word is counted", timeout_s=REBALANCE_DEADLINE_S)
        assert self.updates.keys() == self.expected.keys()

    def await_all_committed(self) -> None:
        """Wait until the application has committed the end of all its input, and so has written every count."""

        def is_committed() -> bool:
            committed = self._committed_offsets()
            ends = {place: self.offsets(*place)[1] for place in self._places()}
            return all(committed.get(place, 0) == end for place, end in ends.items())

        self._await(is_committed, "all is committed")
        self.read_output()
        self._settled = (self.expected.total(), self._written_counts())

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the log start offset and the high watermark."""
        return self._reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=DEADLINE_S)

    def _places(self) -> list[tuple[str, int]]:
        return [(topic, part) for topic in (self.input, self.repartition) for part in range(PARTITIONS)]

    def _committed_offsets(self) -> dict[tuple[str, int], int]:
        asked = ConsumerGroupTopicPartitions(self.application)
        futures = self._admin.list_consumer_group_offsets([asked], request_timeout=20)
        answer = futures[self.application].result(20)
        return {(place.topic, place.partition): place.offset for place in answer.topic_partitions}

    def await_purged(self) -> None:
        """Wait until the application has deleted the processed records of the repartition topic
        (DeleteRecords)."""

        def is_purged() -> bool:
            return all(self.offsets(self.repartition, part)[0] for part in range(PARTITIONS))

        self._await(is_purged, "the repartition topic is purged")

    # --- what the coordinator reports

    def _assignments(self) -> dict[str, list[tuple[str, int]]]:
        """Return the partitions of each instance's only thread by its client id; empty unless the group is
        stable."""
        if self._protocol == STREAMS:
            return active_partitions(self.describe_streams_group())
        try:
            described = self._admin.describe_consumer_groups([self.application], request_timeout=10)
            found = described[self.application].result()
        except KafkaException:
            return {}
        if found.state != ConsumerGroupState.STABLE:
            return {}
        return {
            member.client_id: [(place.topic, place.partition) for place in member.assignment.topic_partitions]
            for member in found.members
        }

    def describe_streams_group(self) -> Plain:
        """Return what the coordinator reports of the application's streams group."""
        with Wire(self.bootstrap) as wire:
            answer = wire.call("streams_group_describe", 0, group_ids=[self.application]).fields
        group: Plain = answer["groups"][0]
        return group

    def described_topology(self) -> Plain | None:
        """Return the description of the topology that the coordinator has; None while it has none."""
        asked = {"group_ids": [self.application], "include_topology_description": True}
        with Wire(self.bootstrap) as wire:
            group = wire.call("streams_group_describe", 1, **asked).fields["groups"][0]
        described: Plain | None = group["topology_description"]
        assert group["topology_description_status"] == (1 if described is None else 3)
        return described

    def active_tasks(self) -> dict[str, Plain]:
        """Return the active tasks of each member by its instance id."""
        members = self.describe_streams_group()["members"]
        return {member["instance_id"]: member["assignment"]["active_tasks"] for member in members}

    def standby_tasks(self) -> dict[str, int]:
        """Return how many tasks each instance's only thread stands by for, by its client id."""
        return {
            member["client_id"]: sum(len(row["partitions"]) for row in member["assignment"]["standby_tasks"])
            for member in self.describe_streams_group()["members"]
        }

    def await_shared(self, *instances: Instance) -> None:
        """Wait until exactly these instances share the partitions of both topics, and each has some."""
        names = {f"{instance.name}-StreamThread-1-consumer" for instance in instances}

        def are_shared() -> bool:
            assert all(instance.runs for instance in instances), self.account()
            held = self._assignments()
            places = sorted(place for part in held.values() for place in part)
            return held.keys() == names and all(held.values()) and places == sorted(self._places())

        self._await(are_shared, f"{names} share all", timeout_s=REBALANCE_DEADLINE_S)

    def _await(self, holds: Callable[[], bool], what: str, *, timeout_s: float = DEADLINE_S) -> None:
        try:
            await_that(holds, what, timeout_s=timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.account()}") from None

    def account(self) -> str:
        """Return the errors and warnings of all instances."""
        return "\n".join(f"{instance.name}: {instance.stderr_text()}" for instance in self._instances)


@contextlib.contextmanager
def word_count(
    bootstrap: str,
    directory: Path,
    *,
    changelog: str,
    guarantee: str = "at_least_once",
    protocol: str = CLASSIC,
) -> Iterator[WordCount]:
    application = WordCount(bootstrap, directory, changelog=changelog, guarantee=guarantee, protocol=protocol)
    try:
        yield application
    finally:
        application.end()
