"""The handshake of one accepted socket: TLS comes first, then the connection's requests. The connection
counts from the moment its socket is accepted, so that clients which never finish their handshake stay within
the limits, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from uvloop.loop import SSLProtocol  # type: ignore[attr-defined]  # its stub leaves the class out

from seqgate.gateway.config import Config
from seqgate.gateway.config.authorization import NoRuleMatches, Rule, parse_rules, principal_name
from seqgate.gateway.runtime.loop.clock import Clock, SystemClock
from seqgate.gateway.security.certificates import StoreError, age_warning
from seqgate.gateway.security.key_stores import (
    AllowedChanges,
    CertificateIdentity,
    KeyPair,
    change_complaint,
    configured_stores,
    identity_of,
    read_authorities,
    subject_text,
)
from seqgate.gateway.security.principals import ANONYMOUS, Unidentified, user
from seqgate.gateway.security.tls_context import TlsSettings, build_context
from seqgate.gateway.server.connection import Connection, hung_up
from seqgate.gateway.server.handshake_turns import HandshakeTurns

logger = logging.getLogger(__name__)

SHUTDOWN_TIMEOUT_S: Final = 10.0
"""Time (s) for a client to read its last answers and the end of TLS; then its socket is closed."""
_NO_CERTIFICATE: Final = "PEER_DID_NOT_RETURN_A_CERTIFICATE"
_HANDSHAKE: Final = b"\x16"
"""The first byte of a TLS record that holds a part of a handshake."""
_NO_TLS: Final = {
    "HTTP_REQUEST": "it sent an HTTP request without TLS",
    "HTTPS_PROXY_REQUEST": "it sent an HTTP request without TLS",
    "WRONG_VERSION_NUMBER": "what it sent is not TLS; a Kafka client needs security.protocol=SSL",
    _NO_CERTIFICATE: "it showed no certificate, which ssl.client.auth=required asks for",
    "UNSUPPORTED_PROTOCOL": "it speaks no version of TLS that ssl.enabled.protocols allows",
    "NO_SHARED_CIPHER": "it has no cipher suite in common with the listener",
}


class TlsDoor(asyncio.Protocol):
    """Protocol of an accepted socket until its handshake begins."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: Connection,
        context: Callable[[], ssl.SSLContext],
        timeout_s: float,
        turns: HandshakeTurns,
        note_refused: Callable[[Connection, str], None],
    ) -> None:
        """`note_refused` gets the reason for a client whose certificate is missing or not accepted."""
        self._note_refused = note_refused
        self._loop = loop
        self._connection = connection
        self._context = context
        self._timeout_s = timeout_s
        self._turns = turns

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, unless the connection exceeds a limit."""
        accepted = cast("asyncio.Transport", transport)
        if not self._connection.meet(accepted):
            return
        done: asyncio.Future[Any] = self._loop.create_future()
        handshake = Handshake(self._context(), accepted, self._connection.peer_host, self._turns)
        done.add_done_callback(partial(self._handshake_done, handshake))
        protocol = SSLProtocol(
            self._loop,
            self._connection,
            handshake,
            done,
            server_side=True,
            ssl_handshake_timeout=self._timeout_s,
            ssl_shutdown_timeout=SHUTDOWN_TIMEOUT_S,
        )
        handshake.resume = protocol.buffer_updated
        accepted.set_protocol(protocol)
        protocol.connection_made(accepted)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection, because its socket was closed before the handshake."""
        self._connection.connection_lost(exc)

    def _handshake_done(self, handshake: Handshake, done: asyncio.Future[Any]) -> None:
        handshake.resume = None
        connection = self._connection
        error = done.exception()
        if connection.is_open:
            return
        if error is not None:
            reason = _reason(error)
            logger.warning("refused a TLS handshake of %s: %s", connection.name, reason)
            if _is_of_certificate(error):
                self._note_refused(connection, reason)
        connection.connection_lost(None)


class Handshaking(ssl.SSLObject):
    """The TLS object of one connection. Its handshake works only when it is the connection's turn."""

    handshake: Handshake

    def do_handshake(self) -> None:
        self.handshake.step(super().do_handshake)


