"""What a fault does to a request."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kio.schema.errors import ErrorCode


class Kind(enum.Enum):
    """The ways in which a request fails."""

    DROP_ANSWER = "the request is carried out, and the connection closed without its answer"
    LOSE_ANSWER = "the request is carried out, and its answer never comes"
    CLOSE = "the connection is closed, and nothing is carried out"
    ERROR = "the request is refused with an error, and nothing is carried out"
    ERROR_AFTER = "the request is carried out, and answered with an error all the same"
    DELAY = "the answer comes late"
    CORRUPT = "one bit of the records in the answer is flipped"
    THROTTLE = "the answer tells the client to wait, as a quota does"
    WATCH = "the request is carried out as without a fault, and counted"


@dataclass(frozen=True, slots=True)
class Effect:
    """What happens to one request. `error` is the error of ERROR and ERROR_AFTER, `delay_ms` the time of DELAY and THROTTLE, and that
    of an error whose answer comes late.
    """

    kind: Kind
    delay_ms: int = 0
    error: ErrorCode = ErrorCode.none

    def __str__(self) -> str:
        text = self.kind.name.lower().replace("_", " ")
        if self.kind in {Kind.ERROR, Kind.ERROR_AFTER}:
            text = f"{text} {self.error.name.upper()}"
        return f"{text} {self.delay_ms} ms" if self.delay_ms else text


def error_code(code: ErrorCode | str) -> ErrorCode:
    """Return the error with a name of Kafka's, such as NOT_ENOUGH_REPLICAS. Raises ValueError."""
    if isinstance(code, ErrorCode):
        found = code
    else:
        try:
            found = ErrorCode[code.lower()]
        except KeyError:
            raise ValueError(
                f"{code!r} is not the name of an error of Kafka, such as NOT_ENOUGH_REPLICAS"
            ) from None
    if found is ErrorCode.none:
        raise ValueError("NONE refuses no request: name an error of Kafka, such as NOT_ENOUGH_REPLICAS")
    return found
