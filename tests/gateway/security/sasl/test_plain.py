from __future__ import annotations

import pytest

from seqgate.gateway.security.sasl.exchange import LoggedIn, LoginRefused, SaslStep
from seqgate.gateway.security.sasl.users_file import INVALID, FixedUsers, plain_mechanism

MECHANISM = plain_mechanism(FixedUsers({"alice": "secret", "": "never", "é": "pässword"}))


@pytest.mark.parametrize("authorization_id", ["", "alice"])
async def test_a_user_logs_in(authorization_id: str) -> None:
    step = await MECHANISM.begin().step(f"{authorization_id}\0alice\0secret".encode())
    assert step == SaslStep(b"", LoggedIn("User:alice"))


async def test_names_and_passwords_are_utf_8() -> None:
    assert (await MECHANISM.begin().step("\0é\0pässword".encode())).logged_in == LoggedIn("User:é")


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (b"\0alice\0wrong", INVALID),
        (b"\0alice\0Secret", INVALID),
        (b"\0nobody\0secret", INVALID),
        (b"bob\0alice\0wrong", INVALID),
        (b"bob\0alice\0secret", "authorization id that is different from username"),
        (b"\0\0never", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"", "expected 3 tokens, got 1"),
        (b"alice\0secret", "expected 3 tokens, got 2"),
        (b"\0alice\0secret\0", "expected 3 tokens, got 4"),
        (b"\0alice\0\xff\xfe", INVALID),
    ],
)
async def test_anything_else_is_refused(token: bytes, reason: str) -> None:
    with pytest.raises(LoginRefused, match=reason) as refused:
        await MECHANISM.begin().step(token)
    assert "secret" not in str(refused.value)


async def test_only_a_user_that_exists_is_named() -> None:
    """A password that was typed in place of the name must not reach the audit log."""
    for name, principal in (("alice", "User:alice"), ("secret", None)):
        with pytest.raises(LoginRefused) as refused:
            await MECHANISM.begin().step(f"\0{name}\0wrong".encode())
        assert refused.value.principal == principal
