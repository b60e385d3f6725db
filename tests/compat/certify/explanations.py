"""Why clients fail scripts: a sentence for each failure of the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NAMES: Final = {
    "java": "Apache Kafka's Java client",
    "librdkafka": "librdkafka",
    "kafka-python": "kafka-python",
    "aiokafka": "aiokafka",
    "franz-go": "franz-go",
    "kafkajs": "KafkaJS",
}
"""The names of clients for people."""

WITHOUT_IDEMPOTENCE: Final[Mapping[str, str]] = {
    "doubled": "The batch was stored, and the client did not get to know it. It sends the batch again, and "
    "nothing in the batch tells the broker "
    "that it has it.",
    "reordered": "Several batches were in flight. The one that failed was sent again, behind those that did "
    "not fail.",
}
"""What doubles and reorders records of any producer without idempotence, by the word in the cell."""

BOOTSTRAP: Final = "The client tries each address once when it starts, and then raises an error."

EXPLANATIONS: Final[tuple[tuple[str, tuple[str, ...], str], ...]] = (
    ("aiokafka default", ("metadata-lost",), BOOTSTRAP),
    ("aiokafka idempotent", ("metadata-lost",), BOOTSTRAP),
    (
        "aiokafka default",
        ("answer-never-comes", "answer-too-late"),
        (
            "The request timeout of this client is also the time in which a batch must be delivered; without "
            "idempotence it does not try again after it. The records are stored, and reported as failed: an "
            "application that sends them again doubles them."
        ),
    ),
    (
        "franz-go default",
        ("producer-id-lost",),
        (
            "The client takes a connection that closes after its first request for one that needs a login, "
            "and fails the records that wait for the producer id."
        ),
    ),
    (
        "kafkajs idempotent",
        ("producer-id-lost", "metadata-lost"),
        (
            "`connect` asks for metadata and a producer id, and fails at the first connection that closes. The "
            "application would have to call it again."
        ),
    ),
    (
        "kafkajs idempotent",
        ("answer-never-comes",),
        (
            "After a request timeout the client keeps the connection. A broker answers the requests of a "
            "connection in their order, so every later answer waits behind the one that never comes."
        ),
    ),
)
"""A column, its scripts, and the sentence."""
