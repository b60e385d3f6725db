"""Verifies signed tokens. The signature is verified before the claims are decoded.

Source: Kafka's BrokerJwtValidator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import jwt

from gateway.security.sasl.key_set import ALGORITHMS, VerificationKey
from gateway.security.sasl.key_source import KeySource
from gateway.security.sasl.tokens import ClaimRules, Token, TokenRefused, decoded, json_object, parts_of

THREADS: Final = 2
"""Threads that verify signatures of slow keys at a time; further logins wait, so that threads stay free for
other work.
"""
_LONGEST_HEADER: Final = 8 << 10
_SIGNATURES: Final = jwt.PyJWS(algorithms=sorted(ALGORITHMS))


class SignedTokens:
    """Accepts tokens that a key of the source has signed."""

    def __init__(self, keys: KeySource, rules: ClaimRules, now_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._rules = rules
        self._now_ms = now_ms
        self._threads = asyncio.Semaphore(THREADS)

    async def examine(self, token: str) -> Token:
        """Verify the signature and the claims of the token, and return them as a Token. Raises TokenRefused."""
        algorithm, key_id = _signature_header(token)
        key = await self._keys.find(key_id, algorithm)
        if key is None:
            raise TokenRefused(self._keys.why_not_found(key_id))
        if key.is_slow:
            async with self._threads:
                payload = await asyncio.to_thread(_verified, token, key, algorithm)
        else:
            payload = _verified(token, key, algorithm)
        return self._rules.examine(json_object(payload, "claims"), self._now_ms())


def _verified(token: str, key: VerificationKey, algorithm: str) -> bytes:
    """Verify the signature of a token and return its claims as undecoded text. Raises TokenRefused."""
    try:
        payload: bytes = _SIGNATURES.decode_complete(token, key.key, algorithms=[algorithm])["payload"]
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        raise TokenRefused("the token's signature is wrong") from None
    return payload


def _signature_header(token: str) -> tuple[str, str | None]:
    """Return the algorithm and the name of the key that a token's header names. Raises TokenRefused."""
    encoded, _, _ = parts_of(token)
    if len(encoded) > _LONGEST_HEADER:
        raise TokenRefused(f"the token's header is longer than {_LONGEST_HEADER} characters")
    header = decoded(encoded, "header")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if algorithm == "none":
        raise TokenRefused("the token has no signature")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenRefused(f"the token's algorithm (alg) is none of {', '.join(sorted(ALGORITHMS))}")
    if "crit" in header or header.get("b64", True) is not True:
        raise TokenRefused(
            "the token's header asks for an extension (crit, b64) that this gateway does not know"
        )
    if key_id is not None and not isinstance(key_id, str):
        raise TokenRefused("the token's key name (kid) is not a text")
    return algorithm, key_id
