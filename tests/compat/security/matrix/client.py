"""The interface that all clients of the matrix have, and their errors."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class Refusal(StrEnum):
    """A reason for which a gateway refuses a client."""

    LOGIN = "login"
    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"
    TRANSACTIONAL_ID = "transactional id"


REFUSALS = {
    58: Refusal.LOGIN,
    29: Refusal.TOPIC,
    30: Refusal.GROUP,
    31: Refusal.CLUSTER,
    53: Refusal.TRANSACTIONAL_ID,
}
"""The refusal of each error code of Kafka."""


class Refused(Exception):
    """The client reported its own error, which the gateway's refusal caused."""

    def __init__(self, refusal: Refusal | None, text: object) -> None:
        super().__init__(f"{refusal}: {text}")
        self.refusal = refusal


class Client(Protocol):
    """A client of one account. Every method ends within its deadline and raises `Refused`."""

    def create(self, topic: str) -> None:
        """Create a topic with one partition."""

    def describe(self, topic: str) -> int:
        """Return the number of the topic's partitions."""

    def send(self, topic: str, value: str) -> None:
        """Send one record with idempotence, and wait until it is acknowledged."""

    def transact(self, transactional_id: str, topic: str, value: str) -> None:
        """Send one record in a transaction, and commit it."""

    def read(self, topic: str, group: str, count: int) -> list[str]:
        """Join a group, read `count` records from its committed offset or the start on, commit, and leave."""

    def close(self) -> None: ...
