"""The errors of this package. Every message is a sentence for the user that says what to do."""

from __future__ import annotations


class SparkCompatError(Exception):
    """The setup is wrong: a program is missing, an endpoint is unreachable, or an option is invalid."""


class ConnectorMissingError(SparkCompatError):
    """Spark runs without its Kafka connector on the class path."""


class UnknownOptionError(SparkCompatError):
    """The Kafka connector does not know an option, or does not know it for this use."""


class EndpointError(SparkCompatError):
    """The Kafka endpoint is unreachable, or answered with an error. `retriable` is True when a retry may succeed."""

    def __init__(self, message: str, *, retriable: bool = False) -> None:
        super().__init__(message)
        self.retriable = retriable


class MissingTopicError(EndpointError):
    """The Kafka endpoint has no topic of this name."""


class FencedError(SparkCompatError):
    """Another copy of the same pipeline has started since, so this copy must end."""


class PositionError(SparkCompatError):
    """The next records do not continue the database: records were deleted, or a checkpoint is ahead of the database."""


class RecreatedTopicError(PositionError):
    """A topic was deleted and created again, so the stored offsets belong to another topic of the same name."""
