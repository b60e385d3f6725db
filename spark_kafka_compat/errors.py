"""Errors of this package. Every message is a sentence for people that says what to do."""

from __future__ import annotations


class SparkCompatError(Exception):
    """Something outside the data is wrong: a missing program, an unreachable endpoint, a wrong option."""


class ConnectorMissingError(SparkCompatError):
    """Spark runs, but without its Kafka connector on the class path."""


class UnknownOptionError(SparkCompatError):
    """An option that the Kafka connector does not know, or not for this use."""


class EndpointError(SparkCompatError):
    """The Kafka endpoint can't be reached, or answered with an error; `retriable` says whether to ask again."""

    def __init__(self, message: str, *, retriable: bool = False) -> None:
        super().__init__(message)
        self.retriable = retriable


class FencedError(SparkCompatError):
    """Another copy of the same pipeline has started since; this one has to end."""


class PositionError(SparkCompatError):
    """The records do not follow on what the database holds: some are gone, or a checkpoint is ahead of the database."""
