"""A share group in which some records fail for ever, while consumers and the gateway are killed.

The members are unmodified share consumers of Kafka 4.4 (`FailingShareConsumer.java`).
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.compat.groups.members import await_that
from tests.compat.topics import fresh_topic
from tests.support.gateway_process import GatewayProcess
from tests.support.group_configs import READ_FROM_THE_START, set_group_configs
from tests.support.kafka_tools import java_command
from tests.support.wire import Wire
from tests.tiers import in_tiers

SOURCE: Final = Path(__file__).with_name("FailingShareConsumer.java")
CONSUMERS: Final = 3
PARTITIONS: Final = 2
LOCK_MS: Final = 2_000
HANG_MS: Final = LOCK_MS + 500
DELIVERY_LIMIT: Final = 3
DELAYS_MS: Final = (300, 700)
"""After the first delivery, and after each later one."""
LIMIT_S: Final = 1_800.0
SETTINGS: Final = {
    "group.share.min.record.lock.duration.ms": str(LOCK_MS),
    "group.share.record.lock.duration.ms": str(LOCK_MS),
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.session.timeout.ms": "6000",
    "group.share.session.timeout.ms": "6000",
    "group.share.delivery.count.limit": str(DELIVERY_LIMIT),
    "share.coordinator.state.topic.num.partitions": "4",
}
FAILS_EACH: Final = 20
HANGS_EACH: Final = 700
"""HANGS_EACH: the consumer hangs at each record of this number. It releases the other failing records."""
RELEASE: Final = "RELEASE"
ACCEPT: Final = "ACCEPT"


class Delivery(NamedTuple):
    """A delivery of a record to a consumer, which acquired it between the two times."""

    number: int
    since_ms: int
    at_ms: int
    member: FailingMember


class Letter(NamedTuple):
    """A dead letter: the record's value, and what the headers say."""

    value: str
    delivery_count: int
    message: str


class FailingMember:
    """A process with a share consumer, and what it has logged."""

    def __init__(self, bootstrap: str, topic: str, group: str, stderr: Path) -> None:
        self.deliveries: list[tuple[str, Delivery]] = []
        self.confirmed: list[tuple[str, str, int]] = []
        """The kind, value and delivery count of each acknowledgement that the gateway has confirmed."""
        self.refused: list[tuple[str, str, int, str]] = []
        self.was_killed = False
        command = [*java_command(str(SOURCE)), bootstrap, topic, group, str(HANG_MS)]
        with stderr.open("ab") as sink:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=sink, text=True
            )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                break  # killed amid a line
            word, *fields = line.split()
            if word == "got":
                value, number, since_ms, at_ms = fields
                self.deliveries.append((value, Delivery(int(number), int(since_ms), int(at_ms), self)))
            elif word == "confirmed":
                kind, value, count = fields
                self.confirmed.append((kind, value, int(count)))
            else:
                kind, value, count, reason = fields
                self.refused.append((kind, value, int(count), reason))

    def end(self, number: signal.Signals) -> None:
        """End the process; after SIGTERM it leaves the group and logs its last outcomes."""
        self.was_killed = self.was_killed or number is signal.SIGKILL
        self._process.send_signal(number)
        self._process.wait(LIMIT_S)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


