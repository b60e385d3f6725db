"""Logins with tokens, message by message."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seqgate.gateway.config import BY_NAME, Config
from seqgate.gateway.config.oauthbearer import token_settings_complaint
from seqgate.gateway.config.setting import InvalidValueError, SettingValue
from seqgate.gateway.security.sasl.exchange import LoggedIn, LoginRefused, Mechanism, SaslStep
from seqgate.gateway.security.sasl.oauthbearer import INVALID_TOKEN, oauthbearer
from tests.support.tokens import Issuer, first_message, key_set, unsecured_token

KEYS_URL = "sasl.oauthbearer.jwks.endpoint.url"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def mechanism(**settings: SettingValue) -> Mechanism:
    """Return the mechanism of these settings; underscores stand for points."""
    config = Config({name.replace("_", "."): value for name, value in settings.items()})
    return oauthbearer(config.__getitem__, asyncio.get_running_loop(), now_ms)


def insecure() -> Mechanism:
    return mechanism(seqgate_allow_insecure_oauthbearer_tokens=True)


async def test_a_login_takes_one_message() -> None:
    message = first_message(unsecured_token(sub="alice", exp=4_000_000_000), extensions="traceId=1\x01")
    assert await insecure().begin().step(message) == SaslStep(b"", LoggedIn("User:alice", 4_000_000_000_000))


async def test_a_refused_token_is_answered_and_the_next_message_ends_the_login() -> None:
    login = insecure().begin()
    assert await login.step(first_message(unsecured_token(sub="alice", exp=1))) == SaslStep(INVALID_TOKEN)
    with pytest.raises(LoginRefused, match="the token has expired"):
        await login.step(b"\x01")


async def test_after_a_refused_token_another_one_does_not_log_in() -> None:
    login = insecure().begin()
    await login.step(first_message("a.b.c"))
    with pytest.raises(LoginRefused):
        await login.step(first_message(unsecured_token(sub="alice", exp=4_000_000_000)))


async def test_nobody_acts_for_another() -> None:
    token = unsecured_token(sub="alice", exp=4_000_000_000)
    with pytest.raises(LoginRefused, match="authorization id"):
        await insecure().begin().step(first_message(token, authorization_id="bob"))
    step = await insecure().begin().step(first_message(token, authorization_id="alice"))
    assert step.logged_in is not None


async def test_a_malformed_message_is_refused_at_once() -> None:
    with pytest.raises(LoginRefused):
        await insecure().begin().step(b"\x01")


async def test_the_settings_of_signed_tokens_count(tmp_path: Path) -> None:
    issuer = Issuer(algorithm="RS256")
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(issuer.jwk()))
    listener = mechanism(
        sasl_oauthbearer_jwks_endpoint_url=file.as_uri(),
        sasl_oauthbearer_expected_audience=("seqgate",),
        sasl_oauthbearer_expected_issuer="idp",
        sasl_oauthbearer_clock_skew_seconds=600,
        sasl_oauthbearer_sub_claim_name="email",
        sasl_oauthbearer_scope_claim_name="scp",
    )
    now_s = now_ms() // 1000
    good = {
        "iss": "idp",
        "aud": "seqgate",
        "email": "a@example",
        "iat": now_s,
        "exp": now_s - 300,
        "scp": "x",
    }
    step = await listener.begin().step(first_message(issuer.token(**good)))
    assert step.logged_in == LoggedIn("User:a@example", (now_s - 300) * 1000)
    for wrong in ({"iss": "x"}, {"aud": "x"}, {"email": None}, {"exp": now_s - 700}, {"scp": 7}):
        assert await listener.begin().step(first_message(issuer.token(**good | wrong))) == SaslStep(
            INVALID_TOKEN
        )


@pytest.mark.parametrize(
    "url",
    [
        "keys.json",
        "ftp://host/keys",
        "file://keys.json",
        "file:keys.json",
        "https://",
        "https://user:password@host/keys",
        "http://[::1/keys",
        "http://host:port/keys",
    ],
)
def test_a_url_that_can_not_be_read_is_refused(url: str) -> None:
    with pytest.raises(InvalidValueError):
        BY_NAME[KEYS_URL].parse(url)


@pytest.mark.parametrize(
    "url", ["file:///etc/keys.json", "file:/etc/keys.json", "https://host/keys", "http://[::1]:8080"]
)
def test_a_url_of_each_kind_is_accepted(url: str) -> None:
    assert BY_NAME[KEYS_URL].parse(url) == url


def test_tokens_need_keys_or_the_word_insecure() -> None:
    assert token_settings_complaint(True, False) is None
    assert token_settings_complaint(False, True) is None
    assert "exclude" in (token_settings_complaint(True, True) or "")
    assert KEYS_URL in (token_settings_complaint(False, False) or "")


def test_a_gateway_without_oauthbearer_imports_no_token_library() -> None:
    program = "import sys; import seqgate.gateway.gateway; print('jwt' in sys.modules, 'seqgate.gateway.config.oauthbearer' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
