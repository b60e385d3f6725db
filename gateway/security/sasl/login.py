"""The state of a login on one connection of a listener with SASL: which requests it accepts in which phase.

    phase        ApiVersions     SaslHandshake     SaslAuthenticate   others
    NEW          answer, KNOWN   handshake         close              close
    KNOWN        close           handshake         close              close
    REQUESTS     refuse          refuse            token              refuse       after SaslHandshake v1
    BARE         every frame is a token, without header                            after SaslHandshake v0
    LOGGED_IN    serve           re-authenticate   serve              serve

"Refuse" answers ILLEGAL_SASL_STATE and closes; "close" closes without an answer. A session that is over closes at the next request,
unless this is the SaslHandshake of a re-authentication (KIP-368). Source: Kafka's SaslServerAuthenticator, KafkaChannel.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gateway.security.sasl.exchange import Exchange, LoggedIn, LoginRefused, Mechanism

SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
REAUTHENTICATION_INTERVAL_S: Final = 1.0
"""The shortest time (s) between the starts of two re-authentications; an earlier SaslHandshake does not start one."""

LONGEST_SESSION_MS: Final = 10**16
"""A longer lifetime of a session is cut to this one, which all clients can read."""


class Phase(enum.Enum):
    """The phase of a login."""

    NEW = enum.auto()
    KNOWN = enum.auto()
    """The client has got an answer to ApiVersions."""
    REQUESTS = enum.auto()
    BARE = enum.auto()
    LOGGED_IN = enum.auto()
    OVER = enum.auto()
    """The login failed; the connection closes."""


class Route(enum.Enum):
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


class Handshake(enum.Enum):
    """The outcome of a SaslHandshake."""

    ACCEPTED = enum.auto()
    UNKNOWN_MECHANISM = enum.auto()
    """The answer lists the mechanisms, then the connection closes."""
    OTHER_MECHANISM = enum.auto()
    """A re-authentication with another mechanism than the login's: the answer accepts, then the connection closes."""
    CLOSE = enum.auto()


_BEFORE_TOKENS: Final = {
    (Phase.NEW, API_VERSIONS): Route.VERSIONS,
    (Phase.NEW, SASL_HANDSHAKE): Route.HANDSHAKE,
    (Phase.KNOWN, SASL_HANDSHAKE): Route.HANDSHAKE,
}


@dataclass(frozen=True, slots=True)
class Offer:
    """A mechanism of a listener. `reauth_ms` is the time after which its clients must log in again; 0 for never."""

    mechanism: Mechanism
    reauth_ms: int = 0


@dataclass(frozen=True, slots=True)
class _Session:
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

    def route(self, api_key: int, now_s: float) -> Route:
        """Return the treatment of the next request; in the phase BARE the API key is ignored."""
        phase = self.phase
        if phase is Phase.LOGGED_IN:
            return self._route_logged_in(api_key, now_s)
        if phase is Phase.BARE:
            return Route.BARE_TOKEN
        if phase is Phase.REQUESTS:
            return Route.TOKEN_REQUEST if api_key == SASL_AUTHENTICATE else Route.REFUSE
        return _BEFORE_TOKENS.get((phase, api_key), Route.CLOSE)

    def _route_logged_in(self, api_key: int, now_s: float) -> Route:
        assert self._session is not None
        ends_s = self._session.ends_s
        if ends_s is None:
            return Route.SERVE
        last_s = self._reauthenticated_s
        if api_key == SASL_HANDSHAKE and (last_s is None or now_s - last_s >= REAUTHENTICATION_INTERVAL_S):
            self._reauthenticated_s = now_s
            return Route.HANDSHAKE
        return Route.SERVE if now_s < ends_s else Route.CLOSE

    def versions_sent(self) -> None:
        """Record that the client has got an answer to ApiVersions."""
        self.phase = Phase.KNOWN

    def handshake(self, mechanism: str, *, bare: bool) -> Handshake:
        """Choose the mechanism. `bare`: its tokens come without headers (SaslHandshake v0)."""
        offer = self._offers.get(mechanism)
        self.phase = Phase.OVER
        if offer is None:
            return Handshake.CLOSE if self.is_reauthentication else Handshake.UNKNOWN_MECHANISM
        if self._session is not None and self._session.mechanism != mechanism:
            return Handshake.OTHER_MECHANISM
        self._mechanism = mechanism
        self._exchange = offer.mechanism.begin()
        self.phase = Phase.BARE if bare else Phase.REQUESTS
        return Handshake.ACCEPTED

    def succeed(self, logged_in: LoggedIn, now_ms: int, now_s: float) -> int:
        """Log the client in; return the lifetime of its session (ms), 0 for an unlimited one.

        Raises LoginRefused for a re-authentication as another principal.
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
