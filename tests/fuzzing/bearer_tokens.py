"""Logins with OAUTHBEARER: an input is a byte of choices and what a client sends first, or a JWK set.

Whatever a client sends, it is logged in, answered or refused, and no other error is raised. With signed
tokens only a token that the issuer has signed logs in.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from seqgate.gateway.security.sasl.exchange import LoginRefused, Mechanism
from seqgate.gateway.security.sasl.oauthbearer import (
    KeysUnusable,
    SignedTokens,
    UnsecuredTokens,
    bearer_mechanism,
    parse_first_message,
    parse_key_set,
)
from seqgate.gateway.security.sasl.tokens import ClaimRules
from tests.fuzzing.changes import changed
from tests.fuzzing.target import Breach, Run
from tests.support.tokens import Issuer, first_message, key_set, part, unsecured_token

MAX_INPUT_BYTES = 4096
PEAK_BYTES = 16 << 20
BASE_WORK = 300.0
NOW_MS = 1_800_000_000_000
SIGNED, UNSECURED, KEYS = range(3)
"""The kinds of an input, which its first byte chooses: a signed token, a token without a signature, or a JWK
set.
"""


def _issuer() -> Issuer:
    issuer = Issuer("first", "EdDSA")
    issuer.key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    return issuer


ISSUER = _issuer()
CLAIMS = {"sub": "alice", "iat": 1_700_000_000, "exp": 1_900_000_000, "scope": ["a"], "aud": "seqgate"}
SIGNED_TOKEN = ISSUER.token(**CLAIMS)


class _KnownKeys:
    def __init__(self, document: bytes) -> None:
        self._keys = parse_key_set(document)

    async def find(self, key_id: str | None, algorithm: str) -> Any:
        return self._keys.find(key_id, algorithm)

    def why_not_found(self, key_id: str | None) -> str:
        return "unknown"


@contextmanager
def opened() -> Iterator[Run]:
    keys: Any = _KnownKeys(key_set(ISSUER.jwk()))
    signed = bearer_mechanism(SignedTokens(keys, ClaimRules(skew_s=30), lambda: NOW_MS))
    rules = ClaimRules(needs_issue_time=False, refuses_future_issue_time=True)
    unsecured = bearer_mechanism(UnsecuredTokens(rules, lambda: NOW_MS))

    def feed(data: bytes) -> None:
        choice = data[0] % 3 if data else SIGNED
        if choice == KEYS:
            with suppress(KeysUnusable):
                _check_keys(data[1:])
        else:
            with suppress(LoginRefused):
                asyncio.run(_log_in(signed if choice == SIGNED else unsecured, data[1:]))

    yield feed


def _check_keys(document: bytes) -> None:
    for key in parse_key_set(document).keys:
        if not key.algorithms or any(name.startswith("HS") or name == "none" for name in key.algorithms):
            raise Breach(f"a key for {sorted(key.algorithms)}")


async def _log_in(mechanism: Mechanism, message: bytes) -> None:
    login = mechanism.begin()
    step = await login.step(message)
    if step.logged_in is None:
        with suppress(LoginRefused):
            await login.step(message)
            raise Breach("a refused login must not accept further messages")
        return
    token = parse_first_message(message).token
    signs = not token.endswith(".")
    # the last character of a signature has bits that mean nothing
    if signs and (token[:-1] != SIGNED_TOKEN[:-1] or step.logged_in.principal != "User:alice"):
        raise Breach(f"{token} was not signed by the issuer, and logs {step.logged_in.principal} in")


def seeds() -> Iterator[bytes]:
    yield bytes([SIGNED]) + first_message(SIGNED_TOKEN)
    yield bytes([SIGNED]) + first_message(SIGNED_TOKEN, authorization_id="alice", extensions="a=b\x01")
    yield bytes([SIGNED]) + first_message(ISSUER.token({"kid": None}, **CLAIMS))
    yield bytes([UNSECURED]) + first_message(unsecured_token(**CLAIMS))
    yield bytes([KEYS]) + key_set(ISSUER.jwk(), Issuer("rsa", "RS256").jwk(alg="RS256", use="sig"))


def mutated(data: bytes, chance: random.Random) -> bytes:
    if not data or chance.random() < 0.3:
        data = chance.choice(list(_SEEDS))
    if data[0] % 3 == KEYS or chance.random() < 0.5:
        return data[:1] + changed(data[1:], chance)
    header = changed(b'{"alg":"EdDSA","kid":"first"}', chance).decode("latin-1")
    claims = {name: chance.choice((value, -1, 10**400, "", [], None)) for name, value in CLAIMS.items()}
    token = unsecured_token(**claims) if data[0] % 3 == UNSECURED else f"{part(header)}.{part(claims)}.AA"
    return data[:1] + first_message(token)


_SEEDS = tuple(seeds())
