"""Sends requests that kafka-python does not know or can't address, with kio's schemas. Raises ControlError."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from kio.schema.types import GroupId
from kio.static.primitive import i8

from gateway.admin.remote.connection import BrokerAddress, exchange, open_connection
from gateway.admin.request import ControlError

TIMEOUT_S: Final = 30.0
_GROUP: Final = i8(0)

R = TypeVar("R")


def ask_coordinator(bootstrap: BrokerAddress, group: str, request: Any, response_type: type[R]) -> R:
    """Return the answer of the broker that coordinates `group`; `bootstrap` is any broker."""
    found = ask_broker(
        bootstrap,
        FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=(GroupId(group),)),
        FindCoordinatorResponse,
    ).coordinators[0]
    if found.error_code.value:
        raise ControlError(
            f"group {group} has no coordinator: {found.error_message or found.error_code.name}"
        )
    return ask_broker(bootstrap.other(found.host, int(found.port)), request, response_type)


def ask_broker(
    address: BrokerAddress, request: Any, response_type: type[R], *, timeout_s: float = TIMEOUT_S
) -> R:
    """Return the answer of the broker at an address."""
    try:
        with open_connection(address, timeout_s) as connection:
            return exchange(connection, request, response_type)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ControlError(f"the broker at {address.shown} did not answer: {reason}") from error
