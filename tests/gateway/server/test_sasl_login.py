"""The order of a login, with the times of a fake clock, and the log lines of failed logins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.security.sasl.exchange import LoggedIn, LoginRefused
from seqgate.gateway.security.sasl.users_file import FixedUsers, plain_mechanism
from seqgate.gateway.server.sasl import (
    API_VERSIONS,
    LONGEST_SESSION_MS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Login,
    MechanismChoice,
    Offer,
    Phase,
    SaslRoute,
)

METADATA = 3
ALICE = LoggedIn("User:alice")
MECHANISM = plain_mechanism(FixedUsers({}))
NEVER = {"PLAIN": Offer(MECHANISM), "OTHER": Offer(MECHANISM)}
AGAIN = {"PLAIN": Offer(MECHANISM, 10_000), "OTHER": Offer(MECHANISM, 10_000)}


def logged_in(offers: dict[str, Offer], at: LoggedIn = ALICE) -> Login:
    login = Login(offers)
    assert login.handshake("PLAIN", bare=False) is MechanismChoice.ACCEPTED
    login.succeed(at, now_ms=0, now_s=100.0)
    return login


def routes(login: Login, now_s: float = 100.0) -> list[SaslRoute]:
    return [
        login.route(key, now_s) for key in (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE, METADATA, -1)
    ]


def test_a_new_connection_asks_for_versions_or_begins_to_log_in() -> None:
    assert routes(Login(NEVER)) == [
        SaslRoute.VERSIONS,
        SaslRoute.HANDSHAKE,
        SaslRoute.CLOSE,
        SaslRoute.CLOSE,
        SaslRoute.CLOSE,
    ]


def test_versions_are_sent_once() -> None:
    login = Login(NEVER)
    login.versions_sent()
    assert routes(login) == [
        SaslRoute.CLOSE,
        SaslRoute.HANDSHAKE,
        SaslRoute.CLOSE,
        SaslRoute.CLOSE,
        SaslRoute.CLOSE,
    ]


def test_after_a_handshake_only_tokens_come() -> None:
    login = Login(NEVER)
    login.handshake("PLAIN", bare=False)
    assert routes(login) == [
        SaslRoute.REFUSE,
        SaslRoute.REFUSE,
        SaslRoute.TOKEN_REQUEST,
        SaslRoute.REFUSE,
        SaslRoute.REFUSE,
    ]


def test_after_a_handshake_of_version_0_every_frame_is_a_token() -> None:
    login = Login(NEVER)
    login.handshake("PLAIN", bare=True)
    assert routes(login) == [SaslRoute.BARE_TOKEN] * 5


def test_mechanisms_are_case_sensitive() -> None:
    login = Login(NEVER)
    assert login.handshake("plain", bare=False) is MechanismChoice.UNKNOWN_MECHANISM
    assert routes(login) == [SaslRoute.CLOSE] * 5


def test_a_session_without_end_serves_everything() -> None:
    login = logged_in(NEVER)
    assert login.never_ends
    assert routes(login, 1e9) == [SaslRoute.SERVE] * 5


def test_a_session_ends_at_the_next_request_but_a_handshake() -> None:
    login = logged_in(AGAIN)
    assert not login.never_ends
    assert login.route(METADATA, 109.9) is SaslRoute.SERVE
    assert login.route(METADATA, 110.0) is SaslRoute.CLOSE
    assert login.route(SASL_HANDSHAKE, 500.0) is SaslRoute.HANDSHAKE


def test_a_handshake_within_a_second_of_the_last_is_no_reauthentication() -> None:
    login = logged_in(AGAIN)
    assert login.route(SASL_HANDSHAKE, 100.1) is SaslRoute.HANDSHAKE
    login.handshake("PLAIN", bare=False)
    assert login.is_reauthentication
    assert routes(login)[0] is SaslRoute.REFUSE
    login.succeed(ALICE, 0, 100.2)
    assert login.route(SASL_HANDSHAKE, 101.0) is SaslRoute.SERVE
    assert login.route(SASL_AUTHENTICATE, 101.0) is SaslRoute.SERVE
    assert login.route(SASL_HANDSHAKE, 101.1) is SaslRoute.HANDSHAKE


def test_a_reauthentication_keeps_mechanism_and_principal() -> None:
    login = logged_in(AGAIN)
    assert login.handshake("OTHER", bare=False) is MechanismChoice.OTHER_MECHANISM
    assert login.phase is Phase.OVER
    login = logged_in(AGAIN)
    assert login.handshake("UNKNOWN", bare=False) is MechanismChoice.CLOSE
    login = logged_in(AGAIN)
    login.handshake("PLAIN", bare=False)
    with pytest.raises(LoginRefused, match="Cannot change principals"):
        login.succeed(LoggedIn("User:bob"), 0, 100.0)


@pytest.mark.parametrize(
    ("reauth_ms", "expires_at_ms", "lifetime_ms", "ends"),
    [
        (0, None, 0, False),
        (500, None, 500, True),
        (0, 1_300, 300, True),
        (200, 1_300, 200, True),
        (500, 1_300, 300, True),
        (0, 900, 0, True),
        (2**63 - 1, None, LONGEST_SESSION_MS, True),
    ],
)
def test_a_session_lives_until_its_credentials_expire_or_the_client_must_log_in_again(
    reauth_ms: int, expires_at_ms: int | None, lifetime_ms: int, ends: bool
) -> None:
    login = Login({"PLAIN": Offer(MECHANISM, reauth_ms)})
    login.handshake("PLAIN", bare=False)
    assert login.succeed(LoggedIn("User:alice", expires_at_ms), now_ms=1_000, now_s=5.0) == lifetime_ms
    assert login.never_ends is not ends
    if ends:
        assert login.route(METADATA, 5.0 + lifetime_ms / 1000) is SaslRoute.CLOSE


@given(
    st.lists(
        st.tuples(
            st.sampled_from([API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE, METADATA]),
            st.sampled_from(["PLAIN", "OTHER", "UNKNOWN"]),
            st.booleans(),
            st.sampled_from(["right", "wrong", "more", "bob"]),
            st.floats(0, 20),
        )
    ),
    st.booleans(),
)
def test_nothing_is_served_without_a_login_that_lasts(
    requests: list[tuple[int, str, bool, str, float]], ends: bool
) -> None:
    login = Login(AGAIN if ends else NEVER)
    now_s, until_s, principal = 0.0, -1.0, ""
    for api_key, mechanism, bare, outcome, later_s in requests:
        now_s += later_s
        route = login.route(api_key, now_s)
        if route is SaslRoute.SERVE:
            assert principal
            assert now_s < until_s
        elif route is SaslRoute.VERSIONS:
            assert not principal
            login.versions_sent()
        elif route is SaslRoute.HANDSHAKE:
            login.handshake(mechanism, bare=bare)
        elif route in {SaslRoute.TOKEN_REQUEST, SaslRoute.BARE_TOKEN}:
            assert login.exchange is not None
            name = "User:bob" if outcome == "bob" else "User:alice"
            try:
                if outcome == "wrong":
                    raise LoginRefused("the password is wrong")
                if outcome != "more":
                    login.succeed(LoggedIn(name), 0, now_s)
                    assert principal in {"", name}
                    principal, until_s = name, now_s + 10 if ends else float("inf")
            except LoginRefused:
                login.fail()
        else:
            login.fail()
        if login.phase is Phase.OVER:
            assert login.route(api_key, now_s) is SaslRoute.CLOSE
            return
