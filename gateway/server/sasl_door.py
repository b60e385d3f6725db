"""The login stage of one connection to a listener with SASL: requests are served only after the client has
logged in. Once the client has a session that never ends, its requests go straight to the dispatcher.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Final, Protocol

from kio.schema.errors import ErrorCode

from gateway.handlers.answering.api import Answer, CloseConnection, Deferred, Peer
from gateway.protocol.frames import MalformedRequest, RequestHeader, parse_request_header
from gateway.security.sasl.exchange import LoggedIn, LoginRefused, Step
from gateway.security.sasl.login import Handshake, Login, Phase, Route
from gateway.server.eager import Waiting, begin
from gateway.server.sasl_answers import (
    BareForm,
    RequestForm,
    TokenForm,
    handshake_answer,
    illegal_state_answer,
    request_body,
)
from gateway.server.sasl_listener import Begin, RequestLimits, SaslListener

logger = logging.getLogger(__name__)

HANDSHAKE_VERSIONS: Final = range(2)
AUTHENTICATE_VERSIONS: Final = range(3)
KEY_BYTES: Final = 2
SHOWN_CHARACTERS: Final = 64
"""Characters of an unknown mechanism's name that the log shows."""
_ERROR: Final = slice(8, 10)
"""The place of the error code in an answer of ApiVersions, after size and correlation id."""


class Guarded(Peer, Protocol):
    """The methods of a connection that its login stage calls."""

    token_id: str | None

    def take(self, begin: Begin, limits: RequestLimits) -> None:
        """Begin requests with this function from now on, within these limits."""

    def close(self, reason: str) -> None:
        """Log `reason`, and close after the answers already written."""


class SaslDoor:
    """The login stage of one connection."""

    __slots__ = ("_connection", "_listener", "_login", "_timeout")

    def __init__(self, listener: SaslListener, connection: Guarded) -> None:
        self._listener = listener
        self._connection = connection
        self._login = Login(listener.offers)
        self._timeout = listener.logins.loop.call_later(listener.timeout_s, self._give_up)
        connection.take(self.begin, listener.limits)
        connection.when_gone(self, self._leave)

    def begin(self, frame: memoryview, peer: Any) -> Answer | Deferred | None:
        """Begin one request. Raises MalformedRequest or CloseConnection when the connection must be closed."""
        api_key = int.from_bytes(frame[:KEY_BYTES], "big", signed=True)
        route = self._login.route(api_key, self._listener.logins.loop.time())
        if route is Route.SERVE:
            return self._listener.serve(frame, peer)
        if not frame:
            raise MalformedRequest("the request is empty")
        if route is Route.BARE_TOKEN:
            return self._token(bytes(frame), BareForm())
        if route is Route.CLOSE:
            raise CloseConnection(self._why_closed(api_key))
        if route is Route.VERSIONS:
            return self._versions(frame, peer)
        header = parse_request_header(frame)
        if route is Route.HANDSHAKE:
            return self._handshake(header, frame)
        if route is Route.REFUSE:
            return self._refuse(header, frame)
        _check_version(header, AUTHENTICATE_VERSIONS)
        return self._token(bytes(request_body(header, frame).auth_bytes), RequestForm(header))

    # the requests of a login

    def _versions(self, frame: memoryview, peer: Any) -> Answer | Deferred | None:
        answer = self._listener.serve_unknown(frame, peer)
        if not isinstance(answer, bytes) or not any(answer[_ERROR]):
            self._login.versions_sent()
        return answer

    def _handshake(self, header: RequestHeader, frame: memoryview) -> Answer | Deferred:
        _check_version(header, HANDSHAKE_VERSIONS)
        mechanism = request_body(header, frame).mechanism
        outcome = self._login.handshake(mechanism, bare=header.api_version == 0)
        if outcome is Handshake.CLOSE:
            raise CloseConnection(
                "the client began to log in again with a mechanism that the listener does not have"
            )
        offered = self._listener.offers
        if outcome is Handshake.UNKNOWN_MECHANISM:
            answer = handshake_answer(header, ErrorCode.unsupported_sasl_mechanism, offered)
            return self._fail(
                answer, repr(mechanism[:SHOWN_CHARACTERS]), f"the listener has {', '.join(offered)}"
            )
        answer = handshake_answer(header, ErrorCode.none, offered)
        if outcome is Handshake.OTHER_MECHANISM:
            return self._fail(answer, mechanism, f"the client must log in again with {self._login.mechanism}")
        return answer

    def _refuse(self, header: RequestHeader, frame: memoryview) -> Deferred:
        answer = illegal_state_answer(header, frame)
        return self._fail(
            answer, self._login.mechanism, f"the client sent API key {header.api_key} instead of a token"
        )

    def _token(self, token: bytes, form: TokenForm) -> Answer | Deferred:
        """Begin one step of the login, now or when the login steps of other connections leave time for it."""
        turns = self._listener.turns
        if turns.has_time():
            with turns.measured():
                return self._step(token, form)
        deferred = Deferred(holds_back=True)
        turns.wait(self._connection.peer_host, partial(self._take_turn, token, form, deferred))
        return deferred

    def _take_turn(self, token: bytes, form: TokenForm, deferred: Deferred) -> None:
        if deferred.abandoned:
            return
        try:
            with self._listener.turns.measured():
                answer = self._step(token, form)
        except Exception:
            logger.exception("a login of %s failed", self._connection.name)
            deferred.fail()
        else:
            deferred.follow(answer)

    def _step(self, token: bytes, form: TokenForm) -> Answer | Deferred:
        try:
            begun = begin(self._login.exchange.step(token))
            if isinstance(begun, Waiting):
                return self._wait(begun, form)
            return self._answered(begun.value, form)
        except LoginRefused as refusal:
            return self._refused(refusal, form)

    def _wait(self, begun: Waiting[Step], form: TokenForm) -> Deferred:
        deferred = Deferred(holds_back=True)

        async def finish() -> None:
            try:
                deferred.follow(self._answered(await begun, form))
            except LoginRefused as refusal:
                deferred.follow(self._refused(refusal, form))
            except Exception:
                logger.exception("a login of %s failed", self._connection.name)
                deferred.fail()

        logins = self._listener.logins
        task = logins.loop.create_task(finish())
        logins.tasks.add(task)
        task.add_done_callback(logins.tasks.discard)
        return deferred

    def _answered(self, step: Step, form: TokenForm) -> Answer:
        """Return the answer to a token. Raises LoginRefused."""
        lifetime_ms = 0
        if step.logged_in is not None:
            logins = self._listener.logins
            lifetime_ms = self._login.succeed(step.logged_in, logins.clock.now_ms(), logins.loop.time())
            self._let_in(step.logged_in)
        return form.answer(step.token, lifetime_ms)

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

    def _refused(self, refusal: LoginRefused, form: TokenForm) -> Deferred:
        return self._fail(form.refusal(str(refusal)), self._login.mechanism, str(refusal), refusal.principal)

    def _fail(self, answer: bytes, mechanism: str, reason: str, principal: str | None = None) -> Deferred:
        """Fail the login.

        The answer is delayed, to slow down the guessing of passwords, and the connection closes after it.
        """
        self._login.fail()
        connection, listener = self._connection, self._listener
        listener.note_failure(connection, mechanism, reason, principal)
        last = Deferred(holds_back=True)
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
