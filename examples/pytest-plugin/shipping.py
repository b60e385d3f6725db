"""Turns each order into a shipment, exactly once: a transaction holds the shipments and the offsets of their
orders.

python shipping.py 127.0.0.1:9092 shipping-1
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Self

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

ORDERS, SHIPMENTS = "orders", "shipments"
AT_ONCE = 100
"""Orders in one transaction, at most."""
WAIT_S = 0.1
CLIENT = {
    "log_level": 3,  # errors
    # With the default, a transactional producer of librdkafka 2.16 hangs after its only broker has gone for a
    # moment.
    "metadata.recovery.strategy": "none",
}


def shipment(order: bytes) -> bytes:
    """Return the shipment for an order."""
    placed = json.loads(order)
    return json.dumps({"order": placed["order"], "ship": placed["item"]}).encode()


class Shipping:
    """One instance of the application; use it as a context manager. Instances share the work by their group."""

    def __init__(self, bootstrap: str, instance: str) -> None:
        """Connect. `instance` is the transactional id: an instance that starts again ends the transaction
        that it left open.
        """
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "shipping",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "topic.metadata.refresh.interval.ms": 5_000,
                **CLIENT,
            }
        )
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": instance, **CLIENT})

    def __enter__(self) -> Self:
        self._producer.init_transactions()
        self._consumer.subscribe([ORDERS])
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def step(self) -> int:
        """Ship the orders that have come, and return how many. Raises KafkaException when this instance can't
        go on.
        """
        orders = [order for order in self._consumer.consume(AT_ONCE, WAIT_S) if order.error() is None]
        if not orders:
            return 0
        self._producer.begin_transaction()
        try:
            self._ship(orders)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._producer.abort_transaction()
            self._rewind(orders)
            return 0
        return len(orders)

    def _ship(self, orders: Sequence[Message]) -> None:
        for order in orders:
            # The same partition keeps the shipments in the order of their orders.
            self._producer.produce(
                SHIPMENTS, shipment(order.value() or b""), partition=order.partition() or 0
            )
        positions = self._consumer.position(self._consumer.assignment())
        members = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(positions, members)
        while True:
            try:
                self._producer.commit_transaction()
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return

    def _rewind(self, orders: Sequence[Message]) -> None:
        """Read these orders again, as far as this instance still has their partitions."""
        first: dict[int, int] = {}
        for order in orders:
            first.setdefault(order.partition() or 0, order.offset() or 0)
        for mine in self._consumer.assignment():
            if mine.partition in first:
                self._consumer.seek(TopicPartition(ORDERS, mine.partition, first[mine.partition]))


def main(bootstrap: str, instance: str) -> None:
    """Ship orders until the process is ended."""
    with Shipping(bootstrap, instance) as shipping:
        while True:
            shipping.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
