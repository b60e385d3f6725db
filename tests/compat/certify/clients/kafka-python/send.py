"""Sends lines with kafka-python: `send.py default` or `send.py plain`."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any

from kafka import KafkaProducer

settings: dict[str, Any] = {
    "bootstrap_servers": os.environ["SEQGATE_BOOTSTRAP"],
    "request_timeout_ms": int(os.environ["SEQGATE_REQUEST_TIMEOUT_MS"]),
}
if sys.argv[1] == "plain":
    settings["enable_idempotence"] = False
failures: list[str] = []


def delivered(value: str, _: object) -> None:
    print(value, flush=True)


producer = KafkaProducer(**settings)
for line in sys.stdin:
    value = line.rstrip("\n")
    future = producer.send(os.environ["SEQGATE_TOPIC"], value.encode())
    future.add_callback(partial(delivered, value))
    future.add_errback(lambda error: failures.append(str(error)))
producer.flush()
producer.close()
sys.exit("\n".join(failures[:3]) or None)
