"""OAUTHBEARER: a client logs in with a token that somebody else issued. Source: RFC 7628, Kafka's OAuthBearerSaslServer.

A refused token first gets an answer with the error. The client acknowledges this answer, and only then its
login is refused.
"""

from __future__ import annotations

from typing import Final

from gateway.security.principals import user
from gateway.security.sasl.bearer_messages import INVALID_TOKEN, parse_first_message
from gateway.security.sasl.exchange import Exchange, LoggedIn, LoginRefused, Step
from gateway.security.sasl.tokens import TokenRefused, Tokens

OAUTHBEARER: Final = "OAUTHBEARER"


class OAuthBearer:
    """The mechanism OAUTHBEARER of a listener."""

    name = OAUTHBEARER

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def begin(self) -> Exchange:
        """Begin a login."""
        return _Login(self._tokens)


class _Login:
    """One login with a token."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._refusal: str | None = None

    async def step(self, token: bytes) -> Step:
        """Answer the client's next message. Raises LoginRefused."""
        if self._refusal is not None:
            raise LoginRefused(self._refusal)
        first = parse_first_message(token)
        try:
            accepted = await self._tokens.examine(first.token)
        except TokenRefused as error:
            self._refusal = f"the token is refused: {error}"
            return Step(INVALID_TOKEN)
        if first.authorization_id not in {"", accepted.subject}:
            raise LoginRefused(
                "the authorization id is not the user of the token", principal=user(accepted.subject)
            )
        return Step(b"", LoggedIn(user(accepted.subject), accepted.expires_at_ms))
