"""A Kafka client for the Python under test: `client.py write|read HOST:PORT COUNT`. It imports no file of
this checkout.

`write` sends numbered records with an idempotent producer, and `read` checks in a consumer group that each is
there once, in order.
"""

import sys

from kafka import KafkaConsumer, KafkaProducer

TOPIC = "numbers"
TIMEOUT_MS = 60_000


def write(bootstrap: str, count: int) -> None:
    """Send the numbers from 0, and wait for the acknowledgement of each."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, acks="all", compression_type="zstd"
    )
    sent = [producer.send(TOPIC, b"%d" % number, partition=0) for number in range(count)]
    offsets = [future.get(TIMEOUT_MS / 1000).offset for future in sent]
    producer.close()
    if offsets != list(range(count)):
        raise SystemExit(f"the offsets are not those of an empty topic: {offsets}")


def read(bootstrap: str, count: int) -> None:
    """Read as many records as were sent, and compare them."""
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=bootstrap,
        group_id="readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=TIMEOUT_MS,
    )
    values = [int(record.value) for _, record in zip(range(count), consumer, strict=False)]
    consumer.close()
    if values != list(range(count)):
        raise SystemExit(f"sent the numbers below {count}, read {values}")


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
