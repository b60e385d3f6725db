"""The tokens of forms against cross-site request forgery: a form's token fits the session cookie of its browser."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

FIELD: Final = "csrf"
"""The field of forms that holds the token."""


class FormTokens:
    """Makes and checks tokens with a key of this process."""

    def __init__(self) -> None:
        """Draw the key."""
        self._key = secrets.token_bytes(32)

    def token(self, session_id: str) -> str:
        """Return the token for the forms of a session."""
        return hmac.new(self._key, session_id.encode(), hashlib.sha256).hexdigest()

    def fits(self, session_id: str, token: str) -> bool:
        """Return whether a form's token belongs to a session."""
        return bool(session_id) and hmac.compare_digest(self.token(session_id).encode(), token.encode())
