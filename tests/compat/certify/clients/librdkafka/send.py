"""Sends lines with librdkafka, as Python programs use it: `send.py default` or `send.py idempotent`."""

from __future__ import annotations

import os
import sys

from confluent_kafka import KafkaError, Message, Producer

request_timeout_ms = int(os.environ["SEQGATE_REQUEST_TIMEOUT_MS"])
settings: dict[str, object] = {
    "bootstrap.servers": os.environ["SEQGATE_BOOTSTRAP"],
    "request.timeout.ms": request_timeout_ms,
    "socket.timeout.ms": request_timeout_ms,
}
if sys.argv[1] == "idempotent":
    settings["enable.idempotence"] = True
failures: list[str] = []


def delivered(error: KafkaError | None, message: Message) -> None:
    if error is None:
        print((message.value() or b"").decode(), flush=True)
    else:
        failures.append(str(error))


producer = Producer(settings)
for line in sys.stdin:
    producer.produce(os.environ["SEQGATE_TOPIC"], line.rstrip("\n"), on_delivery=delivered)
    producer.poll(0)
producer.flush()
sys.exit("\n".join(failures[:3]) or None)
