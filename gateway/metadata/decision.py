"""The result of a decision: the records to append, and the answer to send once they are durable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.metadata.records import MetadataRecord

Answer_co = TypeVar("Answer_co", covariant=True)


class Decision(msgspec.Struct, Generic[Answer_co], frozen=True):
    """Records that carry out a change, all or none, and the answer that is true once they are durable."""

    records: Sequence[MetadataRecord]
    answer: Answer_co


class ApiError(msgspec.Struct, frozen=True):
    """A refusal: Kafka's error code, and a sentence for people."""

    error_code: ErrorCode
    message: str | None = None


def told(error: ApiError | None, otherwise: str | None = None) -> dict[str, Any]:
    """Return the fields of an answer that tell an outcome; without an error the message is `otherwise`."""
    if error is None:
        return {"error_code": ErrorCode.none, "error_message": otherwise}
    return {"error_code": error.error_code, "error_message": error.message}


UNKNOWN_TOPIC_MESSAGE = "This server does not host this topic-partition."
UNKNOWN_TOPIC_ID_MESSAGE = "This server does not host this topic ID."
