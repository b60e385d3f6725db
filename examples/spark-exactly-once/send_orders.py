"""Sends orders to the topic `orders` with an idempotent producer.

python send_orders.py 10000
"""

from __future__ import annotations

import json
import os
import sys

from kafka import KafkaProducer

CUSTOMERS = ("ada", "barbara", "donald", "edsger", "grace", "tony", "whitfield")


def main(count: int) -> None:
    """Send `count` orders, and return when all are acknowledged."""
    producer = KafkaProducer(
        bootstrap_servers=os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9092"),
        enable_idempotence=True,
        linger_ms=20,
    )
    sent = []
    for order_id in range(count):
        customer = CUSTOMERS[order_id % len(CUSTOMERS)]
        order = {"order_id": order_id, "customer": customer, "amount_cents": 100 + order_id % 1_000}
        sent.append(producer.send("orders", key=customer.encode(), value=json.dumps(order).encode()))
    for acknowledgement in sent:
        acknowledgement.get(timeout=60)
    producer.close()
    print(f"sent {count} orders")


if __name__ == "__main__":
    main(int(sys.argv[1]))
