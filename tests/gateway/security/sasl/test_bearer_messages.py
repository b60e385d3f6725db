from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqgate.gateway.security.sasl.exchange import LoginRefused
from seqgate.gateway.security.sasl.oauthbearer import OAuthFirstMessage, parse_first_message

SOUND = b"n,,\x01auth=Bearer abc.def-_g.h\x01\x01"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (SOUND, OAuthFirstMessage("", "abc.def-_g.h")),
        (b"n,,\x01auth=bEaReR   a\x01\x01", OAuthFirstMessage("", "a")),
        (b"n,a=alice,\x01auth=Bearer a\x01\x01", OAuthFirstMessage("alice", "a")),
        (b"n,a=a=2Cb=3Dc,\x01auth=Bearer a\x01\x01", OAuthFirstMessage("a,b=c", "a")),
        (b"n,,\x01traceId=1 2\x01auth=Bearer a\x01host=x=y\x01\x01", OAuthFirstMessage("", "a")),
    ],
)
def test_a_sound_message_is_read(message: bytes, expected: OAuthFirstMessage) -> None:
    assert parse_first_message(message) == expected


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        SOUND[:-1],
        SOUND + b"x",
        SOUND.replace(b"n,", b"y,"),
        SOUND.replace(b"n,", b"p=tls-unique,"),
        b"n,a=,\x01auth=Bearer a\x01\x01",
        b"n,a=a=b,\x01auth=Bearer a\x01\x01",
        "n,a=ü,\x01auth=Bearer a\x01\x01".encode(),
        b"n,,\x01\x01",
        b"n,,\x01host=x\x01\x01",
        b"n,,\x01auth=Basic a\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=x\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"n,,\x01auth=Bearer a\x01trace1=x\x01\x01",
        b"n,,\x01auth=Bearer a\x01trace=\x01\x01",
        "n,,\x01auth=Bearer a\x01trace=ü\x01\x01".encode(),
    ],
)
def test_a_malformed_message_is_refused(message: bytes) -> None:
    with pytest.raises(LoginRefused, match="RFC 7628"):
        parse_first_message(message)


def test_the_refusal_quotes_no_token() -> None:
    with pytest.raises(LoginRefused) as refused:
        parse_first_message(b"n,,\x01auth=Basic c2VjcmV0\x01\x01")
    assert "c2VjcmV0" not in str(refused.value)


@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda more: SOUND[:-1] + more + b"\x01"))
def test_any_bytes_are_read_or_refused(message: bytes) -> None:
    with contextlib.suppress(LoginRefused):
        assert parse_first_message(message).token.isascii()
