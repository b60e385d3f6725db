"""The logins of one listener with SASL: the parts that its connections share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from gateway.config import Config
from gateway.config.sasl import MAX_REAUTH_MS
from gateway.handlers.answering.api import Answer, Deferred, Peer
from gateway.runtime.loop.audit import AuditLog, FailedLogin
from gateway.runtime.loop.clock import Clock
from gateway.security.sasl.exchange import Mechanism
from gateway.security.sasl.login import FailedLogins, Offer
from gateway.server.handshake_turns import HandshakeTurns
from gateway.server.request_memory import RequestMemory

logger = logging.getLogger(__name__)

LOGIN_MEMORY_BYTES: Final = 16 << 20
"""Memory of all requests that arrive in parts before their login; requests beyond this memory wait.

A usual request of a login arrives whole and needs none of it.
"""
Begin = Callable[[memoryview, Any], Answer | Deferred | None]
"""Begins one request of a connection; `Dispatcher.begin` and `SaslDoor.begin` are such functions."""
MakeMechanisms = Callable[[str], Mapping[str, Mechanism]]
"""Returns the mechanisms of a listener, by their names. Raises LoginSettingsError."""


class RequestLimits(NamedTuple):
    """The size of the largest request of a connection, and the memory for requests that arrive in parts."""

    max_bytes: int
    memory: RequestMemory


class Logins:
    """The parts that the logins of all listeners share."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        make_mechanisms: MakeMechanisms,
        audit: AuditLog,
    ) -> None:
        self.audit = audit
        self.loop = loop
        self.clock = clock
        self.make_mechanisms = make_mechanisms
        self.memory = RequestMemory(LOGIN_MEMORY_BYTES)
        self.failed = FailedLogins()
        self.tasks: set[asyncio.Task[None]] = set()
        """The tasks of logins that wait, for example until a file is read again."""

    def note_refused_certificate(self, peer: Peer, reason: str) -> None:
        """Count and audit a client whose certificate is missing or not accepted: it failed to log in with TLS."""
        self.failed.total += 1
        self.audit.login_failed(FailedLogin(None, peer.peer_host, peer.listener_name, "TLS", reason))


class SaslListener:
    """The mechanisms and limits of one listener."""

    def __init__(
        self,
        logins: Logins,
        config: Config,
        name: str,
        serve: Begin,
        served_limits: RequestLimits,
        *,
        serve_unknown: Begin,
        turns: HandshakeTurns,
    ) -> None:
        """Make the mechanisms. Raises LoginSettingsError.

        `serve` begins the requests of clients that are logged in, within `served_limits`; `serve_unknown` begins the ApiVersions
        of the others. The steps of a login take their time from `turns`.
        """
        self.turns = turns
        self.serve_unknown = serve_unknown
        self.logins = logins
        self.serve = serve
        self.served_limits = served_limits
        self.offers = {
            mechanism: Offer(made, _whole(config.of_mechanism(name, mechanism, MAX_REAUTH_MS)))
            for mechanism, made in logins.make_mechanisms(name).items()
        }
        self.delay_s = config.int("connection.failed.authentication.delay.ms") / 1000
        self.limits = RequestLimits(config.int("sasl.server.max.receive.size"), logins.memory)
        self.timeout_s = config.int("seqgate.sasl.login.timeout.ms") / 1000
        self._name = name

    def note_failure(self, peer: Peer, mechanism: str, reason: str, principal: str | None) -> None:
        """Count, log and audit a failed login, without its secrets. `principal` is None for an unknown user."""
        self.logins.audit.login_failed(FailedLogin(principal, peer.peer_host, self._name, mechanism, reason))
        unlogged = self.logins.failed.note(peer.peer_host, self.logins.loop.time())
        if unlogged is not None:
            before = (
                f" ({unlogged} failed logins of its address before this one are not logged)"
                if unlogged
                else ""
            )
            logger.warning(
                "a login of %s to listener %s with %s failed: %s%s",
                peer.name,
                self._name,
                mechanism,
                reason,
                before,
            )


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value