class Handshake:
    """The handshake of one connection: it works in turns, and reports to the client why it failed. The event
    loop's protocol uses this object as the TLS context of the connection.
    """

    def __init__(
        self, context: ssl.SSLContext, transport: asyncio.Transport, host: str, turns: HandshakeTurns
    ) -> None:
        """`host` is the address of the client."""
        context.sslobject_class = Handshaking
        self._host = host
        self._context = context
        self._transport = transport
        self._turns = turns
        self._has_turn = False
        self._incoming = self._outgoing = ssl.MemoryBIO()
        self.resume: Callable[[int], None] | None = None
        """The function that continues the handshake; None when the handshake is over."""

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **options: Any) -> Handshaking:
        made = cast("Handshaking", self._context.wrap_bio(incoming, outgoing, **options))
        self._incoming, self._outgoing = incoming, outgoing
        made.handshake = self
        return made

    def step(self, work: Callable[[], None]) -> None:
        """Continue the handshake if it is this connection's turn. Raises the errors of `work`. Otherwise read
        nothing from the client until its turn, and report to the protocol that bytes are missing. The event
        loop's protocol closes the socket before it sends the alert of an error, so this method sends the
        alert. Without the alert a JVM client treats the end of the connection as an outage and retries
        forever.
        """
        if self._incoming.pending and not self._has_turn and not self._turns.has_time():
            self._transport.pause_reading()
            self._turns.wait(self._host, self._take_turn)
            raise ssl.SSLWantReadError
        try:
            with self._turns.measured():
                work()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            self._send_alert()
            raise

    def _take_turn(self) -> None:
        if self.resume is None or self._transport.is_closing():
            return
        if hung_up([self._transport.get_extra_info("socket").fileno()]) and self._holds_handshake():
            # the event loop does not notice, because it has read nothing from the client since
            self._transport.abort()
            return
        self._transport.resume_reading()
        self._has_turn = True
        self.resume(0)
        self._has_turn = False

    def _holds_handshake(self) -> bool:
        """Return whether the waiting bytes are TLS; others cost little and are refused with their reason."""
        waiting = self._incoming.read()
        self._incoming.write(waiting)
        return waiting[:1] == _HANDSHAKE

    def _send_alert(self) -> None:
        alert = self._outgoing.read()
        if alert and not self._transport.get_write_buffer_size():
            with contextlib.suppress(OSError):
                os.write(self._transport.get_extra_info("socket").fileno(), alert)


def _is_of_certificate(error: BaseException) -> bool:
    return isinstance(error, ssl.SSLCertVerificationError) or (
        isinstance(error, ssl.SSLError) and error.reason == _NO_CERTIFICATE
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return _NO_TLS.get(error.reason, error.reason.lower().replace("_", " "))
    if isinstance(error, ConnectionError):
        return "it hung up"
    return str(error) or type(error).__name__


RETRY_S: Final = 5.0
"""Time (s) after a store could not be read or used, in which new connections do not try to read it again."""
WARNING_INTERVAL_S: Final = 86_400.0
"""The shortest time (s) between two warnings about a certificate's age; a new connection causes each."""
_FileState = tuple[int, int, int]
_NO_FILE: Final = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A context, and the settings and files that it was built from."""

    settings: TlsSettings
    files: tuple[_FileState, ...]
    context: ssl.SSLContext
    pair: KeyPair
    identity: CertificateIdentity


class TlsListener:
    """Gives new connections the present context; follows settings and files of key and trust store."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, config: Config, name: str, clock: Clock | None = None
    ) -> None:
        """Read the stores. Raises StoreError when the settings or the stores can't be used."""
        self._loop = loop
        self._clock = clock or SystemClock()
        self._config = config
        self._name = name
        self._rules: tuple[Rule, ...] = parse_rules(
            str(config.of_listener(name, "ssl.principal.mapping.rules"))
        )
        self._allowed = AllowedChanges(
            subject=bool(config.of_listener(name, "ssl.allow.dn.changes")),
            alternative_names=bool(config.of_listener(name, "ssl.allow.san.changes")),
        )
        self._settings = tls_settings(config, name)
        self._present = self._first()
        self._files = self._present.files
        """The states of the files that were read last, also of files that were refused."""
        self._checked: _Loaded | None = None
        self._is_reading = False
        self._next_look_s = 0.0
        self._refusal = ""
        self._next_warning_s = 0.0
        self._warn_of_age()
        config.follow(self._follow_settings)

    def context(self) -> ssl.SSLContext:
        """Return the context for a connection; when a store's file changed, a thread begins to read it."""
        now_s = self._loop.time()
        if now_s >= self._next_warning_s:
            self._warn_of_age()
        if not self._is_reading and now_s >= self._next_look_s:
            files = _file_states(self._settings)
            if files != self._files:
                self._files = files
                self._read()
        return self._present.context

    async def check(self, proposed: Config) -> None:
        """Read the stores of the proposed settings. Raises StoreError when the listener can't use them."""
        settings = tls_settings(proposed, self._name)
        if settings.trust_store and not self._settings.trust_store:
            raise StoreError("a trust store can't be added to a listener that was started without one")
        try:
            loaded = await self._loop.run_in_executor(None, _load, settings)
        except StoreError:
            raise
        except Exception as error:
            raise StoreError(f"{type(error).__name__}: {error}") from error
        complaint = change_complaint(self._present.identity, loaded.identity, self._allowed)
        if complaint is not None:
            raise StoreError(complaint)
        self._checked = loaded

    def take_checked(self) -> None:
        """Use the stores checked last for new connections, if the listener has these settings now."""
        checked, self._checked = self._checked, None
        if checked is not None and checked.settings == self._settings:
            self._take(checked)

    def principal(self, transport: asyncio.Transport) -> str:
        """Return the principal of a client that has finished its handshake. Raises Unidentified."""
        certificate = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if not certificate:
            return ANONYMOUS
        try:
            return user(principal_name(subject_text(certificate), self._rules))
        except NoRuleMatches as error:
            raise Unidentified(str(error)) from None
        except Exception as error:
            raise Unidentified(f"the subject of the client's certificate can't be read: {error}") from error

    def _first(self) -> _Loaded:
        """Read the stores at the start. Raises StoreError."""
        try:
            return _load(self._settings)
        except StoreError as error:
            altered = self._config.altered_on_listener(self._name)
            stores = [name for name in altered if "store" in name]
            if not stores:
                raise
            raise StoreError(
                f"{error} ({', '.join(stores)} was altered while the gateway ran; put the file back)"
            ) from None

    def _follow_settings(self) -> None:
        """Use the stores of altered settings: those checked before, otherwise those a thread reads now."""
        settings = tls_settings(self._config, self._name)
        if settings == self._settings:
            return
        self._settings = settings
        if self._checked is not None and self._checked.settings == settings:
            self.take_checked()
        elif not self._is_reading:
            self._read()

    def _read(self) -> None:
        try:
            reading = self._loop.run_in_executor(None, _load, self._settings)
        except RuntimeError as error:  # the machine has no thread left
            self._keep(str(error))
            return
        self._is_reading = True
        reading.add_done_callback(self._renew)

    def _renew(self, reading: asyncio.Future[_Loaded]) -> None:
        self._is_reading = False
        try:
            loaded = reading.result()
        except Exception as error:  # noqa: BLE001 - any error keeps the old certificate
            self._keep(str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}")
            return
        if (
            loaded.settings != self._settings
        ):  # The settings were altered meanwhile, so the stores are read again.
            self._read()
            return
        complaint = change_complaint(self._present.identity, loaded.identity, self._allowed)
        if complaint is None:
            self._take(loaded)
        else:
            self._keep(complaint)

    def _take(self, loaded: _Loaded) -> None:
        self._present = loaded
        self._files = loaded.files
        self._refusal = ""
        self._next_look_s = 0.0
        logger.info(
            "listener %s: certificate renewed, valid until %s",
            self._name,
            loaded.pair.certificate.not_valid_after_utc,
        )
        self._warn_of_age()

    def _keep(self, refusal: str) -> None:
        """Log once why the new store can't be used; check the files again soon: the reason may pass."""
        if refusal != self._refusal:
            logger.warning("listener %s keeps its certificate: %s", self._name, refusal)
        self._refusal = refusal
        self._files = ()
        self._next_look_s = self._loop.time() + RETRY_S

    @property
    def valid_until_ms(self) -> int:
        """The time (ms) at which the certificate that new connections get expires."""
        return int(self._present.pair.certificate.not_valid_after_utc.timestamp() * 1000)

    def _warn_of_age(self) -> None:
        self._next_warning_s = self._loop.time() + WARNING_INTERVAL_S
        warning = age_warning(self.valid_until_ms, self._clock.now_ms())
        if warning is not None:
            until = self._present.pair.certificate.not_valid_after_utc
            logger.warning("listener %s: %s (valid until %s)", self._name, warning, until)


