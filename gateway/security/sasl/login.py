"""The state of a login on one connection of a listener with SASL: which requests it accepts in which phase.

    phase        ApiVersions     SaslHandshake     SaslAuthenticate   others
    NEW          answer, KNOWN   handshake         close              close
    KNOWN        close           handshake         close              close
    REQUESTS     refuse          refuse            token              refuse       after SaslHandshake v1
    BARE         every frame is a token, without header                            after SaslHandshake v0
    LOGGED_IN    serve           re-authenticate   serve              serve

"Refuse" answers ILLEGAL_SASL_STATE and closes; "close" closes without an answer. A session that is over
closes at the next request, unless this is the SaslHandshake of a re-authentication (KIP-368). Source: Kafka's
SaslServerAuthenticator, KafkaChannel.

The client's side of PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512, for gateways that log in to brokers.

Source: RFC 4616, RFC 5802, Kafka's ScramSaslClient.
"""

from __future__ import annotations

import base64
import enum
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from seqgate.gateway.security.sasl.exchange import Exchange, LoggedIn, LoginRefused, Mechanism
from seqgate.gateway.security.sasl.scram_credential import MAX_ITERATIONS, ScramHash, salt_password

SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
REAUTHENTICATION_INTERVAL_S: Final = 1.0
"""The shortest time (s) between the starts of two re-authentications; an earlier SaslHandshake does not start
one.
"""

LONGEST_SESSION_MS: Final = 10**16
"""A longer lifetime of a session is cut to this one, which all clients can read."""


class Phase(enum.Enum):
    NEW = enum.auto()
    KNOWN = enum.auto()
    """The client has got an answer to ApiVersions."""
    REQUESTS = enum.auto()
    BARE = enum.auto()
    LOGGED_IN = enum.auto()
    OVER = enum.auto()
    """The login failed; the connection closes."""


class SaslRoute(enum.Enum):
    """The treatment of a request."""

    SERVE = enum.auto()
    """The request is served as on a listener without SASL."""
    VERSIONS = enum.auto()
    """The request is served; unless its answer is an error, the caller then calls `Login.versions_sent`."""
    HANDSHAKE = enum.auto()
    TOKEN_REQUEST = enum.auto()
    BARE_TOKEN = enum.auto()
    REFUSE = enum.auto()
    CLOSE = enum.auto()


class MechanismChoice(enum.Enum):
    """The outcome of a SaslHandshake."""

    ACCEPTED = enum.auto()
    UNKNOWN_MECHANISM = enum.auto()
    """The answer lists the mechanisms, then the connection closes."""
    OTHER_MECHANISM = enum.auto()
    """Re-authentication by another mechanism than the login's: accepted, then the connection closes."""
    CLOSE = enum.auto()


_BEFORE_TOKENS: Final = {
    (Phase.NEW, API_VERSIONS): SaslRoute.VERSIONS,
    (Phase.NEW, SASL_HANDSHAKE): SaslRoute.HANDSHAKE,
    (Phase.KNOWN, SASL_HANDSHAKE): SaslRoute.HANDSHAKE,
}


class Offer(msgspec.Struct, frozen=True):
    """A listener's mechanism. `reauth_ms`: time after which its clients must log in again; 0 for never."""

    mechanism: Mechanism
    reauth_ms: int = 0


class _Session(msgspec.Struct, frozen=True):
    """A login that has succeeded. `ends_s` is the time of the event loop at which it ends; None for never."""

    logged_in: LoggedIn
    mechanism: str
    ends_s: float | None


