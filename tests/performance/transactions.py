"""Transactions of two records in two partitions, one after the other on each connection, for the comparison's
rows.

Every producer is one transactional id on a connection of its own and uses the requests of new clients:
Produce v12, which adds the partitions, and EndTxn v5. When the broker answers that the previous transaction
has not ended yet (CONCURRENT_TRANSACTIONS), the producer waits 20 ms and retries, as Kafka's clients do.
"""

from __future__ import annotations

import asyncio
import resource
import time
from dataclasses import dataclass, field
from typing import Any

from seqgate.log.format.records import NewRecord, build_batch
from tests.performance.brokers import Broker
from tests.performance.loads import Sample, choose_durability, create_topic
from tests.support.wire import Plain, decode, encode

STATE_TOPIC = "__transaction_state"
CONCURRENT_TRANSACTIONS = 51
RETRY_S = 0.02
"""`TransactionManager.ADD_PARTITIONS_RETRY_BACKOFF_MS` of the Java client."""
ANSWER_TIMEOUT_S = 30.0
PARTITIONS = 2
RETRIED_ERRORS = {14, 15, 16, CONCURRENT_TRANSACTIONS}


@dataclass
class TransactionalProducer:
    """One transactional id on one connection."""

    host: str
    port: int
    topic: str
    transactional_id: str
    ends_s: list[float] = field(default_factory=list)
    """The time that each EndTxn took."""

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(self.host, self.port)
        while True:
            found = await self.call(
                "find_coordinator", 4, {"key_type": 1, "coordinator_keys": [self.transactional_id]}
            )
            request: Plain = {"transactional_id": self.transactional_id, "transaction_timeout": 60_000}
            begun = await self.call(
                "init_producer_id", 4, {**request, "producer_id": -1, "producer_epoch": -1}
            )
            if not found["coordinators"][0]["error_code"] and not begun["error_code"]:
                self._producer: Plain = {name: begun[name] for name in ("producer_id", "producer_epoch")}
                self._sequence = 0
                return
            assert begun["error_code"] in RETRIED_ERRORS, begun
            await asyncio.sleep(RETRY_S)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def call(self, api: str, version: int, request: Plain) -> dict[str, Any]:
        frame = encode(api, version, request)
        self._writer.write(len(frame).to_bytes(4, "big") + frame)
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return decode(api, version, await self._reader.readexactly(size)).fields

    async def run(self, until_s: float, least: int) -> int:
        """Run transactions until the time is over, at least `least`; return how many were committed."""
        count = 0
        while count < least or time.monotonic() < until_s:
            await self._produce()
            begun_s = time.monotonic()
            ended = await self.call(
                "end_txn", 5, {"transactional_id": self.transactional_id, "committed": True, **self._producer}
            )
            assert not ended["error_code"], ended
            self.ends_s.append(time.monotonic() - begun_s)
            if ended["producer_epoch"] != self._producer["producer_epoch"]:
                self._sequence = 0
            self._producer = {name: ended[name] for name in ("producer_id", "producer_epoch")}
            count += 1
        return count

    async def _produce(self) -> None:
        records = build_batch(
            [NewRecord(b"x" * 100, timestamp=int(time.time() * 1000))],
            **self._producer,
            base_sequence=self._sequence,
            is_transactional=True,
        )
        rows = [{"index": index, "records": records} for index in range(PARTITIONS)]
        request = {
            "transactional_id": self.transactional_id,
            "acks": -1,
            "timeout": 30_000,
            "topic_data": [{"name": self.topic, "partition_data": rows}],
        }
        while True:
            answer = await self.call("produce", 12, request)
            errors = {row["error_code"] for row in answer["responses"][0]["partition_responses"]}
            if errors == {0}:
                self._sequence += 1
                return
            # the partition recognizes a batch that it has already stored
            assert errors <= {0, CONCURRENT_TRANSACTIONS}, answer
            await asyncio.sleep(RETRY_S)


def begin_transactions(broker: Broker, topic: str) -> None:
    """Let the broker create its topic of transactions."""

    async def begin() -> None:
        host, _, port = broker.bootstrap.rpartition(":")
        producer = TransactionalProducer(host, int(port), topic, f"{topic}-first")
        await asyncio.wait_for(producer.connect(), ANSWER_TIMEOUT_S)
        await producer.close()

    asyncio.run(begin())


def run_transactions(
    broker: Broker, topic: str, *, connections: int, seconds: float, flush_messages: str, least: int = 1
) -> Sample:
    """Run transactions on all connections, `least` or more on each. The sample counts transactions, and its
    p99 is that of EndTxn.
    """
    create_topic(broker, topic, partitions=PARTITIONS, flush_messages=flush_messages)
    return asyncio.run(_load(broker, topic, connections, seconds, flush_messages, least))


async def _load(
    broker: Broker, topic: str, connections: int, seconds: float, flush_messages: str, least: int
) -> Sample:
    host, _, port = broker.bootstrap.rpartition(":")
    producers = [
        TransactionalProducer(host, int(port), topic, f"{topic}-{number}") for number in range(connections)
    ]
    for producer in producers:
        await asyncio.wait_for(producer.connect(), ANSWER_TIMEOUT_S)
    choose_durability(broker, STATE_TOPIC, flush_messages)
    broker_before, client_before = broker.cpu_s(), _cpu_s()
    begun_s = time.monotonic()
    counts = await asyncio.gather(*(producer.run(begun_s + seconds, least) for producer in producers))
    took_s = time.monotonic() - begun_s
    sample = Sample(
        records=sum(counts),
        requests=2 * sum(counts),
        records_per_s=sum(counts) / took_s,
        p99_ms=_p99_ms([end_s for producer in producers for end_s in producer.ends_s]),
        broker_cpu_s=broker.cpu_s() - broker_before,
        client_cpu_s=_cpu_s() - client_before,
        resident_bytes=broker.resident_bytes(),
    )
    for producer in producers:
        await producer.close()
    return sample


def _p99_ms(times_s: list[float]) -> float:
    return sorted(times_s)[int(len(times_s) * 0.99)] * 1000


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
