"""Finds out whether the cluster's listener needs a login, and by which mechanisms. Raises ControlError."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Final

from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from gateway.admin.remote.client_security import ClientSecurity
from gateway.admin.remote.connection import BrokerAddress, check_connection, exchange, open_connection
from gateway.admin.request import ControlError

MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""The mechanisms by which people log in, the safest first."""
KEPT_S: Final = 60.0
"""Time for which an answer of the cluster counts."""
TIMEOUT_S: Final = 5.0
_NO_MECHANISM: Final = "?"


class WayIn:
    """Knows how visitors get to the cluster. Thread-safe."""

    def __init__(self, addresses: Sequence[tuple[str, int]], security: ClientSecurity) -> None:
        """Prepare for the listener at these addresses; `security` is that of the console itself."""
        self._addresses = tuple(addresses)
        self._security = security
        self._lock = threading.Lock()
        self._known: tuple[str, ...] | None = None
        self._until = 0.0

    def mechanisms(self) -> tuple[str, ...]:
        """Return the mechanisms by which visitors can log in; empty when the listener needs no login."""
        with self._lock:
            if self._known is None or time.monotonic() >= self._until:
                self._known = self._found()
                self._until = time.monotonic() + KEPT_S
            return self._known

    def _found(self) -> tuple[str, ...]:
        if self._security.mechanism:
            return (self._security.mechanism,)
        reasons = []
        for host, port in self._addresses:
            address = BrokerAddress(host, port, self._security)
            try:
                return _offered(address)
            except OSError as error:
                reasons.append(f"{address.shown} ({error.strerror or error})")
        raise ControlError(
            f"nothing answers at {', '.join(reasons)}; start a gateway there, or name another address with --bootstrap"
        )

    def log_in(self, username: str, password: str) -> ClientSecurity:
        """Return how a visitor connects, after the cluster has accepted the login. Raises ControlError."""
        refusal = ControlError("the listener of the cluster needs no login")
        for mechanism in self.mechanisms():
            security = ClientSecurity(self._protocol(), self._security.context, mechanism, username, password)
            try:
                self._check(security)
            except ControlError as error:
                refusal = error
            else:
                return security
        raise refusal

    def _protocol(self) -> str:
        return "SASL_SSL" if self._security.context is not None else "SASL_PLAINTEXT"

    def _check(self, security: ClientSecurity) -> None:
        reasons = []
        for host, port in self._addresses:
            address = BrokerAddress(host, port, security)
            try:
                check_connection(address, TIMEOUT_S)
            except OSError as error:
                reasons.append(f"{address.shown} ({error.strerror or error})")
            else:
                return
        raise ControlError(f"nothing answers at {', '.join(reasons)}")


def _offered(address: BrokerAddress) -> tuple[str, ...]:
    """Return the mechanisms that a listener names when a client asks for one that does not exist.

    A listener without logins refuses the request or hangs up.
    """
    try:
        with open_connection(address, TIMEOUT_S) as connection:
            asked = SaslHandshakeRequest(mechanism=_NO_MECHANISM)
            answer = exchange(connection, asked, SaslHandshakeResponse)
    except ConnectionResetError:
        return ()
    offered = tuple(name for name in MECHANISMS if name in answer.mechanisms)
    if answer.mechanisms and not offered:
        raise ControlError(
            f"{address.shown} lets clients log in with {', '.join(answer.mechanisms)} only; the console needs one of "
            f"{', '.join(MECHANISMS)}"
        )
    return offered