class Login:
    """The login of one connection, and its later re-authentications."""

    __slots__ = ("_exchange", "_mechanism", "_offers", "_reauthenticated_s", "_session", "phase")

    def __init__(self, offers: Mapping[str, Offer]) -> None:
        """Begin without a login. `offers` are the mechanisms of the listener, by their names."""
        self._offers = offers
        self.phase = Phase.NEW
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._session: _Session | None = None
        self._reauthenticated_s: float | None = None

    @property
    def mechanism(self) -> str:
        """The name of the mechanism that the last handshake chose; empty before it."""
        return self._mechanism

    @property
    def exchange(self) -> Exchange:
        """The exchange of tokens of the login in progress."""
        assert self._exchange is not None
        return self._exchange

    @property
    def is_reauthentication(self) -> bool:
        """Whether the client has logged in before."""
        return self._session is not None

    @property
    def never_ends(self) -> bool:
        """Whether the client is logged in until it hangs up, so that no request need be checked any more."""
        return self.phase is Phase.LOGGED_IN and self._session is not None and self._session.ends_s is None

    def route(self, api_key: int, now_s: float) -> SaslRoute:
        """Return the treatment of the next request; in the phase BARE the API key is ignored."""
        phase = self.phase
        if phase is Phase.LOGGED_IN:
            return self._route_logged_in(api_key, now_s)
        if phase is Phase.BARE:
            return SaslRoute.BARE_TOKEN
        if phase is Phase.REQUESTS:
            return SaslRoute.TOKEN_REQUEST if api_key == SASL_AUTHENTICATE else SaslRoute.REFUSE
        return _BEFORE_TOKENS.get((phase, api_key), SaslRoute.CLOSE)

    def _route_logged_in(self, api_key: int, now_s: float) -> SaslRoute:
        assert self._session is not None
        ends_s = self._session.ends_s
        if ends_s is None:
            return SaslRoute.SERVE
        last_s = self._reauthenticated_s
        if api_key == SASL_HANDSHAKE and (last_s is None or now_s - last_s >= REAUTHENTICATION_INTERVAL_S):
            self._reauthenticated_s = now_s
            return SaslRoute.HANDSHAKE
        return SaslRoute.SERVE if now_s < ends_s else SaslRoute.CLOSE

    def versions_sent(self) -> None:
        """Record that the client has got an answer to ApiVersions."""
        self.phase = Phase.KNOWN

    def handshake(self, mechanism: str, *, bare: bool) -> MechanismChoice:
        """Choose the mechanism. `bare`: its tokens come without headers (SaslHandshake v0)."""
        offer = self._offers.get(mechanism)
        self.phase = Phase.OVER
        if offer is None:
            return MechanismChoice.CLOSE if self.is_reauthentication else MechanismChoice.UNKNOWN_MECHANISM
        if self._session is not None and self._session.mechanism != mechanism:
            return MechanismChoice.OTHER_MECHANISM
        self._mechanism = mechanism
        self._exchange = offer.mechanism.begin()
        self.phase = Phase.BARE if bare else Phase.REQUESTS
        return MechanismChoice.ACCEPTED

    def succeed(self, logged_in: LoggedIn, now_ms: int, now_s: float) -> int:
        """Log the client in; return the lifetime of its session (ms), 0 for an unlimited one. Raises
        LoginRefused for a re-authentication as another principal.
        """
        if self._session is not None and self._session.logged_in.principal != logged_in.principal:
            raise LoginRefused(
                f"Cannot change principals during re-authentication from {self._session.logged_in.principal} "
                f"to {logged_in.principal}",
                principal=logged_in.principal,
            )
        lifetime_ms = _lifetime_ms(logged_in.expires_at_ms, self._offers[self._mechanism].reauth_ms, now_ms)
        ends_s = None if lifetime_ms is None else now_s + lifetime_ms / 1000
        self._session = _Session(logged_in, self._mechanism, ends_s)
        self._exchange = None
        self.phase = Phase.LOGGED_IN
        return lifetime_ms or 0

    def fail(self) -> None:
        """End the login; the connection closes."""
        self._exchange = None
        self.phase = Phase.OVER


def _lifetime_ms(expires_at_ms: int | None, reauth_ms: int, now_ms: int) -> int | None:
    """Return the lifetime of a session; None when nothing ends it."""
    limits = [reauth_ms] if reauth_ms else []
    if expires_at_ms is not None:
        limits.append(max(0, expires_at_ms - now_ms))
    return min(*limits, LONGEST_SESSION_MS) if limits else None


PLAIN: Final = "PLAIN"
_MOST_ITERATIONS: Final = 100 * MAX_ITERATIONS
"""Iterations that a server may ask for; a login that asks for more is refused, because it would take seconds
of CPU.
"""
_FIRST: Final = re.compile(rb"r=([\x21-+\--~]+),s=([A-Za-z0-9+/=]+),i=(\d{1,9})(?:,.*)?", re.DOTALL)
_CHANNEL_BINDING: Final = b"c=" + base64.b64encode(b"n,,")


