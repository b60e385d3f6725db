"""Reads what a topic holds, as a consumer sees it."""

from __future__ import annotations

import time
from collections.abc import Mapping

READ_TIMEOUT_S = 180.0


def read_back(
    bootstrap: str,
    topic: str,
    partitions: int,
    starts: Mapping[int, int] | None = None,
    isolation: str = "read_committed",
) -> dict[int, list[tuple[int, bytes]]]:
    """Return (offset, value) of every record of every partition that a consumer of this isolation level sees,
    in log order, from 0 or from the partition's entry in `starts`.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-back",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    rows: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in range(partitions)}
    unread = set(rows)
    consumer.assign(
        [TopicPartition(topic, partition, (starts or {}).get(partition, 0)) for partition in rows]
    )
    deadline = time.monotonic() + READ_TIMEOUT_S
    try:
        while unread:
            assert time.monotonic() < deadline, f"partitions {sorted(unread)} can't be read to their ends"
            for message in consumer.consume(1000, timeout=1.0):
                error = message.error()
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                if error is None:
                    rows[partition].append((offset, message.value() or b""))
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    unread.discard(partition)
    finally:
        consumer.close()
    return rows
