"""Validates changes of logger levels: BROKER_LOGGER resources (KIP-412). Source: Kafka's LoggingController."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Protocol

from kio.schema.errors import ErrorCode

from gateway.metadata.decision import ApiError
from gateway.metadata.node_ids import node_id_of

LEVELS: Final = ("DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN")
_SET, _DELETE, _APPEND, _SUBTRACT = range(4)
_NAMES: Final = {_APPEND: "APPEND", _SUBTRACT: "SUBTRACT"}


class Change(Protocol):
    """One change of one logger; the value is the level."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> str | None: ...
    @property
    def operation(self) -> int: ...


def logger_error(
    node: str, node_id: int, changes: Iterable[Change], loggers: Collection[str]
) -> ApiError | None:
    """Return why these levels can't be set on these loggers; None when they can."""
    wanted = node_id_of(node)
    if wanted is None:
        return ApiError(ErrorCode.invalid_request, f"Node id must be an integer, but it is: {node}")
    if wanted != node_id:
        text = f"Unexpected node id. Expected {node_id}, but received {node}"
        return ApiError(ErrorCode.invalid_request, text)
    for change in changes:
        error = _change_error(change, loggers)
        if error:
            return error
    return None


def _change_error(change: Change, loggers: Collection[str]) -> ApiError | None:
    if change.operation in _NAMES:
        text = f"{_NAMES[change.operation]} operation is not allowed for the BROKER_LOGGER resource"
        return ApiError(ErrorCode.invalid_request, text)
    if change.operation not in (_SET, _DELETE):
        return ApiError(ErrorCode.invalid_request, f"Unknown operations type {change.operation}")
    if change.name not in loggers:
        return ApiError(ErrorCode.invalid_config, f"Logger {change.name} does not exist!")
    if change.operation == _SET and change.value not in LEVELS:
        text = (
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(LEVELS)}"
        )
        return ApiError(ErrorCode.invalid_config, text)
    return None
