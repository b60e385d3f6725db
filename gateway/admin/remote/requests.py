"""Sends requests that kafka-python does not know or can't address, with kio's schemas. Raises ControlError."""

from __future__ import annotations

import io
import socket
import struct
from typing import Any, Final, TypeVar

from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse
from kio.schema.types import GroupId
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i8

from gateway.admin.remote.addresses import shown_address
from gateway.admin.request import ControlError

TIMEOUT_S: Final = 30.0
_CLIENT_ID: Final = b"seqgate"
_CORRELATION_ID: Final = 1
_LENGTH: Final = struct.Struct(">i")
_GROUP: Final = i8(0)

R = TypeVar("R")


def ask_coordinator(bootstrap: tuple[str, int], group: str, request: Any, response_type: type[R]) -> R:
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
    return ask_broker((found.host, int(found.port)), request, response_type)


def ask_broker(
    address: tuple[str, int], request: Any, response_type: type[R], *, timeout_s: float = TIMEOUT_S
) -> R:
    """Return the answer of the broker at an address."""
    frame = io.BytesIO()
    frame.write(struct.pack(">hhi", request.__api_key__, request.__version__, _CORRELATION_ID))
    frame.write(struct.pack(">h", len(_CLIENT_ID)) + _CLIENT_ID + b"\0")  # the header of a flexible version
    entity_writer(type(request))(frame, request)
    content = frame.getvalue()
    try:
        with socket.create_connection(address, timeout_s) as connection:
            connection.sendall(_LENGTH.pack(len(content)) + content)
            (size,) = _LENGTH.unpack(_read(connection, _LENGTH.size))
            answer = _read(connection, size)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ControlError(f"the broker at {shown_address(*address)} did not answer: {reason}") from error
    _, start = entity_reader(response_type.__header_schema__)(answer, 0)  # type: ignore[attr-defined]
    response, _ = entity_reader(response_type)(answer, start)  # type: ignore[type-var]
    return response


def _read(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionResetError("the connection was closed")
        received += chunk
    return bytes(received)
