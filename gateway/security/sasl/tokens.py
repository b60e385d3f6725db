"""The rules for the claims of tokens, however they are signed. Source: Kafka's BrokerJwtValidator."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

LONGEST_TOKEN: Final = 64 << 10
"""Characters of the longest token; a longer one is refused, so that a client without a login can't make the
gateway decode much.
"""
_LATEST_S: Final = 10**13
"""The latest time (s) at which a token expires; a later time would not fit into the answers to clients."""


class TokenRefused(Exception):
    """A token is not accepted. The message is the reason, and quotes nothing of the token."""


@dataclass(frozen=True, slots=True)
class Token:
    """An accepted token: its user, and the time (ms) at which it expires."""

    subject: str
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """The conditions that the claims of a token must meet. `audiences` and `issuer` empty: any."""

    subject_claim: str = "sub"
    scope_claim: str = "scope"
    audiences: tuple[str, ...] = ()
    issuer: str = ""
    skew_s: int = 0
    needs_issue_time: bool = True
    refuses_future_issue_time: bool = False

    def examine(self, claims: Mapping[str, object], now_ms: int) -> Token:
        """Check the claims of a token and return them as a Token. Raises TokenRefused."""
        now_s = now_ms / 1000
        expires_s = _time(claims, "exp")
        if expires_s is None:
            raise TokenRefused("the token does not say when it expires (exp)")
        if now_s - self.skew_s >= expires_s:
            raise TokenRefused("the token has expired")
        self._examine_begin(claims, now_s)
        self._examine_parties(claims)
        _examine_scope(claims.get(self.scope_claim), self.scope_claim)
        subject = claims.get(self.subject_claim)
        if not isinstance(subject, str) or not subject.strip():
            raise TokenRefused(f"the token names no user ({self.subject_claim})")
        return Token(subject, round(expires_s * 1000))

    def _examine_begin(self, claims: Mapping[str, object], now_s: float) -> None:
        issued_s = _time(claims, "iat")
        if issued_s is None and self.needs_issue_time:
            raise TokenRefused("the token does not say when it was issued (iat)")
        if issued_s is not None and self.refuses_future_issue_time and issued_s > now_s + self.skew_s:
            raise TokenRefused("the token is issued in the future (iat)")
        begins_s = _time(claims, "nbf")
        if begins_s is not None and begins_s > now_s + self.skew_s:
            raise TokenRefused("the token is not valid yet (nbf)")

    def _examine_parties(self, claims: Mapping[str, object]) -> None:
        if self.issuer and claims.get("iss") != self.issuer:
            raise TokenRefused("the token's issuer (iss) is not that of sasl.oauthbearer.expected.issuer")
        if self.audiences:
            named = claims.get("aud")
            found = named if isinstance(named, list) else [named]
            if not any(audience in found for audience in self.audiences):
                raise TokenRefused(
                    "the token's audience (aud) has none of sasl.oauthbearer.expected.audience"
                )


def _time(claims: Mapping[str, object], name: str) -> float | None:
    """Return a claim with a time (s); None when it is missing. Raises TokenRefused."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise TokenRefused(f"the token's claim {name} is not a time in seconds since 1970")
    return min(value, _LATEST_S)


def _examine_scope(scope: object, name: str) -> None:
    scopes = scope if isinstance(scope, list) else [] if scope is None else [scope]
    if not all(isinstance(item, str) for item in scopes):
        raise TokenRefused(f"the token's claim {name} is neither a text nor a list of texts")


def parts_of(token: str) -> tuple[str, str, str]:
    """Return header, claims and signature of a token, still encoded. Raises TokenRefused."""
    if len(token) > LONGEST_TOKEN:
        raise TokenRefused(f"the token is longer than {LONGEST_TOKEN} characters")
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRefused("the token is not a JWT in compact form: three parts with points between them")
    return parts[0], parts[1], parts[2]


def decoded(part: str, name: str) -> dict[str, Any]:
    """Return the JSON object of one part of a token. Raises TokenRefused."""
    try:
        text = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise TokenRefused(f"the token's {name} is not base64url") from None
    return json_object(text, name)


def json_object(text: bytes, name: str) -> dict[str, Any]:
    """Return the JSON object of a text. Raises TokenRefused."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise TokenRefused(f"the token's {name} is not a JSON object") from None
