"""The TLS of one listener: its context, which a replaced key store renews, and the principals of its clients."""

from __future__ import annotations

import asyncio
import logging
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from gateway.config import Config
from gateway.config.principal_rules import NoRuleMatches, Rule, parse_rules, principal_name
from gateway.security.errors import StoreError
from gateway.security.principals import ANONYMOUS, Unidentified, user
from gateway.security.stores import KeyPair, Store
from gateway.security.subject import subject_text
from gateway.security.tls_context import TlsSettings, build_context, identity_of

logger = logging.getLogger(__name__)

RETRY_S: Final = 5.0
"""Time (s) after which a store that could not be taken is read again, at the next connection."""
_FileState = tuple[int, int, int]
_NO_FILE: Final = (0, 0, 0)


class TlsListener:
    """Gives new connections the present context, and follows the files of the key store and the trust store."""

    def __init__(self, loop: asyncio.AbstractEventLoop, config: Config, name: str) -> None:
        """Read the stores. Raises StoreError when the settings or the stores can't be used."""
        self._loop = loop
        self._name = name
        self._settings = tls_settings(config, name)
        self._rules: tuple[Rule, ...] = parse_rules(
            str(config.of_listener(name, "ssl.principal.mapping.rules"))
        )
        self._files = self._file_states()
        self._context, pair = build_context(self._settings)
        self._identity = identity_of(pair)
        self._is_reading = False
        self._next_look_s = 0.0
        self._refusal = ""
        self._warn_of_age(pair)

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection. When a store's file changed, a thread begins to read it."""
        if not self._is_reading and self._loop.time() >= self._next_look_s:
            files = self._file_states()
            if files != self._files:
                self._files = files
                self._is_reading = True
                reading = self._loop.run_in_executor(None, build_context, self._settings)
                reading.add_done_callback(self._renew)
        return self._context

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
            raise Unidentified(f"the subject of its certificate can't be read: {error}") from error

    def _renew(self, reading: asyncio.Future[tuple[ssl.SSLContext, KeyPair]]) -> None:
        self._is_reading = False
        try:
            context, pair = reading.result()
        except Exception as error:  # noqa: BLE001 - whatever it is, the listener goes on, and tries again
            self._keep(str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}")
            return
        if identity_of(pair) != self._identity:
            self._keep(
                "that in the replaced store has another subject or other subject alternative names, which clients would "
                "not recognize"
            )
            return
        self._context = context
        self._refusal = ""
        logger.info(
            "listener %s: certificate renewed, valid until %s",
            self._name,
            pair.certificate.not_valid_after_utc,
        )
        self._warn_of_age(pair)

    def _keep(self, refusal: str) -> None:
        """Log, once, why the new store is not taken, and look at the files again soon: the reason may be over by then."""
        if refusal != self._refusal:
            logger.warning("listener %s keeps its certificate: %s", self._name, refusal)
        self._refusal = refusal
        self._files = ()
        self._next_look_s = self._loop.time() + RETRY_S

    def _warn_of_age(self, pair: KeyPair) -> None:
        until = pair.certificate.not_valid_after_utc
        if until < datetime.now(UTC):
            logger.warning(
                "listener %s: its certificate expired at %s, so clients refuse it", self._name, until
            )

    def _file_states(self) -> tuple[_FileState, ...]:
        stores = (self._settings.key_store, self._settings.trust_store)
        return tuple(_file_state(store.location) for store in stores if store.location)


def tls_settings(config: Config, name: str) -> TlsSettings:
    """Return the TLS settings of the listener of this name."""

    def text(setting: str) -> str | None:
        value = config.of_listener(name, setting)
        return str(value) if value else None

    def texts(setting: str) -> tuple[str, ...]:
        value = config.of_listener(name, setting)
        return value if isinstance(value, tuple) else ()

    return TlsSettings(
        key_store=Store(
            text("ssl.keystore.location"),
            text("ssl.keystore.type"),
            text("ssl.keystore.password"),
            text("ssl.keystore.key"),
            text("ssl.keystore.certificate.chain"),
            text("ssl.key.password"),
        ),
        trust_store=Store(
            text("ssl.truststore.location"),
            text("ssl.truststore.type"),
            text("ssl.truststore.password"),
            certificates=text("ssl.truststore.certificates"),
        ),
        client_auth=_client_auth(config, name),
        versions=texts("ssl.enabled.protocols"),
        cipher_suites=texts("ssl.cipher.suites"),
    )


def _client_auth(config: Config, name: str) -> str:
    """Return whether clients show a certificate. Where they log in, only the listener's own setting counts, as in Kafka (KIP-684)."""
    if not config.protocol_of(name).has_logins:
        return str(config.of_listener(name, "ssl.client.auth"))
    return str(config.own_of_listener(name, "ssl.client.auth") or "none")


def _file_state(location: str) -> _FileState:
    """Return the properties of a file that change when somebody replaces the file."""
    try:
        found = Path(location).stat()
    except OSError:
        return _NO_FILE
    return found.st_ino, found.st_mtime_ns, found.st_size