class ClientLogin(Protocol):
    """The client's side of one login."""

    def first(self) -> bytes:
        """Return the first message."""

    def step(self, answer: bytes) -> bytes | None:
        """Return the next message; None when the login is complete. Raises LoginRefused for a wrong answer. A
        step of SCRAM takes milliseconds, so call it in another thread than that of the event loop.
        """


def client_login(
    mechanism: str, username: str, password: str, new_nonce: Callable[[], bytes] | None = None
) -> ClientLogin:
    """Begin a login; `mechanism` is PLAIN or one of SCRAM."""
    if mechanism == PLAIN:
        return _PlainLogin(username, password)
    (hashing,) = (each for each in ScramHash if each.mechanism == mechanism)
    return _ScramLogin(hashing, username, password, (new_nonce or _random_nonce)())


def _random_nonce() -> bytes:
    return secrets.token_urlsafe(24).encode()


class _PlainLogin:
    def __init__(self, username: str, password: str) -> None:
        self._message = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def step(self, answer: bytes) -> bytes | None:  # noqa: ARG002 - the answer says nothing
        return None


class _ScramLogin:
    def __init__(self, hashing: ScramHash, username: str, password: str, nonce: bytes) -> None:
        self._hashing = hashing
        self._password = password.encode()
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C").encode()
        self._bare = b"n=" + name + b",r=" + nonce
        self._signature = b""
        """The signature that the server must show; empty until the server was answered."""

    def first(self) -> bytes:
        return b"n,," + self._bare

    def step(self, answer: bytes) -> bytes | None:
        if not self._signature:
            return self._proof(answer)
        if not hmac.compare_digest(answer, b"v=" + base64.b64encode(self._signature)):
            raise LoginRefused("the server does not prove that it knows the password")
        return None

    def _proof(self, answer: bytes) -> bytes:
        """Return the message that proves the password, and note the proof that is expected in return."""
        found = _FIRST.fullmatch(answer)
        if found is None:
            raise LoginRefused("the server's first message is malformed: it must follow SCRAM (RFC 5802)")
        nonce, salt, iterations = found[1], base64.b64decode(found[2]), int(found[3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise LoginRefused("the server's nonce does not begin with the client's")
        if not 0 < iterations <= _MOST_ITERATIONS:
            raise LoginRefused(f"the server asks for {iterations} iterations; at most {_MOST_ITERATIONS}")
        hashing = self._hashing
        salted = salt_password(hashing, self._password, salt, iterations)
        client_key = hashing.hmac(salted, b"Client Key")
        without_proof = _CHANNEL_BINDING + b",r=" + nonce
        signed = b",".join((self._bare, answer, without_proof))
        signature = hashing.hmac(hashing.digest(client_key), signed)
        proof = bytes(key ^ sign for key, sign in zip(client_key, signature, strict=True))
        self._signature = hashing.hmac(hashing.hmac(salted, b"Server Key"), signed)
        return without_proof + b",p=" + base64.b64encode(proof)


# Counts of failed logins, and which of them get a line in the log.

LINE_INTERVAL_S: Final = 10.0
"""Failed logins of one address within this time (s) share a line of the log."""
ADDRESSES: Final = 1_000
"""Addresses that are remembered; a further address replaces the one that was logged first."""


class FailedLogins:
    """The failed logins of all listeners."""

    def __init__(self) -> None:
        self.total = 0
        self._lines: dict[str, tuple[float, int]] = {}
        """The time (s) of the last line of each address, and the failures since."""

    def note(self, host: str, now_s: float) -> int | None:
        """Count a failure; return the number of failures of the address that got no log line before; None
        when this failure gets no line either.
        """
        self.total += 1
        logged_s, unlogged = self._lines.get(host, (None, 0))
        if logged_s is not None and now_s - logged_s < LINE_INTERVAL_S:
            self._lines[host] = logged_s, unlogged + 1
            return None
        self._lines.pop(host, None)
        if len(self._lines) >= ADDRESSES:
            del self._lines[next(iter(self._lines))]
        self._lines[host] = now_s, 0
        return unlogged
