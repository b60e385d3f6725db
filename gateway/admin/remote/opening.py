"""Makes and ends clients of kafka-python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from kafka import KafkaProducer
from kafka.net.compat import KafkaNetClient

C = TypeVar("C")


def opened(kind: Callable[..., C], **settings: Any) -> C:
    """Return a client of this kind. Raises an error of kafka-python.

    A constructor of kafka-python 3.0 that fails leaves its thread and its connections behind; this closes them.
    """
    made: list[KafkaNetClient] = []

    def network(**given: Any) -> KafkaNetClient:
        made.append(KafkaNetClient(**given))
        return made[-1]

    try:
        return kind(kafka_client=network, **settings)
    except BaseException:
        for each in made:
            each.close()
        raise


def give_up(producer: KafkaProducer) -> None:
    """Close a producer that has records which are not acknowledged, and send them no more.

    `KafkaProducer.close(timeout=0)` of kafka-python 3.0 raises an error then, and leaves the producer open.
    """
    sender = producer._sender  # noqa: SLF001 - there is no public way to send nothing more
    sender.force_close()
    sender.join()
    producer.close(timeout=0)
