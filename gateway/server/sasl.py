"""The login of clients on a listener with SASL: no request is served before the client has logged in.

`Login` is the state of the login of one connection. It says which requests the connection accepts in which
phase:

    phase        ApiVersions     SaslHandshake     SaslAuthenticate   others
    NEW          answer, KNOWN   handshake         close              close
    KNOWN        close           handshake         close              close
    REQUESTS     refuse          refuse            token              refuse       after SaslHandshake v1
    BARE         every frame is a token, without header                            after SaslHandshake v0
    LOGGED_IN    serve           re-authenticate   serve              serve

"Refuse" answers ILLEGAL_SASL_STATE and closes; "close" closes without an answer. A session that is over
closes at the next request, unless this is the SaslHandshake of a re-authentication (KIP-368).

`SaslDoor` takes the requests of the connection and answers those of the login. `SaslListener` has what the
connections of a listener share, `Logins` what all listeners share. One function makes each mechanism. The
function imports its mechanism only when a listener has it, so that other gateways start without cryptography.

Source: Kafka's SaslServerAuthenticator, KafkaChannel.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from kio.schema.errors import ErrorCode

from seqgate.gateway.config import Config
from seqgate.gateway.config.load import enabled_mechanisms
from seqgate.gateway.config.sasl import JAAS, MAX_REAUTH_MS, USERS_FILE, parse_jaas
from seqgate.gateway.config.setting import SettingValue
from seqgate.gateway.handlers.answering.api import CloseConnection, Deferred, HoldingBack, Peer, ResponseBytes
from seqgate.gateway.protocol.error_answers import error_answer, has_messages
from seqgate.gateway.protocol.frames import (
    MalformedRequest,
    RequestHeader,
    parse_request_header,
    skip_tagged_fields,
)
from seqgate.gateway.protocol.kafka_4_4 import api_name
from seqgate.gateway.protocol.messages import build, encode_response, request_schema, response_module
from seqgate.gateway.runtime.loop.audit import AuditLog, FailedLogin
from seqgate.gateway.runtime.loop.clock import Clock
from seqgate.gateway.runtime.loop.log_output import SparseLines
from seqgate.gateway.runtime.loop.request_memory import RequestMemory
from seqgate.gateway.runtime.services import Services
from seqgate.gateway.security.principals import LoginSettingsError
from seqgate.gateway.security.sasl.exchange import Exchange, LoggedIn, LoginRefused, Mechanism, SaslStep
from seqgate.gateway.server.dispatcher import StartedCoroutine, begin
from seqgate.gateway.server.handshake_turns import HandshakeTurns

if TYPE_CHECKING:
    from seqgate.gateway.server.connection import Connection

logger = logging.getLogger(__name__)

SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36
REAUTHENTICATION_INTERVAL_S: Final = 1.0
"""The shortest time (s) between two re-authentications; an earlier SaslHandshake does not start one."""

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
    __slots__ = ("_exchange", "_offers", "_reauthenticated_s", "_session", "mechanism", "phase")

    def __init__(self, offers: Mapping[str, Offer]) -> None:
        """Begin without a login. `offers` are the mechanisms of the listener, by their names."""
        self._offers = offers
        self.phase = Phase.NEW
        self.mechanism = ""
        """The name of the mechanism that the last handshake chose; empty before it."""
        self._exchange: Exchange | None = None
        self._session: _Session | None = None
        self._reauthenticated_s: float | None = None

    @property
    def exchange(self) -> Exchange:
        """The exchange of tokens of the login in progress."""
        assert self._exchange is not None
        return self._exchange

    @property
    def is_reauthentication(self) -> bool:
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
        self.phase = Phase.KNOWN

    def handshake(self, mechanism: str, *, bare: bool) -> MechanismChoice:
        """Choose the mechanism. `bare`: its tokens come without headers (SaslHandshake v0)."""
        offer = self._offers.get(mechanism)
        self.phase = Phase.OVER
        if offer is None:
            return MechanismChoice.CLOSE if self.is_reauthentication else MechanismChoice.UNKNOWN_MECHANISM
        if self._session is not None and self._session.mechanism != mechanism:
            return MechanismChoice.OTHER_MECHANISM
        self.mechanism = mechanism
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
        lifetime_ms = _lifetime_ms(logged_in.expires_at_ms, self._offers[self.mechanism].reauth_ms, now_ms)
        ends_s = None if lifetime_ms is None else now_s + lifetime_ms / 1000
        self._session = _Session(logged_in, self.mechanism, ends_s)
        self._exchange = None
        self.phase = Phase.LOGGED_IN
        return lifetime_ms or 0

    def fail(self) -> None:
        self._exchange = None
        self.phase = Phase.OVER


def _lifetime_ms(expires_at_ms: int | None, reauth_ms: int, now_ms: int) -> int | None:
    """Return the lifetime of a session; None when nothing ends it."""
    limits = [reauth_ms] if reauth_ms else []
    if expires_at_ms is not None:
        limits.append(max(0, expires_at_ms - now_ms))
    return min(*limits, LONGEST_SESSION_MS) if limits else None


# The answers of a login.

REFUSED_BYTES: Final = 1024
"""The largest request (bytes) in place of a token that is decoded. A larger one gets no answer, because the
client has not logged in yet. Kafka decodes requests of any size.
"""
REFUSED_ROWS: Final = 32
"""A request whose refusal would have more rows gets no answer: few bytes would make a large one."""
_size = Struct(">i").pack


def token_answer(
    header: RequestHeader | None, token: bytes, lifetime_ms: int = 0, refusal: str | None = None
) -> bytes:
    """Return the answer with the server's token and, once logged in, the session's lifetime; or a refusal.
    Without a header (after SaslHandshake v0) tokens are bare and a refusal is nothing: the connection closes.
    """
    if header is None:
        return _size(len(token)) + token if refusal is None else b""
    response = build(
        response_module(SASL_AUTHENTICATE, header.api_version).SaslAuthenticateResponse,
        error_code=ErrorCode.none if refusal is None else ErrorCode.sasl_authentication_failed,
        error_message=refusal or "",
        auth_bytes=token,
        session_lifetime=timedelta(milliseconds=lifetime_ms),
    )
    return encode_response(SASL_AUTHENTICATE, header.correlation_id, response)


def handshake_answer(header: RequestHeader, error: ErrorCode, mechanisms: Iterable[str]) -> bytes:
    """Return the answer of a SaslHandshake, which lists the mechanisms of the listener."""
    made = response_module(SASL_HANDSHAKE, header.api_version)
    response = made.SaslHandshakeResponse(error_code=error, mechanisms=tuple(mechanisms))
    return encode_response(SASL_HANDSHAKE, header.correlation_id, response)


def illegal_state_answer(header: RequestHeader, frame: memoryview) -> bytes:
    """Return the answer ILLEGAL_SASL_STATE to a request instead of a token; empty where no such answer
    exists. Raises MalformedRequest, and CloseConnection for an API or version that does not exist.
    """
    if header.api_key == API_VERSIONS and not has_messages(API_VERSIONS, header.api_version):
        header = header._replace(api_version=0)  # the answer to a version that is too new (KIP-511)
    if not has_messages(header.api_key, header.api_version):
        raise CloseConnection(
            f"the client sent API key {header.api_key} version {header.api_version}, which does not exist, "
            "instead of a token"
        )
    if len(frame) > REFUSED_BYTES:
        return b""
    return error_answer(
        header.api_key,
        header.api_version,
        header.correlation_id,
        request_body(header, frame),
        ErrorCode.illegal_sasl_state,
        f"{api_name(header.api_key)} came instead of the next token of the login",
        most_rows=REFUSED_ROWS,
    )


def request_body(header: RequestHeader, frame: memoryview) -> Any:
    """Return the fields of a request. Raises MalformedRequest."""
    schema = request_schema(header.api_key, header.api_version)
    position = header.body_position
    if schema.flexible:
        position = skip_tagged_fields(frame, position)
    return schema.read(frame, position)[0]


HANDSHAKE_VERSIONS: Final = range(2)
AUTHENTICATE_VERSIONS: Final = range(3)
KEY_BYTES: Final = 2
SHOWN_CHARACTERS: Final = 64
"""Characters of an unknown mechanism's name that the log shows."""
_ERROR: Final = slice(8, 10)
"""The place of the error code in an answer of ApiVersions, after size and correlation id."""