def _load(settings: TlsSettings) -> _Loaded:
    """Read the stores. Raises StoreError."""
    # Take the state of the files before reading them. A file that is replaced meanwhile then has another
    # state, and is read again.
    files = _file_states(settings)
    context, pair = build_context(settings)
    if settings.trust_store and context.verify_mode is ssl.CERT_NONE:
        read_authorities(settings.trust_store)
    return _Loaded(settings, files, context, pair, identity_of(pair))


def _file_states(settings: TlsSettings) -> tuple[_FileState, ...]:
    stores = (settings.key_store, settings.trust_store)
    return tuple(_file_state(store.location) for store in stores if store.location)


def tls_settings(config: Config, name: str) -> TlsSettings:
    def texts(setting: str) -> tuple[str, ...]:
        value = config.of_listener(name, setting)
        return value if isinstance(value, tuple) else ()

    key_store, trust_store = configured_stores(config, name)
    return TlsSettings(
        key_store=key_store,
        trust_store=trust_store,
        client_auth=_client_auth(config, name),
        versions=texts("ssl.enabled.protocols"),
        cipher_suites=texts("ssl.cipher.suites"),
    )


def _client_auth(config: Config, name: str) -> str:
    """Return whether clients show a certificate; if they log in, only the own setting counts (KIP-684)."""
    if not config.protocol_of(name).has_logins:
        return str(config.of_listener(name, "ssl.client.auth"))
    return str(config.own_of_listener(name, "ssl.client.auth") or "none")


def _file_state(location: str) -> _FileState:
    """Return the properties of a file that change when somebody replaces the file."""
    try:
        found = Path(location).stat()
    except (OSError, ValueError):
        return _NO_FILE
    return found.st_ino, found.st_mtime_ns, found.st_size
