"""Single requests to a broker: what a test sends when no client library may retry for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from seqgate.gateway.testing import Broker
from tests.support.batches import Batch, Record
from tests.support.wire import Plain, Wire

LIMIT_S = 120.0


def eventually(holds: Callable[[], object], what: str) -> None:
    """Wait until a condition holds; fail with `what` after LIMIT_S."""
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline, f"after {LIMIT_S:g} s: {what}"


def batch(*values: bytes, **fields: Any) -> bytes:
    """Return an encoded batch with these values."""
    return Batch(tuple(Record(value=value) for value in values), **fields).encode()


def produce_on(wire: Wire, records: bytes, topic: str = "t", partition: int = 0, **fields: Any) -> Plain:
    """Send one batch; return the partition's row of the answer."""
    rows = [{"index": partition, "records": records}]
    request = {
        "acks": -1,
        "timeout": 5_000,
        "topic_data": [{"name": topic, "partition_data": rows}],
        **fields,
    }
    row: Plain = wire.call("produce", 9, request).fields["responses"][0]["partition_responses"][0]
    return row


def produce(broker: Broker, *values: bytes, topic: str = "t", **fields: Any) -> Plain:
    """Store values in one batch over a connection of its own; return the partition's row of the answer."""
    if topic not in broker.topics():
        broker.create_topic(topic)
    with Wire(broker.bootstrap) as wire:
        return produce_on(wire, batch(*values, **fields), topic)


def values(broker: Broker, topic: str = "t") -> Sequence[bytes | None]:
    """Return the committed values of a topic."""
    return [record.value for record in broker.records(topic)]


def initialise(wire: Wire, transactional_id: str | None = None, timeout_ms: int = 60_000) -> tuple[int, int]:
    """Return a producer id and epoch."""
    request = {"transactional_id": transactional_id, "transaction_timeout": timeout_ms}
    deadline = time.monotonic() + LIMIT_S
    if transactional_id is not None:  # creates the topic of the coordinators
        wire.call("find_coordinator", 4, key_type=1, coordinator_keys=[transactional_id])
    while True:
        answer = wire.call("init_producer_id", 4, request).fields
        if not answer["error_code"]:
            return answer["producer_id"], answer["producer_epoch"]
        assert time.monotonic() < deadline, answer