class SaslDoor:
    __slots__ = ("_connection", "_listener", "_login", "_timeout")

    def __init__(self, listener: SaslListener, connection: Connection) -> None:
        self._listener = listener
        self._connection = connection
        self._login = Login(listener.offers)
        self._timeout = listener.logins.loop.call_later(listener.timeout_s, self._give_up)
        connection.take(self.begin, listener.limits)
        connection.when_gone(self, self._leave)

    def begin(self, frame: memoryview, peer: Any) -> ResponseBytes | Deferred | None:
        """Begin one request. Raises MalformedRequest or CloseConnection if the connection must be closed."""
        api_key = int.from_bytes(frame[:KEY_BYTES], "big", signed=True)
        route = self._login.route(api_key, self._listener.logins.loop.time())
        if route is SaslRoute.SERVE:
            return self._listener.serve(frame, peer)
        if not frame:
            raise MalformedRequest("the request is empty")
        if route is SaslRoute.BARE_TOKEN:
            return self._token(bytes(frame), None)
        if route is SaslRoute.CLOSE:
            raise CloseConnection(self._why_closed(api_key))
        if route is SaslRoute.VERSIONS:
            return self._versions(frame, peer)
        header = parse_request_header(frame)
        if route is SaslRoute.HANDSHAKE:
            return self._handshake(header, frame)
        if route is SaslRoute.REFUSE:
            return self._refuse(header, frame)
        _check_version(header, AUTHENTICATE_VERSIONS)
        return self._token(bytes(request_body(header, frame).auth_bytes), header)

    # the requests of a login

    def _versions(self, frame: memoryview, peer: Any) -> ResponseBytes | Deferred | None:
        answer = self._listener.serve_unknown(frame, peer)
        if not isinstance(answer, bytes) or not any(answer[_ERROR]):
            self._login.versions_sent()
        return answer

    def _handshake(self, header: RequestHeader, frame: memoryview) -> ResponseBytes | Deferred:
        _check_version(header, HANDSHAKE_VERSIONS)
        mechanism = request_body(header, frame).mechanism
        outcome = self._login.handshake(mechanism, bare=header.api_version == 0)
        if outcome is MechanismChoice.CLOSE:
            raise CloseConnection(
                "the client began to log in again with a mechanism that the listener does not have"
            )
        offered = self._listener.offers
        if outcome is MechanismChoice.UNKNOWN_MECHANISM:
            answer = handshake_answer(header, ErrorCode.unsupported_sasl_mechanism, offered)
            return self._fail(
                answer, repr(mechanism[:SHOWN_CHARACTERS]), f"the listener has {', '.join(offered)}"
            )
        answer = handshake_answer(header, ErrorCode.none, offered)
        if outcome is MechanismChoice.OTHER_MECHANISM:
            return self._fail(answer, mechanism, f"the client must log in again with {self._login.mechanism}")
        return answer

    def _refuse(self, header: RequestHeader, frame: memoryview) -> Deferred:
        answer = illegal_state_answer(header, frame)
        return self._fail(
            answer, self._login.mechanism, f"the client sent API key {header.api_key} instead of a token"
        )

    def _token(self, token: bytes, header: RequestHeader | None) -> ResponseBytes | Deferred:
        """Begin one step of the login, now or when the login steps of other connections leave time for it."""
        turns = self._listener.turns
        if turns.has_time():
            with turns.measured():
                return self._step(token, header)
        deferred = HoldingBack()
        turns.wait(self._connection.peer_host, partial(self._take_turn, token, header, deferred))
        return deferred

    def _take_turn(self, token: bytes, header: RequestHeader | None, deferred: Deferred) -> None:
        if deferred.abandoned:
            return
        try:
            with self._listener.turns.measured():
                answer = self._step(token, header)
        except Exception:
            logger.exception("a login of %s failed", self._connection.name)
            deferred.fail()
        else:
            deferred.follow(answer)

    def _step(self, token: bytes, header: RequestHeader | None) -> ResponseBytes | Deferred:
        try:
            begun = begin(self._login.exchange.step(token))
            if isinstance(begun, StartedCoroutine):
                return self._wait(begun, header)
            return self._answered(begun.value, header)
        except LoginRefused as refusal:
            return self._refused(refusal, header)

    def _wait(self, begun: StartedCoroutine[SaslStep], header: RequestHeader | None) -> Deferred:
        deferred = HoldingBack()

        async def finish() -> None:
            try:
                deferred.follow(self._answered(await begun, header))
            except LoginRefused as refusal:
                deferred.follow(self._refused(refusal, header))
            except Exception:
                logger.exception("a login of %s failed", self._connection.name)
                deferred.fail()

        logins = self._listener.logins
        task = logins.loop.create_task(finish())
        logins.tasks.add(task)
        task.add_done_callback(logins.tasks.discard)
        return deferred

    def _answered(self, step: SaslStep, header: RequestHeader | None) -> ResponseBytes:
        """Return the answer to a token. Raises LoginRefused."""
        lifetime_ms = 0
        if step.logged_in is not None:
            logins = self._listener.logins
            lifetime_ms = self._login.succeed(step.logged_in, logins.clock.now_ms(), logins.loop.time())
            self._let_in(step.logged_in)
        return token_answer(header, step.token, lifetime_ms)

    def _let_in(self, logged_in: LoggedIn) -> None:
        self._timeout.cancel()
        connection = self._connection
        connection.principal = logged_in.principal
        connection.token_id = logged_in.token_id
        if self._login.never_ends:
            connection.forget_gone(self)
        connection.take(
            self._listener.serve if self._login.never_ends else self.begin, self._listener.served_limits
        )

    # failures

    def _refused(self, refusal: LoginRefused, header: RequestHeader | None) -> Deferred:
        answer = token_answer(header, b"", refusal=str(refusal))
        return self._fail(answer, self._login.mechanism, str(refusal), refusal.principal)

    def _fail(self, answer: bytes, mechanism: str, reason: str, principal: str | None = None) -> Deferred:
        """Fail the login: answer late, to slow down the guessing of passwords, then close the connection."""
        self._login.fail()
        connection, listener = self._connection, self._listener
        listener.note_failure(connection, mechanism, reason, principal)
        last = HoldingBack()
        timer = listener.logins.loop.call_later(listener.delay_s, last.resolve_last, answer)
        last.on_abandoned = timer.cancel
        return last

    def _why_closed(self, api_key: int) -> str:
        if self._login.phase is Phase.LOGGED_IN:
            return "its session is over, and it did not log in again"
        return f"it sent API key {api_key} before it logged in; the client must use SASL"

    def _give_up(self) -> None:
        self._connection.close(f"it did not log in within {self._listener.timeout_s * 1000:.0f} ms")

    def _leave(self) -> None:
        """Drop the reference to the connection, which has ended."""
        self._timeout.cancel()
        self._connection.take(self._listener.serve, self._listener.served_limits)


