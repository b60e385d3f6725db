"""Makes clients of kafka-python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

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
