"""Asks the test control of a gateway: JSON over HTTP."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from seqgate.gateway.admin.request import ControlError

TIMEOUT_S: Final = 60.0


class ControlRefused(ControlError):
    """The test control refused a request. `status` is that of HTTP: 404 for what does not exist."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


def ask(address: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Return the answer of HOST:PORT to a request; None if the gateway ends instead. Raises ControlError."""
    connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
    try:
        content = None if body is None else msgspec.json.encode(body)
        headers = {} if body is None else {"content-type": "application/json"}
        connection.request(method, path, content, headers)
        answer = connection.getresponse()
        content = answer.read()
    except (http.client.RemoteDisconnected, ConnectionResetError):
        return None
    except OSError as error:
        raise ControlError(f"no test control answers on {address}: {error.strerror or error}") from error
    finally:
        connection.close()
    try:
        decoded = msgspec.json.decode(content)
    except msgspec.DecodeError:
        raise ControlError(
            f"{address} is no test control: {content[:100].decode(errors='replace')}"
        ) from None
    if answer.status >= http.HTTPStatus.BAD_REQUEST:
        raise ControlRefused(decoded["error"], answer.status)
    return decoded
