"""OAUTHBEARER: tokens that are refused, malformed messages, and how the client ends a refused login."""

from __future__ import annotations

import time
from typing import Any

from tests.compat.differential.logins.visit import (
    Table,
    Visit,
    authenticate,
    is_open,
    is_served,
    send_bare,
    shake,
)
from tests.support.tokens import encoded, first_message, part, unsecured_token

TABLE = Table()
DAY_S = 86_400
NOW_S = int(time.time())
"""The time at which tests are collected; what lies a day from it still does so when the tests run, however
long others take.
"""
CLAIMS: dict[str, Any] = {"sub": "alice", "exp": NOW_S + DAY_S}
GOOD = unsecured_token(**CLAIMS)
_HEADER = part({"alg": "none"})


def _with(**more: Any) -> str:
    return unsecured_token(**{**CLAIMS, **more})


TOKENS = {
    "good": GOOD,
    "expired": _with(exp=NOW_S - DAY_S),
    "no end": unsecured_token(sub="alice"),
    "end as text": _with(exp=str(NOW_S + DAY_S)),
    "issued": _with(iat=NOW_S - 60),
    "issued in the future": _with(iat=NOW_S + DAY_S),
    "not valid yet": _with(nbf=NOW_S + DAY_S),
    "no subject": unsecured_token(exp=NOW_S + DAY_S),
    "empty subject": _with(sub=""),
    "blank subject": _with(sub="  "),
    "subject as number": _with(sub=7),
    "scope": _with(scope="a b"),
    "scopes": _with(scope=["a", "b"]),
    "scope as number": _with(scope=7),
    "two parts": f"{_HEADER}.{part(CLAIMS)}",
    "one part": "abc",
    "four parts": f"{GOOD}.x",
    "signature": f"{GOOD}abcd",
    "other algorithm": f"{part({'alg': 'HS256'})}.{part(CLAIMS)}.",
    "no algorithm": f"{part({})}.{part(CLAIMS)}.",
    "no JSON": f"{_HEADER}.{encoded(b'no JSON')}.",
    "a list": f"{_HEADER}.{part([1])}.",
    "no base64": f"{_HEADER}.++++.",
    "subject not ASCII": _with(sub="älice"),
}


@TABLE.add_for_each(TOKENS)
def token(visit: Visit, token: str) -> None:
    """Log in with a token. When the token is refused, end the login as clients do."""
    client = visit.client()
    shake(client, "OAUTHBEARER")
    if authenticate(client, first_message(token)) == b"":
        is_served(client)
    else:
        authenticate(client, b"\x01")
        is_open(client)


MESSAGES = {
    "no gs2 header": f"auth=Bearer {GOOD}\x01\x01".encode(),
    "channel binding": f"y,,\x01auth=Bearer {GOOD}\x01\x01".encode(),
    "bound": f"p=tls-unique,,\x01auth=Bearer {GOOD}\x01\x01".encode(),
    "user": first_message(GOOD, authorization_id="alice"),
    "other user": first_message(GOOD, authorization_id="bob"),
    "no auth": b"n,,\x01\x01",
    "basic": f"n,,\x01auth=Basic {GOOD}\x01\x01".encode(),
    "lower case": f"n,,\x01auth=bearer {GOOD}\x01\x01".encode(),
    "two spaces": f"n,,\x01auth=Bearer  {GOOD}\x01\x01".encode(),
    "no end": f"n,,\x01auth=Bearer {GOOD}\x01".encode(),
    "more behind": f"n,,\x01auth=Bearer {GOOD}\x01\x01x".encode(),
    "extension": first_message(GOOD, extensions="traceId=123\x01"),
    "two extensions": first_message(GOOD, extensions="a=1\x01b=2\x01"),
    "extension with a digit": first_message(GOOD, extensions="a1=1\x01"),
    "extension named auth": first_message(GOOD, extensions="auth=x\x01"),
    "empty extension": first_message(GOOD, extensions="a=\x01"),
    "empty": b"",
    "only the end": b"\x01",
    "binary": bytes(range(256)),
}


@TABLE.add_for_each(MESSAGES)
def message(visit: Visit, message: bytes) -> None:
    client = visit.client()
    shake(client, "OAUTHBEARER")
    authenticate(client, message)
    is_open(client)


KISSES = {
    "as it should be": b"\x01",
    "nothing": b"",
    "another byte": b"\x02",
    "two bytes": b"\x01\x01",
    "a good token": first_message(GOOD),
}


@TABLE.add_for_each(KISSES)
def end_of_a_refused_login(visit: Visit, kiss: bytes) -> None:
    client = visit.client()
    shake(client, "OAUTHBEARER")
    authenticate(client, first_message(TOKENS["expired"]))
    is_open(client, 0.2)
    authenticate(client, kiss)
    is_open(client)


@TABLE.add
def request_instead_of_the_end(visit: Visit) -> None:
    client = visit.client()
    shake(client, "OAUTHBEARER")
    authenticate(client, first_message(TOKENS["expired"]))
    is_served(client)


@TABLE.add
def refused_with_bare_tokens(visit: Visit) -> None:
    client = visit.client()
    shake(client, "OAUTHBEARER", 0)
    for sent in (first_message(TOKENS["expired"]), b"\x01"):
        send_bare(client, sent)
