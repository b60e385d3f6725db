"""Producers for tests of the console, as raw requests: they repeat batches, skip sequences, and leave
transactions open.
"""

from __future__ import annotations

import time
from typing import Any

from tests.support.batches import Batch, records
from tests.support.wire import Wire

TRANSACTIONAL = 0x10
OUT_OF_ORDER = 45
INVALID_EPOCH = 47
NOT_LEADER = 6
LEADER_TIMEOUT_S = 120


def send(
    bootstrap: str,
    topic: str,
    producer_id: int,
    base_sequence: int,
    count: int = 1,
    *,
    partition: int = 0,
    epoch: int = 0,
    transactional_id: str | None = None,
    batch: Batch | None = None,
) -> tuple[int, int]:
    """Produce one batch; return the error code and the base offset of the answer."""
    attributes = 0 if transactional_id is None else TRANSACTIONAL
    whole = batch or Batch(records(count), attributes=attributes).of(producer_id, epoch, base_sequence)
    with Wire(bootstrap) as wire:
        answer = wire.call(
            "produce",
            9,
            transactional_id=transactional_id,
            acks=-1,
            timeout=10_000,
            topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": whole.encode()}]}],
        ).fields
    (row,) = answer["responses"][0]["partition_responses"]
    return row["error_code"], row["base_offset"]


def begun(bootstrap: str, transactional_id: str | None, timeout_ms: int = 60_000) -> tuple[int, int]:
    """Initialize a producer, and wait while its coordinator is not ready; return the id and the epoch."""
    with Wire(bootstrap) as wire:
        while True:
            answer = wire.call(
                "init_producer_id",
                4,
                transactional_id=transactional_id,
                transaction_timeout=timeout_ms,
                producer_id=-1,
                producer_epoch=-1,
            ).fields
            if answer["error_code"] == 0:
                return answer["producer_id"], answer["producer_epoch"]
            if transactional_id is not None:
                wire.call("find_coordinator", 4, key_type=1, coordinator_keys=[transactional_id])


def open_transaction(
    bootstrap: str, transactional_id: str, topic: str, *partitions: int, timeout_ms: int = 60_000
) -> tuple[int, int]:
    """Leave a transaction open with a record in each of these partitions; return the producer's id and epoch."""
    producer_id, epoch = begun(bootstrap, transactional_id, timeout_ms)
    added: dict[str, Any] = {
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": producer_id,
        "v3_and_below_producer_epoch": epoch,
        "v3_and_below_topics": [{"name": topic, "partitions": list(partitions)}],
    }
    with Wire(bootstrap) as wire:
        found = wire.call("add_partitions_to_txn", 3, added).fields
    (of_topic,) = found["results_by_topic_v3_and_below"]
    assert all(row["partition_error_code"] == 0 for row in of_topic["results_by_partition"]), found
    for partition in partitions:
        deadline_s = time.monotonic() + LEADER_TIMEOUT_S
        while True:
            sent = send(
                bootstrap,
                topic,
                producer_id,
                0,
                partition=partition,
                epoch=epoch,
                transactional_id=transactional_id,
            )
            # Kafka's partition may have no leader yet
            if sent[0] != NOT_LEADER or time.monotonic() > deadline_s:
                break
        assert sent[0] == 0, sent
    return producer_id, epoch
