"""Reads the records of a topic and deletes them, as retention would. The gateway must still remember their
names.
"""

from __future__ import annotations

import time
from typing import cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.faults.deduplication.checker import Row
from tests.faults.deduplication.task import NAME_HEADER, SEQUENCE_HEADER

TIMEOUT_S = 120.0


def rows_deleted(bootstrap: str, topic: str, partitions: int) -> list[Row]:
    """Return the committed records of a topic, and delete them. Records that arrive meanwhile may stay."""
    rows, ends = _read(bootstrap, topic, partitions)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    before = [TopicPartition(topic, partition, end) for partition, end in ends.items()]
    for deleted in admin.delete_records(before).values():
        deleted.result(TIMEOUT_S)
    return rows


def _read(bootstrap: str, topic: str, partitions: int) -> tuple[list[Row], dict[int, int]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-before-deleting",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
    rows: list[Row] = []
    ends: dict[int, int] = {}
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while len(ends) < partitions:
            assert time.monotonic() < deadline, f"only the ends {ends} are reached"
            for message in consumer.consume(1000, timeout=1.0):
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                error = message.error()
                if error is None:
                    rows.append(_row(message, partition, offset))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ends.setdefault(partition, offset)
    finally:
        consumer.close()
    return [row for row in rows if row.offset < ends[row.partition]], ends


def _row(message: Message, partition: int, offset: int) -> Row:
    told: dict[str, bytes] = dict(cast("list[tuple[str, bytes]]", message.headers()))
    name, sequence = told[NAME_HEADER].decode(), int(told[SEQUENCE_HEADER])
    return Row(partition, offset, name, sequence, message.value() or b"")
