"""Gateways in processes of their own over one directory of objects, and an idempotent producer that writes
meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.gateway_process import GatewayProcess
from tests.support.read_back import read_back
from tests.support.wire import Wire

LEASE_MS = 6000
"""The lease of a cluster whose gateways are killed, which waits that long for the others to take over."""
NEVER_ENDING_LEASE_MS = 60 * LEASE_MS
"""The lease of a cluster whose gateways nobody kills: a machine may stand still for seconds."""
PATIENCE_S = 60.0
TOPIC = "lines"
PARTITIONS = 6


def await_true(condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until the condition is true. Raises AssertionError."""
    deadline_s = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not in {patience_s:.0f} s: {what}"
        time.sleep(0.05)


class GatewayCluster:
    """Gateways over one directory, which start at the same time. Each has a cache of its own, and gets its
    node id from the cluster.
    """

    def __init__(self, path: Path, count: int, settings: dict[str, str] | None = None) -> None:
        self.path = path
        (path / "bucket").mkdir()
        self.settings = {
            "seqgate.cluster": f"file://{path / 'bucket'}",
            "seqgate.cluster.lease.ms": str(LEASE_MS),
            "seqgate.cluster.balance.delay.ms": "100",
            "seqgate.cluster.puts.per.second": "50",
            **(settings or {}),
        }
        self.gateways = [
            GatewayProcess(path / f"cache-{number}", settings=self.settings) for number in range(count)
        ]

    def __enter__(self) -> Self:
        try:
            with ThreadPoolExecutor(len(self.gateways)) as pool:
                list(pool.map(GatewayProcess.start, self.gateways))
            await_true(lambda: len(self.brokers()) == len(self.gateways), "every gateway has registered")
        except BaseException:
            for gateway in self.gateways:
                gateway.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for gateway in self.gateways:
            if kind is None:
                gateway.stop()
            else:
                gateway.kill()

    @property
    def bootstrap(self) -> str:
        return ",".join(gateway.bootstrap for gateway in self.gateways)

    def metadata(self) -> Any:
        """Return what any gateway tells; None while none answers."""
        try:
            return AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=10)
        except KafkaException:
            return None

    def brokers(self) -> dict[int, int]:
        """Return the node id of each live gateway's port."""
        found = self.metadata()
        return {} if found is None else {broker.port: broker.id for broker in found.brokers.values()}

    def leaders(self, topic: str = TOPIC) -> Counter[int]:
        """Return how many partitions each node leads; -1 is nobody."""
        found = self.metadata()
        if found is None or topic not in found.topics:
            return Counter()
        return Counter(partition.leader for partition in found.topics[topic].partitions.values())

    def create(self, topic: str = TOPIC, partitions: int = PARTITIONS) -> None:
        create_everywhere(self.gateways, topic, partitions)


def create_everywhere(
    gateways: Sequence[GatewayProcess], topic: str = TOPIC, partitions: int = PARTITIONS
) -> None:
    """Create a topic, and wait until every gateway knows the leaders of its partitions."""
    admin = AdminClient({"bootstrap.servers": ",".join(gateway.bootstrap for gateway in gateways)})
    for done in admin.create_topics([NewTopic(topic, partitions)]).values():
        done.result(PATIENCE_S)
    for gateway in gateways:
        await_true(
            lambda at=gateway.bootstrap: _has_leaders(at, topic, partitions),  # type: ignore[misc]
            f"every gateway knows the leaders of {topic}",
        )


def leaders_at(bootstrap: str, topic: str) -> list[int]:
    """Return the leader of each partition, -1 for nobody, as the gateway at this address knows them; none
    where it does not know the topic.

    A client library would ask any gateway of the cluster.
    """
    with Wire(bootstrap) as wire:
        answer = wire.call("metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=False).fields
    return [row["leader_id"] for found in answer["topics"] for row in found["partitions"]]


def _has_leaders(bootstrap: str, topic: str, partitions: int) -> bool:
    leaders = leaders_at(bootstrap, topic)
    return len(leaders) == partitions and min(leaders) >= 0


class Writer:
    """A thread that produces numbered values until it is stopped; `acknowledged` has them by partition with
    their offsets.
    """

    def __init__(self, bootstrap: str, topic: str = TOPIC, partitions: int = PARTITIONS) -> None:
        self._topic = topic
        self._partitions = partitions
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "delivery.timeout.ms": 120_000,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 50,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        self.acknowledged: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.errors: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(180)

    @property
    def count(self) -> int:
        return sum(map(len, list(self.acknowledged.values())))

    def await_more(self, more: int = 50) -> None:
        """Wait until so many more values are acknowledged."""
        wanted = self.count + more
        await_true(lambda: self.count >= wanted or bool(self.errors), f"{more} more values are acknowledged")

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            self._producer.produce(
                self._topic, str(number), partition=number % self._partitions, on_delivery=self._delivered
            )
            number += 1
            self._producer.poll(0.005)
        self._producer.flush(120)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged[message.partition()].append((message.offset(), int(message.value())))


def stored(
    bootstrap: str, topic: str = TOPIC, partitions: int = PARTITIONS
) -> dict[int, list[tuple[int, int]]]:
    """Return all values of the topic by partition, with their offsets."""
    rows_of = read_back(bootstrap, topic, partitions)
    return {
        partition: [(offset, int(value)) for offset, value in rows] for partition, rows in rows_of.items()
    }


def check(writer: Writer, bootstrap: str) -> None:
    """Check that every acknowledged value is stored at its offset, once and in order, and that the producer
    had no error. librdkafka acknowledges a value without an offset where a later one proves that it is stored.
    """
    assert writer.errors == []
    found = stored(bootstrap)
    for partition, acknowledged in writer.acknowledged.items():
        rows = found[partition]
        offsets = {value: offset for offset, value in rows}
        lost = [
            (offset, value)
            for offset, value in acknowledged
            if value not in offsets or offset not in {None, offsets[value]}
        ]
        assert not lost, f"lost in {partition}: {lost[:5]}"
        values = [value for _, value in rows]
        assert len(values) == len(set(values)), f"doubled in {partition}"
        assert values == sorted(values), f"out of order in {partition}"
