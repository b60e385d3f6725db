"""Tokens without a signature, which anybody can make: for tests only. Source: Kafka's OAuthBearerUnsecuredJws."""

from __future__ import annotations

from collections.abc import Callable

from gateway.security.sasl.tokens import ClaimRules, Token, TokenRefused, decoded, parts_of


class UnsecuredTokens:
    """Accepts tokens with the algorithm `none`."""

    def __init__(self, rules: ClaimRules, now_ms: Callable[[], int]) -> None:
        self._rules = rules
        self._now_ms = now_ms

    async def examine(self, token: str) -> Token:
        """Check the claims of the token and return them as a Token. Raises TokenRefused."""
        header, claims, signature = parts_of(token)
        if decoded(header, "header").get("alg") != "none":
            raise TokenRefused("the token's algorithm is not none")
        if signature:
            raise TokenRefused("the token has a signature, although its algorithm is none")
        return self._rules.examine(decoded(claims, "claims"), self._now_ms())