class FailingGroup:
    """A share group of three consumers, and its topic."""

    def __init__(self, gateway: GatewayProcess, directory: Path) -> None:
        self.gateway = gateway
        self.topic = fresh_topic(gateway.bootstrap, "failing", partitions=PARTITIONS)
        self.group = f"share-of-{self.topic}"
        self.letter_topic = fresh_topic(
            gateway.bootstrap, f"dlq.{self.topic}", configs={"errors.deadletterqueue.group.enable": "true"}
        )
        self.members: list[FailingMember] = []
        self.killed_at_ms: list[int] = []
        """When the gateway was killed."""
        self._refused: list[object] = []
        self._stderr = directory / "members.stderr"
        self._producer = Producer({"bootstrap.servers": gateway.bootstrap, "enable.idempotence": True})
        configs = {
            "errors.deadletterqueue.topic.name": self.letter_topic,
            "errors.deadletterqueue.copy.record.enable": "true",
            "seqgate.share.retry.backoff.ms": ",".join(map(str, DELAYS_MS)),
        }
        set_group_configs(gateway.bootstrap, self.group, {**READ_FROM_THE_START, **configs})

    def start(self) -> None:
        self.members.append(FailingMember(self.gateway.bootstrap, self.topic, self.group, self._stderr))

    def send(self, numbers: Sequence[int]) -> None:
        """Begin to send these records; the key says how a consumer fails, the value is the number."""
        for number in numbers:
            self._producer.produce(
                self.topic,
                str(number),
                key_of(number),
                number // FAILS_EACH % PARTITIONS,
                on_delivery=self._sent,
            )

    def _sent(self, error: object, _: object) -> None:
        if error is not None:
            self._refused.append(error)

    def flush(self) -> None:
        """Wait until all records that were sent are acknowledged."""
        assert self._producer.flush(LIMIT_S) == 0
        assert not self._refused

    def await_delivery_of(self, numbers: range) -> None:
        """Wait until a consumer has logged one of the newest deliveries for a record of these."""
        members = self.members
        seen = [len(member.deliveries) for member in members]

        def is_there() -> bool:
            for index, member in enumerate(members):
                news = member.deliveries[seen[index] :]
                seen[index] += len(news)
                if any(int(value) in numbers for value, _ in news):
                    return True
            return False

        await_that(is_there, f"a delivery of {numbers}", timeout_s=LIMIT_S)

    def kill_gateway(self) -> None:
        """Kill the gateway, and start it again."""
        self.killed_at_ms.append(time.time_ns() // 1_000_000)
        self.gateway.restart(kill=True)

    def replace(self, number: int) -> None:
        """Kill one of the consumers, and start another."""
        living = [member for member in self.members if not member.was_killed]
        living[number % len(living)].end(signal.SIGKILL)
        self.start()

    def is_done(self, count: int) -> bool:
        """Return whether the stored state of all partitions has all records behind it."""
        with Wire(self.gateway.bootstrap) as wire:
            groups = [{"group_id": self.group, "topics": None}]
            (group,) = wire.call("describe_share_group_offsets", 1, groups=groups).fields["groups"]
        found = [row for topic in group["topics"] for row in topic["partitions"]]
        return bool(sum(max(row["start_offset"], 0) for row in found) == count)

    def letters(self) -> list[Letter]:
        consumer = Consumer({"bootstrap.servers": self.gateway.bootstrap, "group.id": "letters"})
        try:
            _, end_offset = consumer.get_watermark_offsets(TopicPartition(self.letter_topic, 0), timeout=60)
            consumer.assign([TopicPartition(self.letter_topic, 0, 0)])
            found: list[Letter] = []
            while len(found) < end_offset:
                (message,) = consumer.consume(1, 60)
                assert message.error() is None, message.error()
                headers = {name: text.decode() for name, text in message.headers() or []}
                count = int(headers["__dlq.errors.delivery.count"])
                value = (message.value() or b"").decode()
                found.append(Letter(value, count, headers["__dlq.errors.message"]))
        finally:
            consumer.close()
        return found


def key_of(number: int) -> str:
    if number % FAILS_EACH:
        return "accept"
    return "release" if number % HANGS_EACH else "hang"


@contextlib.contextmanager
def failing_group(directory: Path) -> Iterator[FailingGroup]:
    with GatewayProcess(directory / "data", settings=SETTINGS) as gateway:
        group = FailingGroup(gateway, directory)
        try:
            yield group
        finally:
            for member in group.members:
                member.end(signal.SIGKILL)
        assert "Traceback" not in gateway.stderr_text()


class Outcome:
    """The deliveries and acknowledgements of each record, from the logs of all consumers."""

    def __init__(self, members: Sequence[FailingMember]) -> None:
        self.deliveries: dict[str, list[Delivery]] = defaultdict(list)
        self.confirmed: Counter[tuple[str, str, int]] = Counter()
        self.lost: set[tuple[str, int]] = set()
        """The value and count of deliveries whose acknowledgement the gateway may have stored, or not."""
        self.released_by: dict[tuple[str, int], FailingMember] = {}
        for member in members:
            for value, delivery in member.deliveries:
                self.deliveries[value].append(delivery)
            self.confirmed.update(member.confirmed)
            self.released_by |= {
                (value, count): member for kind, value, count in member.confirmed if kind == RELEASE
            }
            self.lost |= {(value, count) for _, value, count, _ in member.refused}
            if member.was_killed:
                told = {(value, count) for _, value, count in member.confirmed}
                self.lost |= {(value, each.number) for value, each in member.deliveries} - told
        self.accepted = {value: count for kind, value, count in self.confirmed if kind == ACCEPT}

    def check(self, count: int, letters: Sequence[Letter]) -> None:
        """Check that each record was accepted once or is dead once."""
        assert set(self.deliveries) == {str(number) for number in range(count)}
        assert max(each.number for found in self.deliveries.values() for each in found) == DELIVERY_LIMIT
        twice = {told: times for told, times in self.confirmed.items() if times > 1}
        assert not twice, "no acknowledgement is confirmed twice for one delivery count"
        assert sum(kind == ACCEPT for kind, _, _ in self.confirmed) == len(self.accepted)
        dead = Counter(letter.value for letter in letters)
        assert max(dead.values()) == 1
        assert dead.keys().isdisjoint(self.accepted)
        assert {str(number) for number in range(0, count, FAILS_EACH)} <= dead.keys()
        assert {(letter.delivery_count, letter.message) for letter in letters} == {
            (DELIVERY_LIMIT, "Offset delivery count exceeded the threshold.")
        }
        for value, found in self.deliveries.items():
            last = max(each.number for each in found)
            if value in self.accepted:
                assert last == self.accepted[value], f"record {value} came again after it was accepted"
            elif value not in dead:
                assert (value, last) in self.lost, f"record {value} was neither accepted nor is it dead"

    def check_delays(self, killed_at_ms: Sequence[int]) -> Counter[str]:
        """Check that no delivery came before its delay; return how many were checked, by the bound of the
        release.
        """
        checked: Counter[str] = Counter()
        for value, found in self.deliveries.items():
            by_count: dict[int, list[Delivery]] = defaultdict(list)
            for each in found:
                by_count[each.number].append(each)
            released_ms = 0
            for number in range(1, DELIVERY_LIMIT):
                bound, released_ms = self._released(value, by_count, number, released_ms, killed_at_ms)
                due_ms = released_ms = released_ms + DELAYS_MS[min(number, len(DELAYS_MS)) - 1]
                for each in by_count[number + 1]:
                    checked[bound] += 1
                    assert each.at_ms >= due_ms, f"{due_ms - each.at_ms} ms early: {value} {found}, {bound}"
        return checked

    def _released(
        self,
        value: str,
        by_count: Mapping[int, Sequence[Delivery]],
        number: int,
        before_ms: int,
        killed_at_ms: Sequence[int],
    ) -> tuple[str, int]:
        """Return a time before which the delivery with this number was not released, and why not."""
        found = by_count[number]
        if not found:
            return "not logged", before_ms
        if self.confirmed[RELEASE, value, number]:
            by = self.released_by[value, number]
            return "released", min(each.at_ms for each in found if each.member is by)
        only = found[0]
        ends_ms = min((each.at_ms for each in by_count[number + 1]), default=only.at_ms)
        is_alone = len(found) == 1 and not any(only.since_ms <= at_ms <= ends_ms for at_ms in killed_at_ms)
        if is_alone and key_of(int(value)) == "hang" and not only.member.was_killed:
            return "locked", only.since_ms + LOCK_MS
        return "acquired", min(each.since_ms for each in found)


@pytest.mark.parametrize(("count", "kills"), in_tiers([(3_000, 2), (100_000, 20)], nightly=[(100_000, 20)]))
def test_each_record_is_accepted_once_or_dead_once(tmp_path: Path, count: int, kills: int) -> None:
    """One record in twenty fails at whichever consumer: most are released, some outlast their lock.

    A consumer processes a record when the record is delivered to it, and it can't be promised that this
    happens once: the acknowledgement of a record that was processed is lost if the consumer or the gateway is
    killed before it is stored, and the record comes again. What is promised, and checked with the consumers'
    logs, which have each delivery before its acknowledgement, and each acknowledgement that the gateway has
    confirmed:

    - Each record was delivered at least once. It is dead, or an ACCEPT of it was confirmed, or the outcome of
      its last delivery is unknown to the log: the consumer was killed before it learned that, or was told of
      an error because the gateway was killed.
    - After a confirmed ACCEPT the record is never delivered again. So it is confirmed once at most.
    - A record with a confirmed ACCEPT has no letter. Each failing record has exactly one, and none has two.
    - A letter has the greatest delivery count, and no delivery has a greater one. A RELEASE is confirmed once
      at most for each delivery count. A gateway that was killed counts the deliveries under way again.
    - No delivery comes before the delay of the count before it. The delay begins when the gateway releases
      the record: after the consumer that released it has got it, after the lock that a hanging consumer got,
      or, where the release is in no log, after the record was acquired.
    """
    with failing_group(tmp_path) as group:
        for _ in range(CONSUMERS):
            group.start()
        parts = [
            range(count * part // (2 * kills), count * (part + 1) // (2 * kills)) for part in range(2 * kills)
        ]
        for number, part in enumerate(parts):
            group.send(part)
            group.await_delivery_of(part)
            if number % 2:
                group.replace(number // 2)
            else:
                group.kill_gateway()
            group.flush()
        await_that(lambda: group.is_done(count), "all records are done", timeout_s=LIMIT_S)
        letters = group.letters()
        for member in group.members:
            if not member.was_killed:
                member.end(signal.SIGTERM)
        outcome = Outcome(group.members)
        outcome.check(count, letters)
        checked = outcome.check_delays(group.killed_at_ms)
        assert checked["released"] > count // FAILS_EACH, checked
        assert checked["locked"], checked