def _check_version(header: RequestHeader, versions: range) -> None:
    if header.api_version not in versions:
        raise CloseConnection(
            f"the client sent API key {header.api_key} version {header.api_version}, which is not served"
        )


LOGIN_MEMORY_BYTES: Final = 16 << 20
"""Memory of all requests that arrive in parts before their login; requests beyond this memory wait. A usual
request of a login arrives whole and needs none of it.
"""
LINE_INTERVAL_S: Final = 10.0
"""Failed logins of one address within this time (s) share a line of the log."""
Begin = Callable[[memoryview, Any], ResponseBytes | Deferred | None]
"""Begins one request of a connection; `Dispatcher.begin` and `SaslDoor.begin` are such functions."""
MakeMechanisms = Callable[[str], Mapping[str, Mechanism]]
"""Returns the mechanisms of a listener, by their names. Raises LoginSettingsError."""


class RequestLimits(NamedTuple):
    """The size of the largest request of a connection, and the memory for requests that arrive in parts."""

    max_bytes: int
    memory: RequestMemory


class Logins:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, make_mechanisms: MakeMechanisms, audit: AuditLog
    ) -> None:
        self.audit = audit
        self.loop = loop
        self.clock = clock
        self.make_mechanisms = make_mechanisms
        self.memory = RequestMemory(LOGIN_MEMORY_BYTES)
        self.failures = 0
        """The failed logins of all listeners, and clients whose certificate was missing or refused."""
        self.lines = SparseLines[str](LINE_INTERVAL_S)
        """The log lines about failed logins, by the address of the client."""
        self.tasks: set[asyncio.Task[None]] = set()
        """The tasks of logins that wait, for example until a file is read again."""

    def note_refused_certificate(self, peer: Peer, reason: str) -> None:
        """Count and audit a client that failed to log in with TLS: its certificate is missing or refused."""
        self.failures += 1
        self.audit.login_failed(FailedLogin(None, peer.peer_host, peer.listener_name, "TLS", reason))


