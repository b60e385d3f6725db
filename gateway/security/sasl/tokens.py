"""The rules of tokens that do not depend on how they are signed: their claims. Source: Kafka's BrokerJwtValidator."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec

LONGEST_TOKEN: Final = 64 << 10
"""Characters of the longest token; a longer one is refused, so that nobody has much decoded before the login."""
_LATEST_S: Final = 10**13
"""A token expires at this time (s) at the latest; a later one would not fit into what clients are told."""


class TokenRefused(Exception):
    """A token is not accepted. The message is the reason; it quotes nothing of the token."""


@dataclass(frozen=True, slots=True)
class Token:
    """What an accepted token says: its user, and when it expires (ms)."""

    subject: str
    expires_at_ms: int


class Tokens(Protocol):
    """Decides which tokens are accepted."""

    async def examine(self, token: str) -> Token:
        """Return what the token says. Raises TokenRefused."""


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """What the claims of a token must say. `audiences` and `issuer` empty: any."""

    subject_claim: str = "sub"
    scope_claim: str = "scope"
    audiences: tuple[str, ...] = ()
    issuer: str = ""
    skew_s: int = 0
    needs_issue_time: bool = True
    refuses_future_issue_time: bool = False

    def examine(self, claims: Mapping[str, object], now_ms: int) -> Token:
        """Return what the claims say. Raises TokenRefused."""
        now_s = now_ms / 1000
        expires_s = _time(claims, "exp")
        if expires_s is None:
            raise TokenRefused("it does not say when it expires (exp)")
        if now_s - self.skew_s >= expires_s:
            raise TokenRefused("it has expired")
        self._examine_begin(claims, now_s)
        self._examine_parties(claims)
        _examine_scope(claims.get(self.scope_claim), self.scope_claim)
        subject = claims.get(self.subject_claim)
        if not isinstance(subject, str) or not subject.strip():
            raise TokenRefused(f"it names no user ({self.subject_claim})")
        return Token(subject, round(expires_s * 1000))

    def _examine_begin(self, claims: Mapping[str, object], now_s: float) -> None:
        issued_s = _time(claims, "iat")
        if issued_s is None and self.needs_issue_time:
            raise TokenRefused("it does not say when it was issued (iat)")
        if issued_s is not None and self.refuses_future_issue_time and issued_s > now_s + self.skew_s:
            raise TokenRefused("it is issued in the future (iat)")
        begins_s = _time(claims, "nbf")
        if begins_s is not None and begins_s > now_s + self.skew_s:
            raise TokenRefused("it is not valid yet (nbf)")

    def _examine_parties(self, claims: Mapping[str, object]) -> None:
        if self.issuer and claims.get("iss") != self.issuer:
            raise TokenRefused("its issuer (iss) is not that of sasl.oauthbearer.expected.issuer")
        if self.audiences:
            named = claims.get("aud")
            found = named if isinstance(named, list) else [named]
            if not any(audience in found for audience in self.audiences):
                raise TokenRefused("its audience (aud) has none of sasl.oauthbearer.expected.audience")


def _time(claims: Mapping[str, object], name: str) -> float | None:
    """Return a claim with a time (s); None when it is missing. Raises TokenRefused."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise TokenRefused(f"its claim {name} is not a time in seconds since 1970")
    return min(value, _LATEST_S)


def _examine_scope(scope: object, name: str) -> None:
    scopes = scope if isinstance(scope, list) else [] if scope is None else [scope]
    if not all(isinstance(item, str) for item in scopes):
        raise TokenRefused(f"its claim {name} is neither a text nor a list of texts")


def parts_of(token: str) -> tuple[str, str, str]:
    """Return header, claims and signature of a token, still encoded. Raises TokenRefused."""
    if len(token) > LONGEST_TOKEN:
        raise TokenRefused(f"it is longer than {LONGEST_TOKEN} characters")
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRefused("it is not a JWT in its compact form: three parts with points between them")
    return parts[0], parts[1], parts[2]


def decoded(part: str, name: str) -> dict[str, Any]:
    """Return the JSON object of one part of a token. Raises TokenRefused."""
    try:
        text = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise TokenRefused(f"its {name} is not base64url") from None
    return json_object(text, name)


def json_object(text: bytes, name: str) -> dict[str, Any]:
    """Return the JSON object of a text. Raises TokenRefused."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise TokenRefused(f"its {name} is not a JSON object") from None
