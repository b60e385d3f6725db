"""Leaves a transaction open for a page: `invoicing-1` holds an offset of the group `invoicing` in the topic
`orders`.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, Producer, TopicPartition

WAIT_S = 120.0


def main(bootstrap: str) -> None:
    """Send a record to `orders`, read it, and write an invoice and the read offset in a transaction without
    an end.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "invoicing-1"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("orders", b"order")
    producer.commit_transaction(WAIT_S)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "invoicing", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    (order,) = consumer.consume(1, WAIT_S)
    producer.begin_transaction()
    producer.produce("invoices", order.value())
    read = [TopicPartition("orders", order.partition(), order.offset() + 1)]
    producer.send_offsets_to_transaction(read, consumer.consumer_group_metadata(), WAIT_S)
    assert producer.flush(WAIT_S) == 0


if __name__ == "__main__":
    main(sys.argv[1])
