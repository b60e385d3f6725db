"""Opens a connection to another gateway: TCP, then TLS, then the login, then the APIs that the other gateway knows."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

from gateway.config import Config
from gateway.peer.address import PeerAddress
from gateway.peer.connection import PeerConnection
from gateway.peer.errors import PeerUnavailable
from gateway.peer.security import PeerSecurity, peer_context, peer_security
from gateway.security.errors import StoreError

CONNECT_TIMEOUT_S: Final = 10.0
"""Time for a connection to be ready: Kafka's socket.connection.setup.timeout.ms."""
_SOFTWARE: Final = "seqgate"
_MOST_STEPS: Final = 5
"""Messages of one login; a login with more fails."""


class Line(NamedTuple):
    """A connection that is ready for requests, and the versions of each API that the other gateway knows."""

    address: PeerAddress
    connection: PeerConnection
    versions: Mapping[int, tuple[int, int]]

    def knows(self, request: Any) -> bool:
        """Return whether the other gateway knows the API and the version of a request."""
        lowest, highest = self.versions.get(request.__api_key__, (0, -1))
        return bool(lowest <= request.__version__ <= highest)


async def dial(config: Config, address: PeerAddress, client_id: bytes) -> Line:
    """Return a connection that is ready. Raises PeerUnavailable."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return await _dial(config, address, client_id)
    except TimeoutError:
        raise PeerUnavailable(f"no connection within {CONNECT_TIMEOUT_S:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise PeerUnavailable(f"its certificate is not accepted: {error.verify_message}") from None
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).lower().replace("_", " ")
        raise PeerUnavailable(f"the TLS handshake failed: {reason}") from None
    except OSError as error:
        raise PeerUnavailable(f"no connection: {error.strerror or error}") from None
    except StoreError as error:
        raise PeerUnavailable(f"this gateway can't connect with TLS: {error}") from None


async def _dial(config: Config, address: PeerAddress, client_id: bytes) -> Line:
    loop = asyncio.get_running_loop()
    try:
        security = peer_security(config)
    except ValueError as error:
        raise PeerUnavailable(f"this gateway can't log in: {error}") from None
    context = await loop.run_in_executor(None, peer_context, config) if security.has_tls else None
    reader, writer = await asyncio.open_connection(
        address.host, address.port, ssl=context, server_hostname=address.host if context else None
    )
    connection = PeerConnection(reader, writer, client_id)
    try:
        if security.mechanism:
            await _log_in(connection, security)
        asked = ApiVersionsRequest(client_software_name=_SOFTWARE, client_software_version="1")
        answer = await connection.send(asked)
    except BaseException:
        connection.close("the connection is not ready")
        raise
    versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    return Line(address, connection, versions)


async def _log_in(connection: PeerConnection, security: PeerSecurity) -> None:
    """Log in with SASL. Raises PeerUnavailable."""
    # only a gateway whose peers ask for a login needs it
    from gateway.security.sasl.exchange import LoginRefused  # noqa: PLC0415
    from gateway.security.sasl.login import client_login  # noqa: PLC0415

    agreed = await connection.send(SaslHandshakeRequest(mechanism=security.mechanism))
    if agreed.error_code:
        raise PeerUnavailable(
            f"it lets nobody log in with {security.mechanism}, but with {', '.join(agreed.mechanisms)}"
        )
    loop = asyncio.get_running_loop()
    login = client_login(security.mechanism, security.username, security.password)
    message: bytes | None = login.first()
    for _ in range(_MOST_STEPS):
        answer = await connection.send(SaslAuthenticateRequest(auth_bytes=message or b""))
        if answer.error_code:
            reason = answer.error_message or f"error {answer.error_code}"
            raise PeerUnavailable(f"it refuses the login of {security.username}: {reason}")
        try:
            message = await loop.run_in_executor(None, login.step, answer.auth_bytes)
        except LoginRefused as error:
            raise PeerUnavailable(f"the login of {security.username} failed: {error}") from None
        if message is None:
            return
    raise PeerUnavailable(f"it does not end the login of {security.username}")