class SaslListener:
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
        """Make the mechanisms. Raises LoginSettingsError. `serve` begins requests after a login, within
        `served_limits`; `serve_unknown` the ApiVersions of others. Login steps take their time from `turns`.
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
        """Count, log and audit a failed login, without secrets. `principal` is None for an unknown user."""
        self.logins.audit.login_failed(FailedLogin(principal, peer.peer_host, self._name, mechanism, reason))
        self.logins.failures += 1
        unlogged = self.logins.lines.left_out(peer.peer_host, self.logins.loop.time())
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


Values = Callable[[str], SettingValue | None]
"""The values of settings for one mechanism of a listener, by their names; None for one that is unset."""
Make = Callable[[Services], Mechanism]


def _plain(name: str, value: Values) -> Make:  # noqa: ARG001 - it has one name
    from seqgate.gateway.security.sasl.users_file import (  # noqa: PLC0415
        # Only a listener with PLAIN needs this module.
        FixedUsers,
        UsersFile,
        plain_mechanism,
    )

    file = value(USERS_FILE)
    if file:
        users_file = UsersFile(str(file))
        return lambda _: plain_mechanism(users_file)
    users = parse_jaas(str(value(JAAS))).users
    if not users:
        raise LoginSettingsError(f'{JAAS} of PLAIN names no user; add user_NAME="PASSWORD"')
    return lambda _: plain_mechanism(FixedUsers(users))


def _scram(name: str, value: Values) -> Make:  # noqa: ARG001 - SCRAM has no settings
    from seqgate.gateway.security.sasl.scram import scram_mechanism  # noqa: PLC0415
    from seqgate.gateway.security.sasl.scram_credential import ScramHash  # noqa: PLC0415

    (hashing,) = (each for each in ScramHash if each.mechanism == name)

    def make(services: Services) -> Mechanism:
        security = services.security
        find_credential = security.metadata_log.image.users.find
        return scram_mechanism(
            hashing, find_credential, security.tokens.find, lambda: secrets.token_urlsafe(24).encode()
        )

    return make


def _oauthbearer(name: str, value: Values) -> Make:  # noqa: ARG001 - it has one name
    from seqgate.gateway.security.sasl.oauthbearer import oauthbearer  # noqa: PLC0415

    return lambda services: oauthbearer(value, services.node.loop, services.node.clock.now_ms)


PREPARES: Final[Mapping[str, Callable[[str, Values], Make]]] = {
    "PLAIN": _plain,
    "SCRAM-SHA-256": _scram,
    "SCRAM-SHA-512": _scram,
    "OAUTHBEARER": _oauthbearer,
}
"""The functions that prepare a mechanism for a listener, by the name of the mechanism: each imports what the
mechanism needs, and reads its files. They raise LoginSettingsError.
"""


def prepared_mechanisms(config: Config, listener_name: str) -> dict[str, Make]:
    """Return what makes a listener's mechanisms, in the order of the setting. Raises LoginSettingsError."""
    prepared: dict[str, Make] = {}
    for name in enabled_mechanisms(config, listener_name):
        prepare = PREPARES.get(name)
        if prepare is None:
            raise LoginSettingsError(
                f"the mechanism {name} is not served yet; choose from {', '.join(PREPARES)}"
            )
        prepared[name] = prepare(name, partial(config.of_mechanism, listener_name, name))
    return prepared


def login_mechanisms(services: Services, listener_name: str) -> dict[str, Mechanism]:
    """Return a listener's mechanisms by name, in the order of the setting. Raises LoginSettingsError."""
    prepared = prepared_mechanisms(services.node.config, listener_name)
    return {name: make(services) for name, make in prepared.items()}
