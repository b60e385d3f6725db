"""A program for `seqgate certify`: `producer.py MODE`, where MODE names what is wrong with it."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

from kafka import KafkaProducer

SETTINGS: dict[str, dict[str, Any]] = {
    "right": {},
    "acknowledging": {"enable_idempotence": False},
    "careless": {"enable_idempotence": False},
    "unidempotent": {"enable_idempotence": False},
    "impatient": {"enable_idempotence": False, "retries": 0},
    "collecting": {},
    "hasty": {"linger_ms": 100},
    "stuck": {"enable_idempotence": False},
    "waiting": {},
}


def main(mode: str) -> int:
    if mode == "waiting" and os.environ["SEQGATE_SCRIPT"] != "calm":
        Path(sys.argv[2]).write_text(str(os.getpid()))
        threading.Event().wait()
    topic = os.environ["SEQGATE_TOPIC"]
    producer = KafkaProducer(
        bootstrap_servers=os.environ["SEQGATE_BOOTSTRAP"],
        request_timeout_ms=int(os.environ["SEQGATE_REQUEST_TIMEOUT_MS"]),
        **SETTINGS[mode],
    )
    sent = []
    for line in list(sys.stdin) if mode == "collecting" else sys.stdin:
        value = line.rstrip("\n")
        future = producer.send(topic, value.encode())
        if mode == "acknowledging":
            # prints a value before it is acknowledged
            print(value, flush=True)
        sent.append(future)
    if mode == "hasty":
        os._exit(0)  # what lingers is lost
    try:
        producer.flush()
        producer.close()
    except Exception:
        if mode != "careless":
            raise
    has_failed = any(future.failed() for future in sent)
    if mode == "stuck" and has_failed:
        threading.Event().wait()
    return 1 if has_failed and mode != "careless" else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
